//! The machine's id: salted and hashed, so that evidence tells machines apart and names none.

use proofhouse_schema::canonical::Digest;
use proofhouse_schema::probe::Probe;

const SALT: &str = "proofhouse machine v1:";

/// Sixteen hex digits; the same machine gives the same ones.
#[must_use]
pub fn machine_id() -> Probe<String> {
    let found = ["/etc/machine-id", "/var/lib/dbus/machine-id", "/proc/sys/kernel/random/boot_id"]
        .into_iter()
        .map(super::text)
        .find(|probe| probe.known().is_some_and(|id| !id.is_empty()));
    match found {
        Some(Probe::Known(id)) => {
            let digest = Digest::of(format!("{SALT}{id}").as_bytes());
            Probe::Known(digest.as_str()[..16].to_owned())
        }
        _ => Probe::Unavailable("no machine id in /etc, /var/lib/dbus or /proc".to_owned()),
    }
}

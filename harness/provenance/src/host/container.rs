//! Whether this is a container or a virtual machine.

use std::path::Path;

use proofhouse_schema::probe::Probe;

use super::text;

/// `none`, `docker`, `podman`, the `container` that systemd names, or `virtual machine`.
pub(super) fn container() -> Probe<String> {
    if Path::new("/.dockerenv").exists() {
        return Probe::Known("docker".to_owned());
    }
    if Path::new("/run/.containerenv").exists() {
        return Probe::Known("podman".to_owned());
    }
    if let Probe::Known(name) = text("/run/systemd/container") {
        return Probe::Known(name);
    }
    match text("/proc/cpuinfo") {
        Probe::Known(info) => {
            let guest = info
                .lines()
                .find(|line| line.starts_with("flags"))
                .is_some_and(|line| line.split_whitespace().any(|flag| flag == "hypervisor"));
            Probe::Known(if guest { "virtual machine" } else { "none" }.to_owned())
        }
        Probe::Unavailable(why) => Probe::Unavailable(why),
    }
}

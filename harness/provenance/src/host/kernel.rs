//! Kernel, distribution and load.

use proofhouse_schema::probe::Probe;

use super::text;

/// `Linux 6.1.0`.
pub(super) fn release() -> Probe<String> {
    match (text("/proc/sys/kernel/ostype"), text("/proc/sys/kernel/osrelease")) {
        (Probe::Known(kind), Probe::Known(release)) => Probe::Known(format!("{kind} {release}")),
        (Probe::Unavailable(why), _) | (_, Probe::Unavailable(why)) => Probe::Unavailable(why),
    }
}

/// The distribution's pretty name.
pub(super) fn distribution() -> Probe<String> {
    let Probe::Known(release) = text("/etc/os-release") else {
        return Probe::Unavailable("/etc/os-release cannot be read".to_owned());
    };
    let name = release.lines().find_map(|line| line.strip_prefix("PRETTY_NAME="));
    match name {
        Some(name) => Probe::Known(name.trim_matches('"').to_owned()),
        None => Probe::Unavailable("/etc/os-release has no PRETTY_NAME".to_owned()),
    }
}

/// The load average over the last minute.
pub(super) fn load() -> Probe<String> {
    match text("/proc/loadavg") {
        Probe::Known(line) => match line.split_whitespace().next() {
            Some(load) => Probe::Known(load.to_owned()),
            None => Probe::Unavailable("/proc/loadavg is empty".to_owned()),
        },
        unavailable => unavailable,
    }
}

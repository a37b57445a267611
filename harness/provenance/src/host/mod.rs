//! The host, one probe per file.

mod cache;
mod container;
mod cpu;
mod kernel;
mod machine;
mod memory;

use std::fs;

use proofhouse_schema::evidence::HostFacts;
use proofhouse_schema::probe::Probe;

pub use machine::machine_id;

/// Probes the host.
#[must_use]
pub fn host() -> HostFacts {
    HostFacts {
        machine: machine_id(),
        kernel: kernel::release(),
        distribution: kernel::distribution(),
        cpu: cpu::model(),
        features: cpu::features(),
        cores: cpu::cores(),
        memory: memory::total(),
        last_level_cache: cache::last_level(),
        numa_nodes: memory::numa_nodes(),
        container: container::container(),
        governor: cpu::governor(),
        load: kernel::load(),
    }
}

/// A file's text without its last newline, or why there is none.
fn text(path: &str) -> Probe<String> {
    match fs::read_to_string(path) {
        Ok(text) => Probe::Known(text.trim_end().to_owned()),
        Err(error) => Probe::Unavailable(format!("{path}: {error}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_file_is_a_reason_and_not_a_panic() {
        let Probe::Unavailable(why) = text("/no/such/file") else { panic!("it is not there") };
        assert!(why.contains("/no/such/file"), "{why}");
    }

    #[test]
    fn what_every_linux_has_is_known() {
        let facts = host();
        assert!(facts.kernel.known().is_some_and(|k| k.starts_with("Linux ")), "{facts:?}");
        assert!(facts.cores.known().is_some_and(|&n| n > 0));
        assert!(facts.memory.known().is_some_and(|b| b.0 > 1 << 20));
    }

    #[test]
    fn the_machine_is_named_by_a_salted_hash() {
        if let (Probe::Known(id), Probe::Known(raw)) = (machine_id(), text("/etc/machine-id")) {
            assert!(!id.contains(&raw) && id.len() == 16, "{id}");
        }
    }
}

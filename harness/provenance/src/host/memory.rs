//! Memory and its nodes.

use proofhouse_schema::probe::Probe;
use proofhouse_schema::units::Bytes;
use sysinfo::{MemoryRefreshKind, RefreshKind, System};

/// Total memory.
pub(super) fn total() -> Probe<Bytes> {
    let kind = RefreshKind::nothing().with_memory(MemoryRefreshKind::nothing().with_ram());
    match System::new_with_specifics(kind).map(|system| system.total_memory()) {
        Ok(0) => Probe::Unavailable("the kernel tells no memory size".to_owned()),
        Ok(bytes) => Probe::Known(Bytes(bytes)),
        Err(error) => Probe::Unavailable(error.to_string()),
    }
}

/// NUMA nodes.
pub(super) fn numa_nodes() -> Probe<u32> {
    let path = "/sys/devices/system/node";
    match std::fs::read_dir(path) {
        Ok(entries) => {
            let is_node =
                |name: &str| name.strip_prefix("node").is_some_and(|n| n.parse::<u32>().is_ok());
            let nodes = entries
                .filter_map(Result::ok)
                .filter(|e| e.file_name().to_str().is_some_and(is_node))
                .count();
            Probe::Known(nodes as u32)
        }
        Err(error) => Probe::Unavailable(format!("{path}: {error}")),
    }
}

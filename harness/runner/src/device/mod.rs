//! Devices beside the host's processor: which are here, who else uses them, and how a worker is told which one is its.
//!
//! A device is known by its UUID alone: ordinals change with the environment (P20). Nothing on a device is ever set.

mod health;
mod nvml;

use std::collections::BTreeMap;
use std::sync::Arc;

use proofhouse_schema::device::DeviceKind;
use proofhouse_schema::evidence::DeviceFacts;

pub(crate) use health::Health;
pub use nvml::{Nvml, Process};

/// Tells which processes compute on a device.
pub trait Occupancy: std::fmt::Debug + Send + Sync {
    /// The processes on the device of this UUID.
    ///
    /// # Errors
    /// Why they are not known, as a sentence.
    fn processes(&self, uuid: &str) -> Result<Vec<Process>, String>;

    /// The processes on all other devices that can be seen, each with its device's UUID.
    ///
    /// # Errors
    /// Why they are not known, as a sentence.
    fn elsewhere(&self, uuid: &str) -> Result<Vec<(String, Process)>, String>;
}

/// The environment variable by which a worker learns its device, e.g. `cuda:GPU-1b2c...`.
pub const DEVICE_VARIABLE: &str = "PROOFHOUSE_DEVICE";

/// Devices that a run may use: at most one of a kind, so that no comparison is split over two.
#[derive(Debug, Clone, Default)]
pub struct Devices {
    /// What is here, by kind.
    pub found: BTreeMap<DeviceKind, DeviceFacts>,
    /// Why a kind is not here.
    pub missing: BTreeMap<DeviceKind, String>,
    /// Kinds whose gates are left out of this run; it says so.
    pub left_out: Vec<DeviceKind>,
    /// Kinds on which no control runs, so that no comparison is called there: a self-test needs none to find its faults.
    pub uncontrolled: Vec<DeviceKind>,
    /// Who tells which processes compute on a device; none: NVML.
    pub occupancy: Option<Arc<dyn Occupancy>>,
}

/// Which devices a run is asked to use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DeviceChoice {
    /// The host's processor, and what is found beside it.
    Found,
    /// One kind; its gates are required, found or not.
    Only(DeviceKind),
    /// Every kind, found or not.
    All,
}

impl Devices {
    /// Looks for devices. `uuid` picks one GPU where there are several; without it there must be one.
    #[must_use]
    pub fn probe(choice: DeviceChoice, uuid: Option<&str>) -> Self {
        let mut devices = Self::default();
        match Nvml::open().and_then(|nvml| nvml.choose(uuid)) {
            Ok(facts) => {
                devices.found.insert(DeviceKind::Cuda, facts);
            }
            Err(reason) => {
                devices.missing.insert(DeviceKind::Cuda, reason);
            }
        }
        devices.left_out = DeviceKind::ALL
            .into_iter()
            .filter(|kind| match choice {
                DeviceChoice::All => false,
                DeviceChoice::Only(wanted) => *kind != wanted,
                DeviceChoice::Found => devices.missing.contains_key(kind),
            })
            .collect();
        devices
    }

    /// Whether gates of this device belong to the run.
    #[must_use]
    pub fn takes(&self, kind: DeviceKind) -> bool {
        !self.left_out.contains(&kind)
    }

    /// Why cells of this device cannot run, if they cannot.
    #[must_use]
    pub fn absent(&self, kind: DeviceKind) -> Option<String> {
        match kind {
            DeviceKind::Cpu => None,
            DeviceKind::Cuda if self.found.contains_key(&kind) => None,
            DeviceKind::Cuda => {
                let reason =
                    self.missing.get(&kind).map_or("it was not looked for", String::as_str);
                Some(format!("no {kind} device: {reason}"))
            }
        }
    }

    /// The name of the lock by which runs on a device exclude each other.
    #[must_use]
    pub fn lock_name(&self, kind: DeviceKind) -> Option<String> {
        match kind {
            DeviceKind::Cpu => Some("cpu".to_owned()),
            DeviceKind::Cuda => self.found.get(&kind).map(|facts| facts.uuid.clone()),
        }
    }

    /// What a worker of this device finds in its environment.
    pub(crate) fn variables(&self, kind: DeviceKind) -> Vec<(&'static str, String)> {
        match (kind, self.found.get(&kind)) {
            (DeviceKind::Cuda, Some(facts)) => vec![
                (DEVICE_VARIABLE, format!("{kind}:{}", facts.uuid)),
                ("CUDA_VISIBLE_DEVICES", facts.uuid.clone()),
                ("CUDA_DEVICE_ORDER", "PCI_BUS_ID".to_owned()),
                ("CUDA_MODULE_LOADING", "EAGER".to_owned()),
            ],
            _ => Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use proofhouse_schema::probe::Probe;

    use super::*;

    fn gpu() -> DeviceFacts {
        let unknown = || Probe::Unavailable("a test".to_owned());
        DeviceFacts {
            kind: DeviceKind::Cuda,
            uuid: "GPU-1".to_owned(),
            name: unknown(),
            architecture: unknown(),
            driver: unknown(),
            cuda: unknown(),
            vbios: unknown(),
            ecc: Probe::Unavailable("a test".to_owned()),
            mig: Probe::Unavailable("a test".to_owned()),
            power_limit_mw: Probe::Unavailable("a test".to_owned()),
            max_sm_mhz: Probe::Unavailable("a test".to_owned()),
            memory: Probe::Unavailable("a test".to_owned()),
            pci: unknown(),
            clock_policy: "as found".to_owned(),
        }
    }

    #[test]
    fn without_a_gpu_its_gates_are_left_out_unless_they_are_asked_for() {
        let nothing = Devices::probe(DeviceChoice::Found, Some("GPU-that-is-not-here"));
        assert!(nothing.takes(DeviceKind::Cpu) && !nothing.takes(DeviceKind::Cuda));
        let asked =
            Devices::probe(DeviceChoice::Only(DeviceKind::Cuda), Some("GPU-that-is-not-here"));
        assert!(asked.takes(DeviceKind::Cuda) && !asked.takes(DeviceKind::Cpu));
        let why = asked.absent(DeviceKind::Cuda).unwrap();
        assert!(why.starts_with("no cuda device: "), "{why}");
        let all = Devices::probe(DeviceChoice::All, Some("GPU-that-is-not-here"));
        assert!(all.takes(DeviceKind::Cpu) && all.takes(DeviceKind::Cuda));
    }

    #[test]
    fn a_worker_is_told_its_device_by_uuid_and_a_cpu_worker_nothing() {
        let found = BTreeMap::from([(DeviceKind::Cuda, gpu())]);
        let devices = Devices { found, ..Devices::default() };
        let told = devices.variables(DeviceKind::Cuda);
        assert!(told.contains(&(DEVICE_VARIABLE, "cuda:GPU-1".to_owned())));
        assert!(told.contains(&("CUDA_VISIBLE_DEVICES", "GPU-1".to_owned())));
        assert!(devices.variables(DeviceKind::Cpu).is_empty());
        assert_eq!(devices.lock_name(DeviceKind::Cuda).unwrap(), "GPU-1");
    }
}

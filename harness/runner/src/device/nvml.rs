//! NVIDIA's management library: facts about a GPU and the processes on it. It is loaded at run time; where it is not
//! there, the reason is a sentence.

use nvml_wrapper::enum_wrappers::device::Clock;
use nvml_wrapper::error::NvmlError;
use nvml_wrapper::{Device, cuda_driver_version_major, cuda_driver_version_minor};
use proofhouse_schema::device::DeviceKind;
use proofhouse_schema::evidence::DeviceFacts;
use proofhouse_schema::probe::Probe;
use proofhouse_schema::units::Bytes;

/// The management library, open.
#[derive(Debug)]
pub struct Nvml(nvml_wrapper::Nvml);

/// A process on a device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Process {
    /// Its id.
    pub pid: u32,
    /// Its name, where it can be read.
    pub name: String,
}

impl Nvml {
    /// Loads the library.
    ///
    /// # Errors
    /// Why it cannot be used, as a sentence.
    pub fn open() -> Result<Self, String> {
        nvml_wrapper::Nvml::init().map(Self).map_err(|error| match error {
            NvmlError::LibloadingError(_) => {
                "libnvidia-ml.so.1 is not on this machine (it comes with NVIDIA's driver)"
                    .to_owned()
            }
            other => format!("NVML: {other}"),
        })
    }

    /// The GPU of this UUID, or the only one.
    ///
    /// # Errors
    /// Why there is none, as a sentence.
    pub fn choose(&self, uuid: Option<&str>) -> Result<DeviceFacts, String> {
        let device = match uuid {
            Some(uuid) => self.by_uuid(uuid)?,
            None => self.only()?,
        };
        self.facts(&device)
    }

    /// The processes that compute on the GPU of this UUID.
    ///
    /// # Errors
    /// Why they are not known, as a sentence.
    pub fn processes(&self, uuid: &str) -> Result<Vec<Process>, String> {
        let device = self.by_uuid(uuid)?;
        let running = device.running_compute_processes().map_err(|error| error.to_string())?;
        let name = |pid| self.0.sys_process_name(pid, 80).unwrap_or_else(|error| error.to_string());
        Ok(running.iter().map(|found| Process { pid: found.pid, name: name(found.pid) }).collect())
    }

    /// The processes that compute on every GPU but that of this UUID, each with its GPU's UUID. A GPU that cannot be asked
    /// is passed over.
    ///
    /// # Errors
    /// Why they are not known, as a sentence.
    pub fn elsewhere(&self, uuid: &str) -> Result<Vec<(String, Process)>, String> {
        let count = self.0.device_count().map_err(|error| error.to_string())?;
        let others = (0..count)
            .filter_map(|at| self.0.device_by_index(at).ok()?.uuid().ok())
            .filter(|other| other != uuid);
        let found = others.filter_map(|other| {
            let processes = self.processes(&other).ok()?;
            Some(processes.into_iter().map(move |process| (other.clone(), process)))
        });
        Ok(found.flatten().collect())
    }

    fn by_uuid(&self, uuid: &str) -> Result<Device<'_>, String> {
        self.0.device_by_uuid(uuid).map_err(|error| format!("no GPU {uuid}: {error}"))
    }

    fn only(&self) -> Result<Device<'_>, String> {
        let count = self.0.device_count().map_err(|error| error.to_string())?;
        match count {
            0 => Err("NVML finds no GPU".to_owned()),
            1 => self.0.device_by_index(0).map_err(|error| error.to_string()),
            more => {
                let uuids: Vec<String> = (0..more)
                    .filter_map(|at| self.0.device_by_index(at).ok()?.uuid().ok())
                    .collect();
                Err(format!("{more} GPUs are here; name one: --gpu {}", uuids.join(", ")))
            }
        }
    }

    fn facts(&self, device: &Device<'_>) -> Result<DeviceFacts, String> {
        let uuid = device.uuid().map_err(|error| format!("a GPU without UUID: {error}"))?;
        let version = |cuda: i32| {
            format!("{}.{}", cuda_driver_version_major(cuda), cuda_driver_version_minor(cuda))
        };
        let capability = device.cuda_compute_capability();
        Ok(DeviceFacts {
            kind: DeviceKind::Cuda,
            uuid,
            name: probe(device.name()),
            architecture: probe(capability.map(|c| format!("{}.{}", c.major, c.minor))),
            driver: probe(self.0.sys_driver_version()),
            cuda: probe(self.0.sys_cuda_driver_version().map(version)),
            vbios: probe(device.vbios_version()),
            ecc: probe(device.is_ecc_enabled().map(|mode| mode.currently_enabled)),
            mig: probe(device.mig_mode().map(|mode| mode.current == 1)),
            power_limit_mw: probe(device.power_management_limit()),
            max_sm_mhz: probe(device.max_clock_info(Clock::SM)),
            memory: probe(device.memory_info().map(|memory| Bytes(memory.total))),
            pci: probe(device.pci_info().map(|pci| pci.bus_id)),
            clock_policy: "as found".to_owned(),
        })
    }
}

fn probe<T>(found: Result<T, NvmlError>) -> Probe<T> {
    Probe::from_result(found.map_err(|error| error.to_string()))
}

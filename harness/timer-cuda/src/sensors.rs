//! What NVML tells of a device: event reasons, power, temperature, energy, processes.
//!
//! The device is found by its UUID; an ordinal means another device to NVML than to CUDA. Settings
//! are read and never changed.

use std::sync::OnceLock;

use nvml_wrapper::Nvml;
use nvml_wrapper::enum_wrappers::device::{Clock, TemperatureSensor};
use nvml_wrapper::enums::device::UsedGpuMemory;
use serde::Serialize;

/// Where the library lies on a machine that has no development package, and on one that has.
const LIBRARIES: [&str; 2] = ["libnvidia-ml.so.1", "libnvidia-ml.so"];

/// What is read for every sample; none where the device does not tell.
///
/// The energy counter is not among it: it moves every tenth of a second, and asking an H200 for it
/// takes two milliseconds, more than a sample.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Reading {
    /// Why clocks are held back, NVML's bit set.
    pub reasons: Option<u64>,
    /// Power in milliwatts.
    pub power_mw: Option<f64>,
    /// Temperature in degrees Celsius.
    pub temperature_c: Option<f64>,
}

/// What is read once in a while.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Snapshot {
    /// Clock of the multiprocessors in MHz.
    pub sm_mhz: Option<u32>,
    /// Clock of the memory in MHz.
    pub memory_mhz: Option<u32>,
    /// The power limit in milliwatts.
    pub power_limit_mw: Option<u32>,
    /// The energy counter in millijoules.
    pub energy_mj: Option<u64>,
    /// Processes that compute on the device; none where they cannot be listed.
    pub processes: Option<Vec<ComputeProcess>>,
}

/// A process that computes on the device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ComputeProcess {
    /// Its number.
    pub pid: u32,
    /// Device memory that it uses in bytes; none where the device does not tell.
    pub memory_bytes: Option<u64>,
}

/// Reads a device.
pub trait Sensors: std::fmt::Debug {
    /// What is read for every sample.
    fn read(&mut self) -> Reading;
    /// What is read once in a while.
    fn snapshot(&mut self) -> Snapshot;
}

/// Why there is no telemetry.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SensorError {
    /// The library is missing or unusable.
    #[error("NVML is not usable: {why}; accepted: libnvidia-ml of the driver")]
    NoLibrary {
        /// What it said.
        why: String,
    },
    /// The device is unknown to NVML.
    #[error("NVML does not know device {uuid}: {why}")]
    NoDevice {
        /// The device.
        uuid: String,
        /// What it said.
        why: String,
    },
}

/// A device of NVML.
#[derive(Debug)]
pub struct NvmlSensors(nvml_wrapper::Device<'static>);

impl NvmlSensors {
    /// The device with the UUID.
    ///
    /// # Errors
    /// [`SensorError`].
    pub fn open(uuid: &str) -> Result<Self, SensorError> {
        // Once per process: initializing takes tens of milliseconds, and nothing ends it early.
        static LIBRARY: OnceLock<Result<Nvml, String>> = OnceLock::new();
        let nvml = LIBRARY.get_or_init(initialize).as_ref();
        let nvml = nvml.map_err(|why| SensorError::NoLibrary { why: why.clone() })?;
        let device = nvml.device_by_uuid(uuid).map_err(|error| SensorError::NoDevice {
            uuid: uuid.to_owned(),
            why: error.to_string(),
        })?;
        Ok(Self(device))
    }
}

fn initialize() -> Result<Nvml, String> {
    let mut last = String::new();
    for library in LIBRARIES {
        match Nvml::builder().lib_path(library.as_ref()).init() {
            Ok(nvml) => return Ok(nvml),
            Err(error) => last = error.to_string(),
        }
    }
    Err(last)
}

impl Sensors for NvmlSensors {
    fn read(&mut self) -> Reading {
        let device = &self.0;
        Reading {
            reasons: device.current_throttle_reasons().ok().map(|reasons| reasons.bits()),
            power_mw: device.power_usage().ok().map(f64::from),
            temperature_c: device.temperature(TemperatureSensor::Gpu).ok().map(f64::from),
        }
    }

    fn snapshot(&mut self) -> Snapshot {
        let device = &self.0;
        let processes = device.running_compute_processes().ok().map(|found| {
            found
                .into_iter()
                .map(|process| ComputeProcess {
                    pid: process.pid,
                    memory_bytes: match process.used_gpu_memory {
                        UsedGpuMemory::Used(bytes) => Some(bytes),
                        UsedGpuMemory::Unavailable => None,
                    },
                })
                .collect()
        });
        Snapshot {
            sm_mhz: device.clock_info(Clock::SM).ok(),
            memory_mhz: device.clock_info(Clock::Memory).ok(),
            power_limit_mw: device.enforced_power_limit().ok(),
            energy_mj: device.total_energy_consumption().ok(),
            processes,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_without_nvml_says_why_there_is_no_telemetry() {
        match NvmlSensors::open("GPU-00000000-0000-0000-0000-000000000000") {
            Ok(_) => panic!("no device has this UUID"),
            Err(error) => assert!(error.to_string().contains("NVML"), "{error}"),
        }
    }
}

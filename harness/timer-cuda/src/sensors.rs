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

/// How old a reading of the energy counter may be, in nanoseconds: asking for it takes two
/// milliseconds on an H200, and the counter moves every tenth of a second.
pub const ENERGY_NS: u64 = 200_000_000;

/// What is read for every sample; none where the device does not tell.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Reading {
    /// Why clocks are held back, NVML's bit set.
    pub reasons: Option<u64>,
    /// Power in milliwatts.
    pub power_mw: Option<f64>,
    /// Temperature in degrees Celsius.
    pub temperature_c: Option<f64>,
    /// The energy counter in millijoules, as it was at most [`ENERGY_NS`] before.
    pub energy_mj: Option<f64>,
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
    /// What is read for every sample; `now_ns` is the host's monotonic clock.
    fn read(&mut self, now_ns: u64) -> Reading;
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
pub struct NvmlSensors {
    device: nvml_wrapper::Device<'static>,
    /// When the energy counter was read, and what it said.
    energy: Option<(u64, Option<f64>)>,
}

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
        Ok(Self { device, energy: None })
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

impl NvmlSensors {
    fn energy_mj(&mut self, now_ns: u64) -> Option<f64> {
        match self.energy {
            Some((read_ns, energy)) if now_ns.saturating_sub(read_ns) < ENERGY_NS => energy,
            _ => {
                let counter = self.device.total_energy_consumption();
                // Below 2^53 mJ for three hundred thousand years at a kilowatt.
                let energy = counter.ok().map(|energy| energy as f64);
                self.energy = Some((now_ns, energy));
                energy
            }
        }
    }
}

impl Sensors for NvmlSensors {
    fn read(&mut self, now_ns: u64) -> Reading {
        let energy_mj = self.energy_mj(now_ns);
        let device = &self.device;
        Reading {
            reasons: device.current_throttle_reasons().ok().map(|reasons| reasons.bits()),
            power_mw: device.power_usage().ok().map(f64::from),
            temperature_c: device.temperature(TemperatureSensor::Gpu).ok().map(f64::from),
            energy_mj,
        }
    }

    fn snapshot(&mut self) -> Snapshot {
        let device = &self.device;
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

//! Devices: where a candidate runs, and what is known of it.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A kind of device.
#[derive(
    Debug,
    Clone,
    Copy,
    Default,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Serialize,
    Deserialize,
    JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum DeviceKind {
    /// The host's processor.
    #[default]
    Cpu,
    /// An NVIDIA GPU.
    Cuda,
}

impl DeviceKind {
    /// Every kind.
    pub const ALL: [DeviceKind; 2] = [DeviceKind::Cpu, DeviceKind::Cuda];

    /// The word in TOML, JSON and reports.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            DeviceKind::Cpu => "cpu",
            DeviceKind::Cuda => "cuda",
        }
    }

    /// Whether it is the host's processor; what is written for it is left out, as it was before there were others.
    #[must_use]
    pub const fn is_cpu(&self) -> bool {
        matches!(self, DeviceKind::Cpu)
    }
}

impl std::fmt::Display for DeviceKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

impl std::str::FromStr for DeviceKind {
    type Err = crate::ids::IdError;
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        DeviceKind::ALL.into_iter().find(|kind| kind.as_str() == text).ok_or_else(|| {
            crate::ids::IdError { what: "device", found: text.to_owned(), accepted: "cpu, cuda" }
        })
    }
}

/// The device that a worker opened, as it says in its hello.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct OpenedDevice {
    /// Its kind.
    pub kind: DeviceKind,
    /// Its UUID, e.g. `GPU-1b2c...`; the supervisor compares it with the one that it asked for (P20).
    pub uuid: String,
    /// Its name.
    #[serde(default)]
    pub name: String,
}

/// How a measurement keeps or empties the caches between two uses of a buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Reuse {
    /// The same few buffers on purpose: all sets together stay in the cache.
    Same,
    /// Buffer sets rotate until enough bytes lie between two uses.
    Rotated,
    /// An untimed pass before each sample evicts the buffers.
    Evicted,
}

/// What was read off the device around each sample, outside the timed region: one value per sample, or nothing where
/// it could not be read.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Telemetry {
    /// Clock of a multiprocessor in MHz, read in-band by a kernel.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sm_mhz: Vec<f64>,
    /// Why clocks were held back: NVML's event reasons as a bit set.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub reasons: Vec<u64>,
    /// Power in milliwatts.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub power_mw: Vec<f64>,
    /// Temperature in degrees Celsius.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub temperature_c: Vec<f64>,
    /// The energy counter in millijoules.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub energy_mj: Vec<f64>,
}

impl Telemetry {
    /// Whether nothing was read.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.columns().all(|(_, column)| column.is_empty())
    }

    /// The columns by name, as real numbers; the event reasons fit (their bits are below 2^53).
    pub fn columns(&self) -> impl Iterator<Item = (&'static str, Vec<f64>)> {
        let reasons = self.reasons.iter().map(|bits| *bits as f64).collect();
        [
            ("sm_mhz", self.sm_mhz.clone()),
            ("reasons", reasons),
            ("power_mw", self.power_mw.clone()),
            ("temperature_c", self.temperature_c.clone()),
            ("energy_mj", self.energy_mj.clone()),
        ]
        .into_iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kind_is_written_as_it_is_read() {
        for kind in DeviceKind::ALL {
            assert_eq!(kind.as_str().parse::<DeviceKind>().unwrap(), kind);
        }
        assert!("gpu".parse::<DeviceKind>().unwrap_err().to_string().contains("cpu, cuda"));
    }

    #[test]
    fn telemetry_is_empty_only_without_a_single_value() {
        assert!(Telemetry::default().is_empty());
        let one = Telemetry { reasons: vec![4], ..Telemetry::default() };
        assert!(!one.is_empty());
        assert_eq!(one.columns().find(|(name, _)| *name == "reasons").unwrap().1, [4.0]);
    }
}

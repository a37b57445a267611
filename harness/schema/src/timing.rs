//! The timing contract: what a speed is a statement about. Numbers with different contracts are never compared.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Which memory the timed calls find their operands in.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Cache {
    /// Bytes touched between two uses of a buffer are at least 5x the last-level cache.
    Cold,
    /// The same buffers, on purpose.
    Hot,
}

/// How calls are launched.
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
pub enum Launch {
    /// One call after another from the host.
    #[default]
    Eager,
    /// Calls captured in a device graph.
    Graph,
}

/// Whose clock.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Clock {
    /// The device's events.
    Device,
    /// The host's monotonic clock.
    Host,
}

/// What happens to the clock frequency.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum ClockPolicy {
    /// As the machine has it; read, never changed.
    AsFound,
}

/// How a sample is reduced inside a block.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Statistic {
    /// The median of the samples of one turn, per call.
    MedianPerCall,
}

/// The timing contract; part of a result's identity.
#[derive(
    Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(deny_unknown_fields)]
pub struct TimingContract {
    /// cold or hot.
    pub cache: Cache,
    /// eager or graph.
    pub launch: Launch,
    /// host or device.
    pub clock: Clock,
    /// What is inside the timed region beside the operator, e.g. `allocation`, `layout`; empty: nothing.
    pub includes: Vec<String>,
    /// Threads (CPU) given to every provider; the runner pins as many cores.
    pub threads: u32,
    /// How samples are reduced.
    pub statistic: Statistic,
    /// What is done to clocks.
    pub clock_policy: ClockPolicy,
}

impl std::fmt::Display for TimingContract {
    /// In words: `hot eager host 1 thread`.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let cache = match self.cache {
            Cache::Cold => "cold",
            Cache::Hot => "hot",
        };
        let launch = match self.launch {
            Launch::Eager => "eager",
            Launch::Graph => "graph",
        };
        let clock = match self.clock {
            Clock::Device => "device",
            Clock::Host => "host",
        };
        let threads = self.threads;
        let plural = if threads == 1 { "" } else { "s" };
        write!(f, "{cache} {launch} {clock} {threads} thread{plural}")?;
        if self.includes.is_empty() {
            return Ok(());
        }
        write!(f, ", includes {}", self.includes.join(", "))
    }
}

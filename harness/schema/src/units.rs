//! Units as types.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A duration in nanoseconds. Fractions are real: a mean over many calls is finer than the clock.
#[derive(Debug, Clone, Copy, PartialEq, PartialOrd, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct Nanos(pub f64);

impl Nanos {
    /// The duration in microseconds.
    #[must_use]
    pub fn micros(self) -> f64 {
        self.0 / 1e3
    }

    /// The duration in milliseconds.
    #[must_use]
    pub fn millis(self) -> f64 {
        self.0 / 1e6
    }

    /// The duration in seconds.
    #[must_use]
    pub fn secs(self) -> f64 {
        self.0 / 1e9
    }
}

impl std::fmt::Display for Nanos {
    /// Prints with the unit that keeps three significant digits readable.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let ns = self.0;
        match ns.abs() {
            a if a < 1e3 => write!(f, "{ns:.0} ns"),
            a if a < 1e6 => write!(f, "{:.2} us", ns / 1e3),
            a if a < 1e9 => write!(f, "{:.2} ms", ns / 1e6),
            _ => write!(f, "{:.2} s", ns / 1e9),
        }
    }
}

/// A number of bytes.
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
#[serde(transparent)]
pub struct Bytes(pub u64);

impl std::fmt::Display for Bytes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];
        let mut value = self.0 as f64;
        let mut unit = 0;
        while value >= 1024.0 && unit + 1 < UNITS.len() {
            value /= 1024.0;
            unit += 1;
        }
        if unit == 0 { write!(f, "{} B", self.0) } else { write!(f, "{value:.1} {}", UNITS[unit]) }
    }
}

/// A distance on a dtype's lattice of representable values.
#[derive(Debug, Clone, Copy, PartialEq, PartialOrd, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct Ulps(pub f64);

/// An integer that may pass 2^53 (a seed, a nanosecond stamp); in JSON it is a decimal string.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, JsonSchema)]
#[schemars(with = "String")]
pub struct Wide(pub u64);

impl Serialize for Wide {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for Wide {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        // One form per number: no sign, no leading zero.
        let parsed = text.parse().map(Wide).ok().filter(|wide| wide.to_string() == text);
        parsed.ok_or_else(|| {
            serde::de::Error::custom(format!(
                "expected a decimal integer in a string, found {text:?}"
            ))
        })
    }
}

impl std::fmt::Display for Wide {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.0)
    }
}

//! Element types and their names.

use std::fmt;
use std::str::FromStr;

use crate::error::{ContractError, ErrorKind};

/// An element type, spelled as safetensors spells it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Dtype {
    /// IEEE binary32.
    F32,
    /// IEEE binary16.
    F16,
    /// The upper half of a binary32.
    BF16,
    /// OCP E4M3FN: no infinity, one NaN per sign, largest finite value 448.
    F8E4M3,
    /// Signed 32-bit integer.
    I32,
    /// Signed 64-bit integer.
    I64,
    /// Unsigned byte.
    U8,
}

impl Dtype {
    /// Every element type.
    pub const ALL: [Self; 7] =
        [Self::F32, Self::F16, Self::BF16, Self::F8E4M3, Self::I32, Self::I64, Self::U8];

    /// The name in TOML, JSON and safetensors headers.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::F32 => "F32",
            Self::F16 => "F16",
            Self::BF16 => "BF16",
            Self::F8E4M3 => "F8_E4M3",
            Self::I32 => "I32",
            Self::I64 => "I64",
            Self::U8 => "U8",
        }
    }

    /// Size of one element, in bytes.
    #[must_use]
    pub const fn size(self) -> usize {
        match self {
            Self::F32 | Self::I32 => 4,
            Self::F16 | Self::BF16 => 2,
            Self::F8E4M3 | Self::U8 => 1,
            Self::I64 => 8,
        }
    }

    /// Whether elements are floating-point numbers.
    #[must_use]
    pub const fn is_float(self) -> bool {
        matches!(self, Self::F32 | Self::F16 | Self::BF16 | Self::F8E4M3)
    }

    /// Stored significand bits of a floating-point type (the implicit one not counted); `None` for integers.
    #[must_use]
    pub const fn mantissa_bits(self) -> Option<u32> {
        match self {
            Self::F32 => Some(23),
            Self::F16 => Some(10),
            Self::BF16 => Some(7),
            Self::F8E4M3 => Some(3),
            Self::I32 | Self::I64 | Self::U8 => None,
        }
    }

    /// Largest finite value of a floating-point type; the largest integer otherwise (I64 rounded to f64).
    #[must_use]
    pub const fn max_finite(self) -> f64 {
        match self {
            Self::F32 => f32::MAX as f64,
            Self::F16 => 65504.0,
            Self::BF16 => 3.389_531_389_251_535_5e38,
            Self::F8E4M3 => 448.0,
            Self::I32 => i32::MAX as f64,
            Self::I64 => i64::MAX as f64,
            Self::U8 => 255.0,
        }
    }

    /// Smallest positive value of the type: the subnormal step for floats, 1 for integers.
    #[must_use]
    pub fn min_positive(self) -> f64 {
        match self {
            Self::F32 => 2f64.powi(-149),
            Self::F16 => 2f64.powi(-24),
            Self::BF16 => 2f64.powi(-133),
            Self::F8E4M3 => 2f64.powi(-9),
            Self::I32 | Self::I64 | Self::U8 => 1.0,
        }
    }
}

impl fmt::Display for Dtype {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Dtype {
    type Err = ContractError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::ALL.into_iter().find(|dtype| dtype.name() == text).ok_or_else(|| {
            ContractError::new("", "dtype", ErrorKind::Unknown)
                .found(text)
                .accepted("F32, F16, BF16, F8_E4M3, I32, I64 or U8")
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_parses_back_and_others_are_refused() {
        for dtype in Dtype::ALL {
            assert_eq!(dtype.name().parse::<Dtype>().unwrap(), dtype);
        }
        let error = "f32".parse::<Dtype>().unwrap_err();
        assert_eq!(error.kind, ErrorKind::Unknown);
        assert!(error.to_string().contains("f32"));
    }
}

//! Element types, spelled as safetensors spells them.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The element type of a tensor.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[allow(non_camel_case_types, reason = "the field's spelling")]
pub enum Dtype {
    /// IEEE 754 binary32.
    F32,
    /// IEEE 754 binary16.
    F16,
    /// bfloat16.
    BF16,
    /// OCP E4M3FN.
    F8_E4M3,
    /// 32-bit signed integer.
    I32,
    /// 64-bit signed integer.
    I64,
    /// Byte.
    U8,
}

impl Dtype {
    /// Every dtype.
    pub const ALL: [Dtype; 7] =
        [Dtype::F32, Dtype::F16, Dtype::BF16, Dtype::F8_E4M3, Dtype::I32, Dtype::I64, Dtype::U8];

    /// Bytes an element takes.
    #[must_use]
    pub const fn size(self) -> u64 {
        match self {
            Dtype::F32 | Dtype::I32 => 4,
            Dtype::F16 | Dtype::BF16 => 2,
            Dtype::F8_E4M3 | Dtype::U8 => 1,
            Dtype::I64 => 8,
        }
    }

    /// The field's spelling.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Dtype::F32 => "F32",
            Dtype::F16 => "F16",
            Dtype::BF16 => "BF16",
            Dtype::F8_E4M3 => "F8_E4M3",
            Dtype::I32 => "I32",
            Dtype::I64 => "I64",
            Dtype::U8 => "U8",
        }
    }
}

impl std::fmt::Display for Dtype {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

impl std::str::FromStr for Dtype {
    type Err = crate::ids::IdError;
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Dtype::ALL.into_iter().find(|d| d.as_str() == text).ok_or_else(|| crate::ids::IdError {
            what: "dtype",
            found: text.to_owned(),
            accepted: "F32, F16, BF16, F8_E4M3, I32, I64, U8",
        })
    }
}

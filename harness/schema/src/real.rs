//! Numbers that may be NaN or infinite.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A double; NaN and ±inf, which JSON lacks, take the tagged form `{"real": "nan" | "inf" | "-inf"}`.
#[derive(Debug, Clone, Copy, PartialEq, PartialOrd, JsonSchema)]
#[schemars(with = "RealForm")]
pub struct Real(pub f64);

#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
enum RealForm {
    Finite(f64),
    Tagged { real: Tag },
}

#[derive(Serialize, Deserialize, JsonSchema)]
enum Tag {
    #[serde(rename = "nan")]
    Nan,
    #[serde(rename = "inf")]
    Inf,
    #[serde(rename = "-inf")]
    NegInf,
}

impl Serialize for Real {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let form = match self.0 {
            v if v.is_nan() => RealForm::Tagged { real: Tag::Nan },
            f64::INFINITY => RealForm::Tagged { real: Tag::Inf },
            f64::NEG_INFINITY => RealForm::Tagged { real: Tag::NegInf },
            v => RealForm::Finite(v),
        };
        form.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Real {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(Real(match RealForm::deserialize(deserializer)? {
            RealForm::Finite(v) => v,
            RealForm::Tagged { real: Tag::Nan } => f64::NAN,
            RealForm::Tagged { real: Tag::Inf } => f64::INFINITY,
            RealForm::Tagged { real: Tag::NegInf } => f64::NEG_INFINITY,
        }))
    }
}

impl std::fmt::Display for Real {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.0)
    }
}

//! What gates must know of operators. The checker (`worker-oracle`) exports it; the copy in `gates/catalog.json`
//! is generated, committed and compared in the tests, so that the harness links no kernel.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::dtype::Dtype;
use crate::ids::OperatorName;
use crate::real::Real;

/// The catalog of operators.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Catalog {
    /// [`crate::SCHEMA`].
    pub schema: String,
    /// Operators by name.
    pub operators: BTreeMap<OperatorName, Operator>,
    /// Layout names and what they mean.
    pub layouts: BTreeMap<String, String>,
    /// Value classes and what they mean.
    pub values: BTreeMap<String, String>,
}

/// One operator.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Operator {
    /// One sentence.
    pub summary: String,
    /// Dimensions in order: `rows`, `hidden`.
    pub dims: Vec<Dim>,
    /// Parameters in order.
    pub params: Vec<Param>,
    /// Tensors in order.
    pub tensors: Vec<Tensor>,
    /// Activation dtypes.
    pub dtypes: Vec<Dtype>,
    /// Layouts that apply.
    pub layouts: Vec<String>,
    /// Value classes that apply.
    pub values: Vec<String>,
    /// Value classes that can leave an output without any finite element, so that no error could be measured: a case has
    /// one where at least one of these dimensions reaches its extent.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub finite_from: BTreeMap<String, BTreeMap<String, u64>>,
    /// Invalid inputs whose pass is the right error.
    pub refusals: Vec<Refusal>,
}

/// A dimension.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Dim {
    /// Its name in gates.
    pub name: String,
    /// What it counts.
    pub meaning: String,
    /// The least extent that is accepted.
    #[serde(default)]
    pub least: u64,
}

/// A parameter.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Param {
    /// Its name in gates (kebab-case).
    pub name: String,
    /// Its type.
    pub kind: ParamKind,
    /// Its value where a gate says nothing.
    pub default: ParamValue,
    /// The accepted range, in words.
    pub accepted: String,
    /// The accepted range, for programs.
    #[serde(default)]
    pub domain: Domain,
    /// What it means.
    pub meaning: String,
}

/// The values of a parameter that are accepted: finite, and inside every bound that is given.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Domain {
    /// Values are above this.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub above: Option<f64>,
    /// Values are at least this.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub least: Option<f64>,
    /// Values are at most this.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub most: Option<f64>,
    /// Values are at most the extent of this dimension.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub most_dim: Option<String>,
}

impl Domain {
    /// Whether a value is accepted, whatever the extents are. A truth value always is.
    #[must_use]
    pub fn admits(&self, value: ParamValue) -> bool {
        let Some(number) = value.as_f64() else { return true };
        number.is_finite()
            && self.above.is_none_or(|low| number > low)
            && self.least.is_none_or(|least| number >= least)
            && self.most.is_none_or(|most| number <= most)
    }
}

/// The type of a parameter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ParamKind {
    /// A double.
    Float,
    /// A whole number.
    Integer,
    /// true or false.
    Boolean,
}

/// A parameter's value.
#[derive(Debug, Clone, Copy, PartialEq, PartialOrd, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum ParamValue {
    /// true or false.
    Boolean(bool),
    /// A whole number.
    Integer(i64),
    /// A double (canonical JSON writes 1.0 as 1, so readers take an integer for a float). NaN and ±inf, which only
    /// refusal cases have, take [`Real`]'s tagged form.
    Float(
        #[serde(with = "tagged")]
        #[schemars(with = "Real")]
        f64,
    ),
}

/// A double that is written as [`Real`].
mod tagged {
    use serde::{Deserialize as _, Deserializer, Serialize as _, Serializer};

    use crate::real::Real;

    pub(super) fn serialize<S: Serializer>(value: &f64, serializer: S) -> Result<S::Ok, S::Error> {
        Real(*value).serialize(serializer)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
        Real::deserialize(deserializer).map(|real| real.0)
    }
}

impl ParamValue {
    /// As a double, where it is a number.
    #[must_use]
    pub fn as_f64(self) -> Option<f64> {
        match self {
            ParamValue::Boolean(_) => None,
            ParamValue::Integer(v) => Some(v as f64),
            ParamValue::Float(v) => Some(v),
        }
    }

    /// As a whole number, where it is one.
    #[must_use]
    pub fn as_i64(self) -> Option<i64> {
        match self {
            ParamValue::Integer(v) => Some(v),
            ParamValue::Float(v) if v.fract() == 0.0 && v.abs() < 9e15 => Some(v as i64),
            _ => None,
        }
    }

    /// As a truth value.
    #[must_use]
    pub fn as_bool(self) -> Option<bool> {
        if let ParamValue::Boolean(v) = self { Some(v) } else { None }
    }
}

impl std::fmt::Display for ParamValue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            ParamValue::Boolean(v) => write!(f, "{v}"),
            ParamValue::Integer(v) => write!(f, "{v}"),
            ParamValue::Float(v) => write!(f, "{v}"),
        }
    }
}

/// How a tensor is used.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// Read only; it must not change.
    In,
    /// Written whole.
    Out,
    /// Read and written.
    InOut,
}

/// One tensor of an operator.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Tensor {
    /// Its name, everywhere.
    pub name: String,
    /// in, out or in_out.
    pub role: Role,
    /// A fixed dtype, or none where it follows the activation dtype.
    pub dtype: Option<Dtype>,
    /// Each extent: a sum of products of dims and constants, e.g. `hidden`, `2*width`, `k+1`, `1`.
    pub shape: Vec<String>,
    /// The boolean parameter that must be true for the tensor to be part of a call; none where it always is.
    #[serde(default)]
    pub present_when: Option<String>,
    /// How many times its bytes must be read by any implementation (the byte model).
    pub reads: f64,
    /// How many times its bytes must be written.
    pub writes: f64,
    /// Tolerance by activation dtype; empty for inputs.
    pub tolerance: BTreeMap<Dtype, Tolerance>,
}

/// How far an element may lie from the oracle's.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Tolerance {
    /// How it is found, e.g. `2 ulp + 1 ulp per 2^k accumulated elements`.
    pub rule: String,
    /// Why.
    pub reason: String,
}

/// An invalid input whose pass is the right error.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Refusal {
    /// Its name in gates.
    pub name: String,
    /// What is wrong with the input.
    pub what: String,
    /// The expected kind of error.
    pub kind: String,
    /// The expected argument.
    pub argument: String,
    /// Whether it can only be seen on the values (checked mode).
    pub device_value: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_domain_admits_finite_numbers_inside_its_bounds() {
        let above = Domain { above: Some(0.0), ..Domain::default() };
        for bad in [0.0, -1.0, f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
            assert!(!above.admits(ParamValue::Float(bad)), "{bad}");
        }
        assert!(above.admits(ParamValue::Float(1e-300)));
        let range = Domain { least: Some(1.0), most: Some(128.0), ..Domain::default() };
        for (value, admitted) in [(0, false), (1, true), (128, true), (129, false)] {
            assert_eq!(range.admits(ParamValue::Integer(value)), admitted, "{value}");
        }
        assert!(Domain::default().admits(ParamValue::Boolean(false)));
        assert!(!Domain::default().admits(ParamValue::Float(f64::NAN)));
    }

    #[test]
    fn parameters_keep_their_type_and_nan_has_a_form() {
        let text = |value: ParamValue| serde_json::to_string(&value).unwrap();
        for (value, written) in [
            (ParamValue::Boolean(true), "true"),
            (ParamValue::Integer(-3), "-3"),
            (ParamValue::Float(1e-6), "1e-6"),
            (ParamValue::Float(f64::INFINITY), r#"{"real":"inf"}"#),
        ] {
            assert_eq!(text(value), written);
            assert_eq!(serde_json::from_str::<ParamValue>(written).unwrap(), value);
        }
        assert_eq!(text(ParamValue::Float(f64::NAN)), r#"{"real":"nan"}"#);
        let nan: ParamValue = serde_json::from_str(r#"{"real":"nan"}"#).unwrap();
        assert!(matches!(nan, ParamValue::Float(value) if value.is_nan()));
    }
}

//! Types of the harness to types of the contract, and back.

use std::collections::BTreeMap;

use proofhouse_contract as contract;
use proofhouse_contract::{ContractError, OperatorSpec, TensorLayout};
use proofhouse_schema::catalog::{ParamValue, Role};
use proofhouse_schema::dtype::Dtype;
use proofhouse_schema::protocol::TypedError;

/// The contract's dtype.
#[must_use]
pub fn to_dtype(dtype: Dtype) -> contract::Dtype {
    match dtype {
        Dtype::F32 => contract::Dtype::F32,
        Dtype::F16 => contract::Dtype::F16,
        Dtype::BF16 => contract::Dtype::BF16,
        Dtype::F8_E4M3 => contract::Dtype::F8E4M3,
        Dtype::I32 => contract::Dtype::I32,
        Dtype::I64 => contract::Dtype::I64,
        Dtype::U8 => contract::Dtype::U8,
    }
}

/// The harness's dtype.
#[must_use]
pub fn from_dtype(dtype: contract::Dtype) -> Dtype {
    match dtype {
        contract::Dtype::F32 => Dtype::F32,
        contract::Dtype::F16 => Dtype::F16,
        contract::Dtype::BF16 => Dtype::BF16,
        contract::Dtype::F8E4M3 => Dtype::F8_E4M3,
        contract::Dtype::I32 => Dtype::I32,
        contract::Dtype::I64 => Dtype::I64,
        contract::Dtype::U8 => Dtype::U8,
    }
}

/// The harness's role.
#[must_use]
pub fn from_role(role: contract::Role) -> Role {
    match role {
        contract::Role::In => Role::In,
        contract::Role::Out => Role::Out,
        contract::Role::InOut => Role::InOut,
    }
}

/// The harness's parameter value.
#[must_use]
pub fn from_param(value: contract::ParamValue) -> ParamValue {
    match value {
        contract::ParamValue::Float(value) => ParamValue::Float(value),
        contract::ParamValue::Int(value) => ParamValue::Integer(value),
        contract::ParamValue::Bool(value) => ParamValue::Boolean(value),
    }
}

/// The contract's parameters. A whole number for a real parameter is that real number: canonical JSON writes both
/// alike. Every other mistake is kept, for the contract to refuse.
#[must_use]
pub fn to_params(
    operator: &OperatorSpec,
    params: &BTreeMap<String, ParamValue>,
) -> BTreeMap<String, contract::ParamValue> {
    let real = |name: &str| {
        let default = operator.param(name).map(|param| param.default);
        matches!(default, Some(contract::ParamValue::Float(_)))
    };
    let value = |name: &str, value: ParamValue| match value {
        ParamValue::Boolean(value) => contract::ParamValue::Bool(value),
        ParamValue::Integer(value) if real(name) => contract::ParamValue::Float(value as f64),
        ParamValue::Integer(value) => contract::ParamValue::Int(value),
        ParamValue::Float(value) => contract::ParamValue::Float(value),
    };
    params.iter().map(|(name, given)| (name.clone(), value(name, *given))).collect()
}

/// The call that a case or a request names; nothing but the operator's name is checked.
///
/// # Errors
/// The contract's, when it has no such operator.
pub fn to_call(
    operator: &str,
    dtype: Dtype,
    dims: &BTreeMap<String, u64>,
    params: &BTreeMap<String, ParamValue>,
) -> Result<contract::Call, ContractError> {
    let spec = contract::find_operator(operator)?;
    let params = to_params(spec, params);
    Ok(contract::Call { operator: spec, dtype: to_dtype(dtype), dims: dims.clone(), params })
}

/// The refusal as it travels.
#[must_use]
pub fn typed_error(error: &ContractError) -> TypedError {
    let found = match error.row {
        Some(row) => format!("{} in row {row}", error.found),
        None => error.found.clone(),
    };
    TypedError {
        kind: error.kind.name().to_owned(),
        operator: error.operator.to_string(),
        argument: error.argument.to_string(),
        found,
        accepted: error.accepted.clone(),
    }
}

/// Elements between neighbors along each axis.
#[must_use]
pub fn strides(layout: &TensorLayout) -> Vec<u64> {
    let mut strides = vec![1; layout.shape.len()];
    let mut step = layout.row_stride;
    for axis in (0..layout.shape.len().saturating_sub(1)).rev() {
        strides[axis] = step;
        step = step.saturating_mul(layout.shape[axis]);
    }
    strides
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_dtype_goes_there_and_back_under_one_name() {
        for dtype in Dtype::ALL {
            assert_eq!(from_dtype(to_dtype(dtype)), dtype);
            assert_eq!(to_dtype(dtype).name(), dtype.as_str());
        }
    }

    #[test]
    fn a_whole_number_is_a_real_parameter_and_other_mistakes_are_kept() {
        let spec = contract::find_operator("rms_norm").unwrap();
        let params = |value| to_params(spec, &BTreeMap::from([("eps".to_owned(), value)]))["eps"];
        assert_eq!(params(ParamValue::Integer(1)), contract::ParamValue::Float(1.0));
        assert_eq!(params(ParamValue::Boolean(true)), contract::ParamValue::Bool(true));
        let other = to_params(spec, &BTreeMap::from([("k".to_owned(), ParamValue::Integer(3))]));
        assert_eq!(other["k"], contract::ParamValue::Int(3));
    }

    #[test]
    fn strides_follow_the_row_stride() {
        let mut layout = TensorLayout::contiguous(contract::Dtype::F32, &[2, 3, 4]);
        layout.row_stride = 6;
        assert_eq!(strides(&layout), [18, 6, 1]);
        assert_eq!(strides(&TensorLayout::contiguous(contract::Dtype::F32, &[4])), [1]);
    }
}

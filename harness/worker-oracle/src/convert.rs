//! Types of the harness to types of the contract, and back.

use std::collections::BTreeMap;

use proofhouse_contract as contract;
use proofhouse_contract::{ContractError, TensorLayout};
use proofhouse_schema::catalog::{ParamValue, Role};
use proofhouse_schema::dtype::Dtype;
pub use proofhouse_worker_contract::from_dtype;
use proofhouse_worker_contract::{to_dtype, to_params};

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
    fn strides_follow_the_row_stride() {
        let mut layout = TensorLayout::contiguous(contract::Dtype::F32, &[2, 3, 4]);
        layout.row_stride = 6;
        assert_eq!(strides(&layout), [18, 6, 1]);
        assert_eq!(strides(&TensorLayout::contiguous(contract::Dtype::F32, &[4])), [1]);
    }
}

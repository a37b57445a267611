//! What workers of our own kernels share: requests of the protocol as calls of the contract, and refusals back.
//!
//! The contract knows no protocol and the worker crate no operator, so this has a crate of its own.

use std::collections::BTreeMap;

use proofhouse_contract as contract;
use proofhouse_contract::{
    Call, CallPlan, ContractError, ErrorKind, OperatorSpec, TensorLayout, TensorPlan,
};
use proofhouse_schema::catalog::ParamValue;
use proofhouse_schema::dtype::Dtype;
use proofhouse_schema::protocol::{Prepare, TypedError};
use proofhouse_worker::{Decline, Region};

/// The contract's name of a dtype.
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

/// The harness's name of a dtype.
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

/// The contract's parameters. A whole number for a real parameter is that real number: canonical JSON writes both alike.
/// Every other mistake is kept, for the contract to refuse.
#[must_use]
pub fn to_params(
    operator: &OperatorSpec,
    params: &BTreeMap<String, ParamValue>,
) -> BTreeMap<String, contract::ParamValue> {
    let is_real = |name: &str| {
        let default = operator.param(name).map(|param| param.default);
        matches!(default, Some(contract::ParamValue::Float(_)))
    };
    let value = |name: &str, value: ParamValue| match value {
        ParamValue::Boolean(value) => contract::ParamValue::Bool(value),
        ParamValue::Integer(value) if is_real(name) => contract::ParamValue::Float(value as f64),
        ParamValue::Integer(value) => contract::ParamValue::Int(value),
        ParamValue::Float(value) => contract::ParamValue::Float(value),
    };
    params.iter().map(|(name, given)| (name.clone(), value(name, *given))).collect()
}

/// The call that a case names; nothing but the operator's name is checked.
///
/// # Errors
/// [`Decline::Unsupported`] for an operator that the contract lacks.
pub fn to_call(case: &Prepare) -> Result<Call, Decline> {
    let operator = contract::find_operator(case.operator.as_str())
        .map_err(|error| Decline::Unsupported(error.to_string()))?;
    let params = to_params(operator, &case.params);
    Ok(Call { operator, dtype: to_dtype(case.dtype), dims: case.dims.clone(), params })
}

/// The plan of a case whose tensors lie in these regions, in the case's order; nothing is checked.
///
/// # Errors
/// As [`to_call`], and the refusal of a tensor that the operator has not.
pub fn to_plan(case: &Prepare, regions: &[Region]) -> Result<CallPlan, Decline> {
    let call = to_call(case)?;
    let tensors = case
        .tensors
        .iter()
        .zip(regions)
        .map(|(tensor, region)| {
            let spec =
                call.operator.tensor(&tensor.name).ok_or_else(|| unknown(&call, &tensor.name))?;
            let layout = TensorLayout {
                dtype: to_dtype(tensor.dtype),
                shape: tensor.shape.clone(),
                row_stride: region.row_stride,
                offset: 0,
            };
            let (address, bytes) = (region.address, region.bytes);
            Ok(TensorPlan { name: spec.name, role: spec.role, layout, address, bytes })
        })
        .collect::<Result<Vec<_>, ContractError>>();
    Ok(CallPlan { tensors: tensors.map_err(|error| refused(&error))?, call })
}

fn unknown(call: &Call, tensor: &str) -> ContractError {
    let names: Vec<_> = call.tensors().map(|spec| spec.name).collect();
    ContractError::new(call.operator.name, tensor.to_owned(), ErrorKind::Unknown)
        .found("a tensor of that name")
        .accepted(names.join(", "))
}

/// The contract's refusal as it travels.
#[cold]
#[must_use]
pub fn refused(error: &ContractError) -> Decline {
    let found = match error.row {
        Some(row) => format!("{} in row {row}", error.found),
        None => error.found.clone(),
    };
    Decline::Refused(TypedError {
        kind: error.kind.name().to_owned(),
        operator: error.operator.to_string(),
        argument: error.argument.to_string(),
        found,
        accepted: error.accepted.clone(),
    })
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
        let spec = contract::find_operator("rms_norm").expect("a catalog name");
        let params = |value| to_params(spec, &BTreeMap::from([("eps".to_owned(), value)]))["eps"];
        assert_eq!(params(ParamValue::Integer(1)), contract::ParamValue::Float(1.0));
        assert_eq!(params(ParamValue::Boolean(true)), contract::ParamValue::Bool(true));
        let other = to_params(spec, &BTreeMap::from([("k".to_owned(), ParamValue::Integer(3))]));
        assert_eq!(other["k"], contract::ParamValue::Int(3));
    }
}

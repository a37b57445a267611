//! The contract as the harness knows it: the catalog that is committed as `gates/catalog.json`.

use std::collections::BTreeMap;

use proofhouse_contract::{
    self as contract, Call, ContractError, DeviceValue, Layout, Mutation, OperatorSpec, Refusal,
    Rule, TensorSpec, ValueClass,
};
use proofhouse_schema::SCHEMA;
use proofhouse_schema::canonical;
use proofhouse_schema::catalog::{self as schema, Catalog, ParamKind};
use proofhouse_schema::dtype::Dtype;
use proofhouse_schema::ids::OperatorName;

use crate::convert::{from_dtype, from_param, from_role};
use crate::error::CheckerError;
use crate::finite;

/// The size of every dimension but `rows` in the call that the catalog's examples are made of.
const EXAMPLE_SIZE: u64 = 4096;

/// The catalog.
///
/// # Errors
/// [`CheckerError::Contract`] when the contract contradicts itself.
pub fn export() -> Result<Catalog, CheckerError> {
    let mut operators = BTreeMap::new();
    for spec in contract::catalog() {
        let name = OperatorName::new(spec.name).map_err(|error| {
            ContractError::new(spec.name, "operator", contract::ErrorKind::Unknown).found(error)
        })?;
        operators.insert(name, operator(spec)?);
    }
    Ok(Catalog {
        schema: SCHEMA.to_owned(),
        operators,
        layouts: Layout::CASES.iter().map(|l| (l.to_string(), layout_meaning(*l))).collect(),
        values: ValueClass::ALL
            .iter()
            .map(|class| (class.name().to_owned(), value_meaning(*class).to_owned()))
            .collect(),
    })
}

/// The catalog as it is committed: canonical JSON, indented, with a newline at its end.
///
/// # Errors
/// As [`export`].
pub fn text() -> Result<String, CheckerError> {
    let canonical = canonical::parse_value(&canonical::to_bytes(&export()?)?)?;
    Ok(format!("{}\n", serde_json::to_string_pretty(&canonical)?))
}

fn operator(spec: &'static OperatorSpec) -> Result<schema::Operator, CheckerError> {
    let strided = spec.tensors.iter().any(|tensor| tensor.strided);
    let applies = |layout: &&Layout| {
        strided || matches!(**layout, Layout::Contiguous | Layout::Offset { .. })
    };
    Ok(schema::Operator {
        summary: spec.summary.to_owned(),
        dims: spec
            .dims
            .iter()
            .map(|dim| schema::Dim {
                name: dim.name.into(),
                meaning: dim.meaning.into(),
                least: dim.min,
            })
            .collect(),
        params: spec.params.iter().map(param).collect(),
        tensors: spec.tensors.iter().map(|t| tensor(spec, t)).collect::<Result<_, _>>()?,
        dtypes: spec.dtypes.iter().map(|dtype| from_dtype(*dtype)).collect(),
        layouts: Layout::CASES.iter().filter(applies).map(Layout::to_string).collect(),
        values: spec.values.iter().map(|class| class.name().to_owned()).collect(),
        finite_from: finite::finite_from(spec)?,
        refusals: refusals(spec)?,
    })
}

fn param(spec: &contract::spec::ParamSpec) -> schema::Param {
    schema::Param {
        name: spec.name.to_owned(),
        kind: match spec.default {
            contract::ParamValue::Float(_) => ParamKind::Float,
            contract::ParamValue::Int(_) => ParamKind::Integer,
            contract::ParamValue::Bool(_) => ParamKind::Boolean,
        },
        default: from_param(spec.default),
        accepted: spec.domain.to_string(),
        domain: domain(spec.domain),
        meaning: spec.meaning.to_owned(),
    }
}

fn domain(domain: contract::spec::Domain) -> schema::Domain {
    use contract::spec::Domain;
    match domain {
        Domain::Above(low) => schema::Domain { above: Some(low), ..schema::Domain::default() },
        Domain::Integers { least, most, most_dim } => schema::Domain {
            above: None,
            least: Some(least as f64),
            most: Some(most as f64),
            most_dim: most_dim.map(str::to_owned),
        },
        Domain::Switch => schema::Domain::default(),
    }
}

fn tensor(
    operator: &'static OperatorSpec,
    spec: &TensorSpec,
) -> Result<schema::Tensor, CheckerError> {
    let mut tolerance = BTreeMap::new();
    if spec.role.is_written() {
        for dtype in operator.dtypes {
            tolerance.insert(from_dtype(*dtype), tolerance_in_words(operator, *dtype, spec)?);
        }
    }
    Ok(schema::Tensor {
        name: spec.name.to_owned(),
        role: from_role(spec.role),
        dtype: match spec.dtype {
            contract::spec::DtypeRule::Activation => None,
            contract::spec::DtypeRule::Fixed(dtype) => Some(from_dtype(dtype)),
        },
        shape: spec.shape.iter().map(ToString::to_string).collect(),
        present_when: spec.present_when.map(str::to_owned),
        reads: spec.reads as f64,
        writes: spec.writes as f64,
        tolerance,
    })
}

fn tolerance_in_words(
    operator: &'static OperatorSpec,
    dtype: contract::Dtype,
    spec: &TensorSpec,
) -> Result<schema::Tolerance, CheckerError> {
    let call = example(operator, dtype, None);
    let tolerance = operator.tolerance(&call, spec.name)?;
    let rule = match tolerance.rule {
        Rule::Within { .. } => {
            let sizes: Vec<_> = operator.dims.iter().skip(1).map(|dim| dim.name).collect();
            format!("{}, at {} = {EXAMPLE_SIZE}", rule_in_words(&tolerance.rule), sizes.join(" = "))
        }
        _ => rule_in_words(&tolerance.rule),
    };
    Ok(schema::Tolerance { rule, reason: tolerance.reason.to_owned() })
}

/// A rule in words.
#[must_use]
pub fn rule_in_words(rule: &Rule) -> String {
    match rule {
        Rule::Bits => "bit for bit".to_owned(),
        Rule::Value => "equal values (±0 alike, any NaN alike)".to_owned(),
        Rule::Within { ulps, abs_floor } if *abs_floor > 0.0 => {
            format!("within {ulps} ulp, or within {abs_floor:e}")
        }
        Rule::Within { ulps, .. } => format!("within {ulps} ulp"),
        Rule::Interval => "inside the interval that device arithmetic can round to".to_owned(),
    }
}

/// A valid call with default parameters, and one switch turned on.
fn example(operator: &'static OperatorSpec, dtype: contract::Dtype, on: Option<&str>) -> Call {
    let size = |name: &str| if name == "rows" { 4 } else { EXAMPLE_SIZE };
    let switch = on.map(|name| (name.to_owned(), contract::ParamValue::Bool(true)));
    Call {
        operator,
        dtype,
        dims: operator.dims.iter().map(|dim| (dim.name.to_owned(), size(dim.name))).collect(),
        params: switch.into_iter().collect(),
    }
}

fn refusals(operator: &'static OperatorSpec) -> Result<Vec<schema::Refusal>, CheckerError> {
    let Some(dtype) = operator.dtypes.first() else { return Ok(Vec::new()) };
    let switches = operator.params.iter().filter_map(|param| match param.default {
        contract::ParamValue::Bool(_) => Some(param.name),
        _ => None,
    });
    let mut listed: Vec<schema::Refusal> = Vec::new();
    for on in std::iter::once(None).chain(switches.map(Some)) {
        let call = example(operator, *dtype, on);
        for refusal in operator.refusals(&call) {
            let known = listed.iter().any(|other| other.name == refusal.name);
            if !known && travels(&call, &refusal) {
                listed.push(schema::Refusal {
                    what: in_words(&refusal.mutation),
                    kind: refusal.kind.name().to_owned(),
                    argument: refusal.argument.to_owned(),
                    device_value: refusal.is_on_device(),
                    name: refusal.name.into_owned(),
                });
            }
        }
    }
    Ok(listed)
}

/// Whether the fault can be said over the protocol: a vector has no row stride there, and a whole number for a real
/// parameter is that real number.
#[must_use]
pub fn travels(call: &Call, refusal: &Refusal) -> bool {
    match &refusal.mutation {
        Mutation::NarrowStride { tensor } => {
            call.operator.tensor(tensor).is_some_and(|spec| spec.shape.len() > 1)
        }
        Mutation::Param { name, value: contract::ParamValue::Int(_) } => {
            let default = call.operator.param(name).map(|param| param.default);
            !matches!(default, Some(contract::ParamValue::Float(_)))
        }
        _ => true,
    }
}

/// The refusal of that name, and the call that it belongs to: the given one, with a switch turned on where only that
/// gives the operator the tensor at fault.
///
/// # Errors
/// [`CheckerError::UnknownRefusal`].
pub fn find_refusal(call: &Call, name: &str) -> Result<(Call, Refusal), CheckerError> {
    let switches = call.operator.params.iter().filter_map(|param| match param.default {
        contract::ParamValue::Bool(_) => Some(param.name),
        _ => None,
    });
    for on in std::iter::once(None).chain(switches.map(Some)) {
        let mut call = call.clone();
        if let Some(on) = on {
            call.params.insert(on.to_owned(), contract::ParamValue::Bool(true));
        }
        let found = call.operator.refusals(&call).into_iter().find(|refusal| refusal.name == name);
        if let Some(refusal) = found.filter(|refusal| travels(&call, refusal)) {
            return Ok((call, refusal));
        }
    }
    let operator = call.operator.name.to_owned();
    Err(CheckerError::UnknownRefusal { operator, name: name.to_owned() })
}

fn in_words(mutation: &Mutation) -> String {
    match mutation {
        Mutation::Dim { name, size } => format!("dimension `{name}` is {size}"),
        Mutation::CallDtype(dtype) => format!("the activation dtype is {dtype}"),
        Mutation::Param { name, value } => {
            format!("parameter `{name}` is {} {value}", value.kind())
        }
        Mutation::ParamAboveDim { name, dim } => format!("parameter `{name}` is `{dim}` plus 1"),
        Mutation::TensorDtype { tensor, dtype } => {
            format!("`{tensor}` is {}", Dtype::as_str(from_dtype(*dtype)))
        }
        Mutation::LongerAxis { tensor } => format!("the last axis of `{tensor}` is one longer"),
        Mutation::NarrowStride { tensor } => format!("the rows of `{tensor}` overlap"),
        Mutation::ShortStorage { tensor } => format!("the memory of `{tensor}` is one byte short"),
        Mutation::Misalign { tensor } => format!("`{tensor}` starts one byte late"),
        Mutation::Null { tensor } => format!("`{tensor}` is a null pointer"),
        Mutation::Alias { tensor, onto } => format!("`{tensor}` lies on `{onto}`"),
        Mutation::Value { tensor, row, column, value } => {
            let value = match value {
                DeviceValue::Int(value) => value.to_string(),
                DeviceValue::Float(value) => value.to_string(),
                DeviceValue::Dim(dim) => format!("the size of `{dim}`"),
            };
            format!("`{tensor}` holds {value} at row {row}, column {column}")
        }
    }
}

fn layout_meaning(layout: Layout) -> String {
    match layout {
        Layout::Contiguous => "no gaps, at an aligned address".to_owned(),
        Layout::RowStrided { pad } => format!("{pad} unused elements behind every row"),
        Layout::Offset { elements } => {
            format!("the first element lies {elements} elements behind an aligned address")
        }
        Layout::Packed { side } => {
            format!("a window of a wider matrix, {side} foreign columns on either side")
        }
    }
}

fn value_meaning(class: ValueClass) -> &'static str {
    match class {
        ValueClass::Normal => "close to a standard normal distribution",
        ValueClass::Uniform => "uniform over [-1, 1)",
        ValueClass::AllEqual => "one value everywhere",
        ValueClass::Cancelling => "neighbors of opposite sign and nearly equal size",
        ValueClass::Huge => "near the largest magnitude that the contract covers",
        ValueClass::Subnormal => "subnormal numbers of the element type",
        ValueClass::SignedZero => "mostly zeros of both signs",
        ValueClass::Infinite => "normal, with infinities of both signs in some rows",
        ValueClass::Nan => "normal, with a NaN in some rows",
        ValueClass::OneHot => "one element per row is 8, the others 0",
        ValueClass::HeavyTies => "only four distinct values",
        ValueClass::MaskedRows => "mostly minus infinity, some rows wholly",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_operator_of_the_contract_is_exported_with_refusals_and_tolerances() {
        let catalog = export().unwrap();
        assert_eq!(catalog.operators.len(), contract::catalog().len());
        for (name, operator) in &catalog.operators {
            assert!(operator.refusals.len() > 10, "{name}");
            for tensor in &operator.tensors {
                let written = tensor.role != schema::Role::In;
                assert_eq!(tensor.tolerance.len(), if written { operator.dtypes.len() } else { 0 });
            }
        }
    }

    #[test]
    fn every_listed_refusal_can_be_found_from_a_call_with_default_parameters() {
        for spec in contract::catalog() {
            let call = example(spec, spec.dtypes[0], None);
            for refusal in refusals(spec).unwrap() {
                let (_, found) = find_refusal(&call, &refusal.name).unwrap();
                assert_eq!(found.kind.name(), refusal.kind);
            }
            assert!(find_refusal(&call, "no-such-refusal").is_err());
        }
    }

    #[test]
    fn the_committed_catalog_is_what_this_contract_exports() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../gates/catalog.json");
        let committed = std::fs::read_to_string(path).unwrap();
        assert!(
            committed == text().unwrap(),
            "gates/catalog.json is stale: write it anew with `proofhouse-worker-oracle --catalog`"
        );
    }
}

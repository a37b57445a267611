//! The checker kills every mutant of every operator, dtype and output.

use std::collections::BTreeSet;

use proofhouse_contract::conformance::mode_of;
use proofhouse_contract::mutants::{Fate, Mutant, Outcome, run_battery};
use proofhouse_contract::{Call, Case, Dtype, OperatorSpec, ParamValue, ValueClass, catalog};

/// Calls of an operator with every switch on, 6 rows and 300 columns.
fn call(spec: &OperatorSpec, dtype: Dtype) -> Call {
    let dims: Vec<_> =
        spec.dims.iter().map(|dim| (dim.name, if dim.name == "rows" { 6 } else { 300 })).collect();
    let params: Vec<_> = spec
        .params
        .iter()
        .map(|param| match param.default {
            ParamValue::Bool(_) => (param.name, ParamValue::Bool(true)),
            other => (param.name, other),
        })
        .collect();
    Call::new(spec.name, dtype, &dims, &params).expect("a catalog name")
}

/// Subnormal logits make every row the uniform distribution to within the tolerance, so a log-probability of
/// another row or of another seed is a right answer.
fn is_alike(case: &Case, outcome: &Outcome) -> bool {
    case.values == ValueClass::Subnormal
        && outcome.tensor.starts_with("logprob")
        && matches!(outcome.mutant, Mutant::OffByOneRow | Mutant::SwappedTile | Mutant::Stale)
}

#[test]
fn no_mutant_survives_in_any_operator_dtype_or_value_class() {
    let mut survivors = Vec::new();
    let mut killed = 0;
    for spec in catalog() {
        for dtype in spec.dtypes {
            for values in spec.values {
                let case = Case { values: *values, seed: 5, ..Case::new(call(spec, *dtype)) };
                for outcome in run_battery(&case, mode_of(&case)).unwrap() {
                    match outcome.fate {
                        Fate::Killed => killed += 1,
                        Fate::Equivalent => {}
                        Fate::Survived if is_alike(&case, &outcome) => {}
                        Fate::Survived => survivors.push(format!("{case}: {outcome:?}")),
                    }
                }
            }
        }
    }
    assert!(survivors.is_empty(), "{} survived: {survivors:#?}", survivors.len());
    assert!(killed > 2000, "{killed}");
}

#[test]
fn every_mutant_is_killed_at_least_once_for_every_output_it_exists_for() {
    for spec in catalog() {
        for dtype in spec.dtypes {
            let (mut killed, mut applied) = (BTreeSet::new(), BTreeSet::new());
            for values in [ValueClass::Normal, ValueClass::Huge, ValueClass::Uniform] {
                let case = Case { values, seed: 5, ..Case::new(call(spec, *dtype)) };
                for outcome in run_battery(&case, mode_of(&case)).unwrap() {
                    applied.insert((outcome.tensor, outcome.mutant));
                    if outcome.fate == Fate::Killed {
                        killed.insert((outcome.tensor, outcome.mutant));
                    }
                }
            }
            for (tensor, mutant) in applied.difference(&killed) {
                let width_one = spec.tensor(tensor).unwrap().shape.len() == 2 && *tensor == "scale";
                let explained = match mutant {
                    // Only outputs that hold infinities can lose them.
                    Mutant::InfinityAsZero => true,
                    // A column of scales has no two tiles.
                    Mutant::SwappedTile => width_one,
                    _ => false,
                };
                assert!(
                    explained,
                    "{} {dtype}: {mutant:?} of `{tensor}` was never killed",
                    spec.name
                );
            }
        }
    }
}

#[test]
fn lost_infinities_are_killed_where_there_are_some() {
    let spec = catalog().iter().find(|spec| spec.name == "min_p").unwrap();
    let case = Case::new(call(spec, Dtype::F32));
    let outcomes = run_battery(&case, mode_of(&case)).unwrap();
    let lost = outcomes.iter().find(|outcome| outcome.mutant == Mutant::InfinityAsZero).unwrap();
    assert_eq!(lost.fate, Fate::Killed);
}

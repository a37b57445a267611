//! The cases that the suites draw from.

use crate::call::{Call, Mode};
use crate::case::Case;
use crate::dtype::Dtype;
use crate::layout::Layout;
use crate::spec::{NanRule, OperatorSpec, ParamValue};
use crate::values::ValueClass;

/// Every combination of an operator's switches, and of 1 and the default for its integers.
fn parameter_choices(spec: &OperatorSpec) -> Vec<Vec<(&'static str, ParamValue)>> {
    let mut choices = vec![Vec::new()];
    for param in spec.params {
        let values = match param.default {
            ParamValue::Bool(_) => vec![ParamValue::Bool(false), ParamValue::Bool(true)],
            ParamValue::Int(default) => vec![ParamValue::Int(1), ParamValue::Int(default)],
            ParamValue::Float(default) => vec![ParamValue::Float(default)],
        };
        choices = choices
            .iter()
            .flat_map(|chosen: &Vec<_>| {
                values.iter().map(|value| {
                    let mut longer = chosen.clone();
                    longer.push((param.name, *value));
                    longer
                })
            })
            .collect();
    }
    choices
}

/// Valid calls of an operator with `rows` rows and every other dimension `size`.
pub(super) fn calls(spec: &'static OperatorSpec, dtype: Dtype, rows: u64, size: u64) -> Vec<Call> {
    let dims: Vec<_> = spec
        .dims
        .iter()
        .map(|dim| (dim.name, if dim.name == "rows" { rows } else { size }))
        .collect();
    parameter_choices(spec)
        .iter()
        .filter_map(|params| Call::new(spec.name, dtype, &dims, params).ok())
        .filter(|call| call.validate().is_ok())
        .collect()
}

/// A compact set of cases of one operator: every value class, every layout and the sizes around tile and vector
/// widths, for every dtype and parameter choice.
#[must_use]
pub fn compact_cases(spec: &'static OperatorSpec) -> Vec<Case> {
    const SIZES: [u64; 12] = [1, 2, 7, 15, 16, 17, 31, 64, 127, 255, 1000, 4097];
    let mut cases = Vec::new();
    for dtype in spec.dtypes {
        for values in spec.values {
            for call in calls(spec, *dtype, 9, 131) {
                cases.push(Case { values: *values, seed: 11, ..Case::new(call) });
            }
        }
        for layout in Layout::CASES {
            for call in calls(spec, *dtype, 3, 48) {
                cases.push(Case { layout, seed: 12, ..Case::new(call) });
            }
        }
        for (seed, size) in (20..).zip(SIZES) {
            for call in calls(spec, *dtype, 1 + size % 3, size) {
                cases.push(Case { seed, ..Case::new(call) });
            }
        }
    }
    cases
}

/// The mode in which a case has a result.
#[must_use]
pub fn mode_of(case: &Case) -> Mode {
    let refused =
        case.values == ValueClass::Nan && case.call.operator.nan == NanRule::RefusedWhenChecked;
    if refused { Mode::Unchecked } else { Mode::Checked }
}

/// A few cases per operator for the suites that need no value classes.
pub(super) fn few_cases(spec: &'static OperatorSpec) -> Vec<Case> {
    let dtypes = spec.dtypes.iter();
    dtypes
        .flat_map(|dtype| calls(spec, *dtype, 6, 301))
        .map(|call| Case { seed: 31, ..Case::new(call) })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn compact_cases_cover_every_class_layout_dtype_and_switch() {
        for spec in crate::catalog() {
            let cases = compact_cases(spec);
            for dtype in spec.dtypes {
                for values in spec.values {
                    assert!(cases.iter().any(|c| c.values == *values && c.call.dtype == *dtype));
                }
                for layout in Layout::CASES {
                    assert!(cases.iter().any(|c| c.layout == layout && c.call.dtype == *dtype));
                }
            }
            for case in cases {
                assert!(case.validate().is_ok(), "{case}");
            }
        }
    }
}

//! Value classes that can leave an output of the oracle without any finite element, so that nothing could be measured.

use std::collections::BTreeMap;

use proofhouse_contract::spec::Domain;
use proofhouse_contract::{
    Call, Case, CaseTensors, Mode, OperatorSpec, OwnedTensor, ParamValue, ValueClass,
    expected_outputs,
};

use crate::error::CheckerError;

/// The classes that put a NaN or an infinity into rows. Masked rows are not among them: where they leave something finite
/// is up to the seed.
const SPOILING: [ValueClass; 2] = [ValueClass::Infinite, ValueClass::Nan];
/// Seeds that are tried: the sign of an infinity and its column follow from them.
const SEEDS: u64 = 16;
/// Extents that are tried. Row 1 of a spoiled class is never spoiled, and only one element of a row is.
const LARGEST: u64 = 4;

/// For each class that can leave an output without a finite element: the extents of which one is enough against it.
///
/// # Errors
/// [`CheckerError::Contract`] when the contract contradicts itself.
pub(crate) fn finite_from(
    spec: &'static OperatorSpec,
) -> Result<BTreeMap<String, BTreeMap<String, u64>>, CheckerError> {
    let mut listed = BTreeMap::new();
    for class in SPOILING.into_iter().filter(|class| spec.values.contains(class)) {
        if always_finite(spec, class, None)? {
            continue;
        }
        let mut enough = BTreeMap::new();
        for dim in spec.dims {
            for extent in 2..=LARGEST {
                if always_finite(spec, class, Some((dim.name, extent)))? {
                    enough.insert(dim.name.to_owned(), extent);
                    break;
                }
            }
        }
        listed.insert(class.name().to_owned(), enough);
    }
    Ok(listed)
}

/// Whether every output has a finite element, in every dtype and for every seed, where all extents but one are 1.
fn always_finite(
    spec: &'static OperatorSpec,
    class: ValueClass,
    longer: Option<(&str, u64)>,
) -> Result<bool, CheckerError> {
    for dtype in spec.dtypes {
        let size =
            |name: &str| longer.filter(|(dim, _)| *dim == name).map_or(1, |(_, extent)| extent);
        let least = spec.params.iter().filter_map(|param| match param.domain {
            Domain::Integers { least, .. } => Some((param.name.to_owned(), ParamValue::Int(least))),
            Domain::Above(_) | Domain::Switch => None,
        });
        let call = Call {
            operator: spec,
            dtype: *dtype,
            dims: spec.dims.iter().map(|dim| (dim.name.to_owned(), size(dim.name))).collect(),
            params: least.collect(),
        };
        for seed in 0..SEEDS {
            let case = Case { values: class, seed, ..Case::new(call.clone()) };
            let tensors = CaseTensors::generate(&case, 0, 0)?;
            let (inputs, initial) = (tensors.views(&call, false), tensors.views(&call, true));
            let outputs = expected_outputs(&call, Mode::Unchecked, &inputs, &initial)?;
            if !outputs.iter().all(has_finite) {
                return Ok(false);
            }
        }
    }
    Ok(true)
}

fn has_finite(tensor: &OwnedTensor) -> bool {
    let view = tensor.view();
    (0..tensor.layout.rows())
        .any(|row| (0..tensor.layout.width()).any(|column| view.value(row, column).is_finite()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(operator: &str) -> BTreeMap<String, BTreeMap<String, u64>> {
        finite_from(proofhouse_contract::find_operator(operator).unwrap()).unwrap()
    }

    fn extents(pairs: &[(&str, u64)]) -> BTreeMap<String, u64> {
        pairs.iter().map(|(name, extent)| ((*name).to_owned(), *extent)).collect()
    }

    #[test]
    fn a_nan_takes_a_whole_row_of_a_norm_and_one_element_of_an_activation() {
        assert_eq!(of("rms_norm")["nan"], extents(&[("rows", 2)]));
        assert_eq!(of("silu_and_mul")["nan"], extents(&[("rows", 2), ("width", 2)]));
    }

    #[test]
    fn an_infinite_logit_leaves_a_single_row_without_a_distribution() {
        assert_eq!(of("greedy_logprob")["inf"], extents(&[("rows", 2)]));
        assert_eq!(of("greedy_logprob")["nan"], extents(&[("rows", 2), ("vocab", 2)]));
    }
}

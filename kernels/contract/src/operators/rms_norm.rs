//! `rms_norm`: root-mean-square normalization with a gain.

use crate::error::ContractError;
use crate::operands::Operands;
use crate::operators::norm::{self, ROWS_BY_HIDDEN};
use crate::spec::{
    Determinism, DtypeRule, HugeLimit, NanRule, OperatorSpec, ROWS, Source, TensorSpec,
};

pub(super) const SPEC: OperatorSpec = OperatorSpec {
    name: "rms_norm",
    summary: "y = x / sqrt(mean(x²) + eps) * w over the last axis; one rounding, at the store.",
    dims: &[ROWS, norm::HIDDEN],
    params: &[norm::EPS],
    tensors: &[
        TensorSpec::input("x", "activations", DtypeRule::Activation, ROWS_BY_HIDDEN, ACTIVATIONS),
        norm::GAIN,
        TensorSpec::output("y", "normalized activations", DtypeRule::Activation, ROWS_BY_HIDDEN),
    ],
    dtypes: norm::DTYPES,
    values: norm::VALUES,
    nan: NanRule::Propagates,
    determinism: Determinism::FULL,
    own_refusals: &[norm::EPS_REFUSALS],
    oracle,
    tolerance: |call, _| norm::normalized_tolerance(call),
    judge: Some(|judging| Ok(vec![norm::judge_normalized(judging, "y", judging.input("x")?)?])),
};

const ACTIVATIONS: Source = Source::Values(HugeLimit::SquareSum);

fn oracle(operands: &mut Operands<'_, '_>) -> Result<(), ContractError> {
    let eps = operands.call.float("eps")?;
    let (x, w) = (operands.input("x")?, operands.input("w")?);
    let y = operands.output("y")?;
    let (mut gains, mut row) = (Vec::new(), Vec::new());
    w.read_row(0, &mut gains);
    for index in 0..x.layout.rows() {
        x.read_row(index, &mut row);
        let inverse = norm::inverse_root_mean_square(&row, eps);
        for (value, gain) in row.iter_mut().zip(&gains) {
            *value = *value * inverse * gain;
        }
        y.write_row(index, &row);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::testing::{floats, run};
    use crate::{Dtype, ParamValue};

    #[test]
    fn a_hand_computed_row_comes_out() {
        // mean square of (3, 4) is 12.5; 12.5 + 3.5 = 16, so the row is divided by 4.
        let (_, outputs) = run(
            "rms_norm",
            Dtype::F32,
            &[("rows", 1), ("hidden", 2)],
            &[("eps", ParamValue::Float(3.5))],
            &[("x", &[3.0, 4.0]), ("w", &[1.0, -2.0])],
        );
        assert_eq!(floats(&outputs, "y"), [0.75, -2.0]);
    }

    #[test]
    fn one_infinity_silences_its_row_and_becomes_nan_itself() {
        let (_, outputs) = run(
            "rms_norm",
            Dtype::F16,
            &[("rows", 2), ("hidden", 2)],
            &[],
            &[("x", &[f64::INFINITY, 1.0, f64::NAN, 1.0]), ("w", &[1.0, 1.0])],
        );
        let y = floats(&outputs, "y");
        assert!(y[0].is_nan() && y[1] == 0.0 && y[2].is_nan() && y[3].is_nan());
    }
}

//! `add_rms_norm`: residual addition and normalization, both in place.

use crate::error::ContractError;
use crate::operands::Operands;
use crate::operators::norm::{self, ROWS_BY_HIDDEN};
use crate::spec::{
    Determinism, DtypeRule, HugeLimit, NanRule, OperatorSpec, ROWS, Source, TensorSpec,
};

pub(super) const SPEC: OperatorSpec = OperatorSpec {
    name: "add_rms_norm",
    summary: "In place, twice: residual = round(x + residual); then, with statistics from the rounded residual, \
              x = round(residual / sqrt(mean(residual²) + eps) * w).",
    dims: &[ROWS, norm::HIDDEN],
    params: &[norm::EPS],
    tensors: &[
        TensorSpec::in_out(
            "x",
            "activations, replaced by the normalized sum",
            DtypeRule::Activation,
            ROWS_BY_HIDDEN,
            Source::Values(HugeLimit::HalvedSquareSum),
        ),
        TensorSpec::in_out(
            "residual",
            "residual stream, replaced by the rounded sum",
            DtypeRule::Activation,
            ROWS_BY_HIDDEN,
            Source::Counterpart("x", HugeLimit::HalvedSquareSum),
        ),
        norm::GAIN,
    ],
    dtypes: norm::DTYPES,
    values: norm::VALUES,
    nan: NanRule::Propagates,
    determinism: Determinism::FULL,
    own_refusals: &[norm::EPS_REFUSALS],
    oracle,
    tolerance: |call, tensor| {
        if tensor.name == "residual" {
            norm::RESIDUAL_TOLERANCE
        } else {
            norm::normalized_tolerance(call)
        }
    },
    judge: Some(|judging| {
        let sum = judging.expected("residual")?.view();
        Ok(vec![norm::judge_normalized(judging, "x", &sum)?, judging.compare_by_rule("residual")?])
    }),
};

fn oracle(operands: &mut Operands<'_, '_>) -> Result<(), ContractError> {
    let (dtype, eps) = (operands.call.dtype, operands.call.float("eps")?);
    let w = operands.input("w")?;
    let (x, residual) = (operands.output("x")?, operands.output("residual")?);
    let (mut gains, mut row, mut addend) = (Vec::new(), Vec::new(), Vec::new());
    w.read_row(0, &mut gains);
    for index in 0..x.layout.rows() {
        x.view().read_row(index, &mut row);
        residual.view().read_row(index, &mut addend);
        norm::add_residual(dtype, &mut row, &addend);
        residual.write_row(index, &row);
        let inverse = norm::inverse_root_mean_square(&row, eps);
        for (value, gain) in row.iter_mut().zip(&gains) {
            *value = *value * inverse * gain;
        }
        x.write_row(index, &row);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::testing::{floats, run};
    use crate::{Dtype, ParamValue};

    #[test]
    fn a_hand_computed_row_comes_out_in_both_tensors() {
        // sums (6, 8): mean square 50; 50 + 14 = 64, so the sums are divided by 8.
        let (_, outputs) = run(
            "add_rms_norm",
            Dtype::F32,
            &[("rows", 1), ("hidden", 2)],
            &[("eps", ParamValue::Float(14.0))],
            &[("x", &[1.0, 5.0]), ("residual", &[5.0, 3.0]), ("w", &[2.0, 1.0])],
        );
        assert_eq!(floats(&outputs, "residual"), [6.0, 8.0]);
        assert_eq!(floats(&outputs, "x"), [1.5, 1.0]);
    }

    #[test]
    fn statistics_come_from_the_rounded_sum() {
        // 256 + 1 is a tie in BF16 and rounds to 256; an unrounded sum would normalize 257.
        let (_, outputs) = run(
            "add_rms_norm",
            Dtype::BF16,
            &[("rows", 1), ("hidden", 1)],
            &[("eps", ParamValue::Float(65536.0 * 3.0))],
            &[("x", &[256.0]), ("residual", &[1.0]), ("w", &[1.0])],
        );
        assert_eq!(floats(&outputs, "residual"), [256.0]);
        assert_eq!(floats(&outputs, "x"), [0.5]);
    }
}

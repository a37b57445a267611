//! `min_p`: masks tokens that are improbable next to the best one.

use std::borrow::Cow;

use crate::call::{Call, Mode};
use crate::compare::{Comparison, Judging, Rule, Tolerance};
use crate::dtype::Dtype;
use crate::error::{ContractError, ErrorKind};
use crate::operands::Operands;
use crate::operators::logits::{self, Distribution};
use crate::refusal::{DeviceValue, Mutation, Refusal};
use crate::rounding::encode;
use crate::spec::{Determinism, DtypeRule, NanRule, OperatorSpec, ROWS, Source, TensorSpec};

pub(super) const SPEC: OperatorSpec = OperatorSpec {
    name: "min_p",
    summary: "In place: logits below max + ln(p) become minus infinity, the others keep their bits. A row with \
              p = 0 is neither read nor written. Unchecked, a row with a bad p is left alone and a NaN is kept.",
    dims: &[ROWS, logits::VOCAB],
    params: &[],
    tensors: &[
        TensorSpec::in_out(
            "logits",
            "logits of each row; minus infinity masks a token",
            DtypeRule::Activation,
            logits::ROWS_BY_VOCAB,
            Source::Logits,
        ),
        TensorSpec::input(
            "p",
            "least probability of a kept token relative to the best one, in [0, 1]",
            DtypeRule::Fixed(Dtype::F32),
            logits::PER_ROW,
            Source::Probabilities,
        ),
    ],
    dtypes: logits::DTYPES,
    values: logits::VALUES,
    nan: NanRule::RefusedWhenChecked,
    determinism: Determinism::FULL,
    own_refusals: &[logits::NAN_LOGIT, REFUSALS],
    oracle,
    tolerance: |_, _| Tolerance {
        rule: Rule::Interval,
        reason: "kept logits keep their bits and masked ones are minus infinity; only a logit within 2^-22 of \
                 the threshold, relative to 1 + |max| + |ln p|, may be either, because the threshold is an F32 \
                 sum with a logarithm. With p = 1 the threshold is the maximum itself and nothing is left open",
    },
    judge: Some(judge),
};

const REFUSALS: &[Refusal] = &[
    bad_p(Cow::Borrowed("p-negative"), -0.25, ErrorKind::OutOfRange),
    bad_p(Cow::Borrowed("p-above-one"), 1.5, ErrorKind::OutOfRange),
    bad_p(Cow::Borrowed("p-nan"), f64::NAN, ErrorKind::NotFinite),
];

const fn bad_p(name: Cow<'static, str>, value: f64, kind: ErrorKind) -> Refusal {
    Refusal {
        name,
        mutation: Mutation::Value {
            tensor: "p",
            row: 0,
            column: 1,
            value: DeviceValue::Float(value),
        },
        kind,
        argument: "p",
    }
}

/// A usable probability; `None` for a row that stays as it is.
fn check_p(call: &Call, mode: Mode, index: u64, p: f64) -> Result<Option<f64>, ContractError> {
    let kind = if p.is_nan() {
        ErrorKind::NotFinite
    } else if (0.0..=1.0).contains(&p) {
        return Ok(Some(p).filter(|p| *p > 0.0));
    } else {
        ErrorKind::OutOfRange
    };
    if mode == Mode::Unchecked {
        return Ok(None);
    }
    Err(ContractError::new(call.operator.name, "p", kind).at_row(index).found(p).accepted("0 to 1"))
}

fn oracle(operands: &mut Operands<'_, '_>) -> Result<(), ContractError> {
    let probabilities = operands.input("p")?;
    let logits = operands.output("logits")?;
    let masked = encode(operands.call.dtype, f64::NEG_INFINITY);
    let mut row = Vec::new();
    for index in 0..logits.layout.rows() {
        let p = probabilities.value(0, index);
        let Some(p) = check_p(operands.call, operands.mode, index, p)? else {
            continue;
        };
        logits.view().read_row(index, &mut row);
        logits::check_row(operands.call, operands.mode, index, &row)?;
        let threshold = Distribution::of(&row).max + p.ln();
        for (column, value) in row.iter().enumerate() {
            if *value < threshold {
                logits.set_bits(index, column as u64, masked);
            }
        }
    }
    Ok(())
}

/// Half the width of the band in which a logit may be kept or masked.
fn slack(max: f64, p: f64) -> f64 {
    if p == 1.0 { 0.0 } else { 2f64.powi(-22) * (1.0 + max.abs() + p.ln().abs()) }
}

fn judge(judging: &Judging<'_>) -> Result<Vec<Comparison>, ContractError> {
    let (before, after) = (judging.initial("logits")?, judging.candidate("logits")?);
    let probabilities = judging.input("p")?;
    let masked = encode(judging.call.dtype, f64::NEG_INFINITY);
    // Where both answers are right, the candidate's is the expected one.
    let mut expected = judging.expected("logits")?.clone();
    let mut row = Vec::new();
    for index in 0..before.layout.rows() {
        let Some(p) = check_p(judging.call, Mode::Unchecked, index, probabilities.value(0, index))?
        else {
            continue;
        };
        before.read_row(index, &mut row);
        let max = Distribution::of(&row).max;
        let (threshold, slack) = (max + p.ln(), slack(max, p));
        for (column, value) in row.iter().enumerate() {
            if (value - threshold).abs() < slack {
                let (column, got) = (column as u64, after.bits(index, column as u64));
                if got == masked || got == before.bits(index, column) {
                    expected.view_mut().set_bits(index, column, got);
                }
            }
        }
    }
    let adjusted = Judging { expected: std::slice::from_ref(&expected), ..*judging };
    Ok(vec![adjusted.compare_bits("logits")?])
}

#[cfg(test)]
mod tests {
    use crate::testing::{floats, run, try_run};
    use crate::{Agreement, Dtype, ErrorKind, Mode, check};

    const MASKED: f64 = f64::NEG_INFINITY;

    #[test]
    fn zero_leaves_a_row_and_one_keeps_only_the_best() {
        // ln(0.25) = -1.386: 1 lies below 3 - 1.386, 2 above.
        let (_, outputs) = run(
            "min_p",
            Dtype::F16,
            &[("rows", 3), ("vocab", 3)],
            &[],
            &[("logits", &[1.0, 2.0, 3.0, 1.0, 2.0, 3.0, 3.0, 2.0, 1.0]), ("p", &[0.0, 1.0, 0.25])],
        );
        assert_eq!(
            floats(&outputs, "logits"),
            [1.0, 2.0, 3.0, MASKED, MASKED, 3.0, 3.0, 2.0, MASKED]
        );
    }

    #[test]
    fn a_bad_probability_is_an_error_when_checked_and_leaves_the_row_when_not() {
        let arguments = |mode| {
            try_run(
                "min_p",
                Dtype::F32,
                &[("rows", 2), ("vocab", 2)],
                &[],
                &[("logits", &[1.0, 9.0, 1.0, 9.0]), ("p", &[0.5, 1.25])],
                mode,
            )
        };
        let error = arguments(Mode::Checked).unwrap_err();
        assert_eq!((error.kind, error.row), (ErrorKind::OutOfRange, Some(1)));
        let (_, outputs) = arguments(Mode::Unchecked).unwrap();
        assert_eq!(floats(&outputs, "logits"), [MASKED, 9.0, 1.0, 9.0]);
    }

    /// Judges one row of F32 logits (0 and `logit`) under `p`, with the candidate's second logit given.
    fn judged(logit: f32, p: f32, candidate: f32) -> Agreement {
        use crate::{Call, TensorLayout, TensorView};
        let call = Call::new("min_p", Dtype::F32, &[("rows", 1), ("vocab", 2)], &[]).unwrap();
        let bytes = |second: f32| [0f32.to_le_bytes(), second.to_le_bytes()].concat();
        let layout = TensorLayout::contiguous(Dtype::F32, &[1, 2]);
        let (before, after) = (bytes(logit), bytes(candidate));
        let probability = p.to_le_bytes();
        let inputs = [TensorView::new(TensorLayout::contiguous(Dtype::F32, &[1]), &probability)];
        let initial = [TensorView::new(layout.clone(), &before)];
        let outputs = [TensorView::new(layout, &after)];
        check(&call, Mode::Checked, &inputs, &initial, &outputs).unwrap()[0].agreement()
    }

    #[test]
    fn only_a_logit_at_the_threshold_may_be_kept_or_masked() {
        let at = 0.25f32.ln();
        for candidate in [at, f32::NEG_INFINITY] {
            assert_eq!(judged(at, 0.25, candidate), Agreement::Agree);
        }
        assert_eq!(judged(at, 0.25, at.next_up()), Agreement::Differ);
        assert_eq!(judged(at + 0.001, 0.25, f32::NEG_INFINITY), Agreement::Differ);
        assert_eq!(judged(at - 0.001, 0.25, at - 0.001), Agreement::Differ);
        assert_eq!(judged(-1e-30, 1.0, -1e-30), Agreement::Differ);
        assert_eq!(judged(-1e-30, 1.0, f32::NEG_INFINITY), Agreement::Agree);
    }
}

//! `selected_logprob_rank`: log-probability and rank of a given token in each row.

use crate::dtype::Dtype;
use crate::error::ContractError;
use crate::operands::Operands;
use crate::operators::logits::{self, Distribution};
use crate::spec::{Determinism, DtypeRule, NanRule, OperatorSpec, ROWS, TensorSpec};

pub(super) const SPEC: OperatorSpec = OperatorSpec {
    name: "selected_logprob_rank",
    summary: "logprob = logits[selected] - max - ln(sum exp(logits - max)), rank = number of logits not below \
              logits[selected]. Unchecked, a token out of range gets logprob NaN and rank -1.",
    dims: &[ROWS, logits::VOCAB],
    params: &[],
    tensors: &[
        logits::LOGITS,
        logits::SELECTED,
        TensorSpec::output(
            "logprob",
            "log-probability of the given token",
            DtypeRule::Fixed(Dtype::F32),
            logits::PER_ROW,
        ),
        logits::RANK,
    ],
    dtypes: logits::DTYPES,
    values: logits::VALUES,
    nan: NanRule::RefusedWhenChecked,
    determinism: Determinism::FULL,
    own_refusals: &[logits::NAN_LOGIT, logits::BAD_TOKENS],
    oracle,
    tolerance: logits::tolerance,
    judge: None,
};

fn oracle(operands: &mut Operands<'_, '_>) -> Result<(), ContractError> {
    let (call, mode) = (operands.call, operands.mode);
    let (input, selected) = (operands.input("logits")?, operands.input("selected")?);
    let (logprobs, ranks) = (operands.output("logprob")?, operands.output("rank")?);
    let (mut tokens, mut row) = (Vec::new(), Vec::new());
    let (mut logprob, mut rank) = (Vec::new(), Vec::new());
    selected.read_integers(0, &mut tokens);
    for (index, token) in (0..input.layout.rows()).zip(&tokens) {
        let place = logits::check_token(call, mode, index, *token)?;
        input.read_row(index, &mut row);
        logits::check_row(call, mode, index, &row)?;
        match place {
            Some(place) => {
                logprob.push(Distribution::of(&row).log_probability(row[place]));
                rank.push(logits::rank(&row, row[place]));
            }
            None => {
                logprob.push(f64::NAN);
                rank.push(-1);
            }
        }
    }
    logprobs.write_row(0, &logprob);
    ranks.write_integers(0, &rank);
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::testing::{floats, run, try_run};
    use crate::{Dtype, ErrorKind, Mode};

    #[test]
    fn a_masked_token_has_no_probability_and_the_last_rank() {
        let masked = f64::NEG_INFINITY;
        let (_, outputs) = run(
            "selected_logprob_rank",
            Dtype::F32,
            &[("rows", 2), ("vocab", 3)],
            &[],
            &[("logits", &[masked, 2.0, 2.0, 0.0, 0.0, masked]), ("selected", &[0.0, 1.0])],
        );
        assert_eq!(floats(&outputs, "rank"), [3.0, 2.0]);
        assert_eq!(floats(&outputs, "logprob"), [masked, f64::from(0.5f64.ln() as f32)]);
    }

    #[test]
    fn a_bad_token_is_an_error_when_checked_and_marked_when_not() {
        let arguments = |mode| {
            try_run(
                "selected_logprob_rank",
                Dtype::F16,
                &[("rows", 2), ("vocab", 2)],
                &[],
                &[("logits", &[1.0, 1.0, 1.0, 1.0]), ("selected", &[1.0, 2.0])],
                mode,
            )
        };
        let error = arguments(Mode::Checked).unwrap_err();
        assert_eq!((error.kind, error.row), (ErrorKind::OutOfRange, Some(1)));
        assert_eq!(error.accepted, "0 to 1");
        let (_, outputs) = arguments(Mode::Unchecked).unwrap();
        assert_eq!(floats(&outputs, "rank"), [2.0, -1.0]);
        assert!(floats(&outputs, "logprob")[1].is_nan());
    }
}

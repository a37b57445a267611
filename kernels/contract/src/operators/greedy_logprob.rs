//! `greedy_logprob`: the best token of each row, its log-probability and its rank.

use crate::dtype::Dtype;
use crate::error::ContractError;
use crate::operands::Operands;
use crate::operators::logits::{self, Distribution};
use crate::spec::{Determinism, DtypeRule, NanRule, OperatorSpec, ROWS, TensorSpec};

pub(super) const SPEC: OperatorSpec = OperatorSpec {
    name: "greedy_logprob",
    summary: "token = first place of the row's maximum, logprob = -ln(sum exp(logits - max)), rank = number of \
              logits not below the maximum. Without a finite maximum the token is still in range and the \
              log-probability is NaN.",
    dims: &[ROWS, logits::VOCAB],
    params: &[],
    tensors: &[
        logits::LOGITS,
        TensorSpec::output(
            "token",
            "place of the largest logit, the lowest of ties",
            DtypeRule::Fixed(Dtype::I64),
            logits::PER_ROW,
        ),
        TensorSpec::output(
            "logprob",
            "log-probability of the token",
            DtypeRule::Fixed(Dtype::F32),
            logits::PER_ROW,
        ),
        logits::RANK,
    ],
    dtypes: logits::DTYPES,
    values: logits::VALUES,
    nan: NanRule::RefusedWhenChecked,
    determinism: Determinism::FULL,
    own_refusals: &[logits::NAN_LOGIT],
    oracle,
    tolerance: logits::tolerance,
    judge: None,
};

fn oracle(operands: &mut Operands<'_, '_>) -> Result<(), ContractError> {
    let input = operands.input("logits")?;
    let (tokens, logprobs, ranks) =
        (operands.output("token")?, operands.output("logprob")?, operands.output("rank")?);
    let (mut row, mut token, mut logprob, mut rank) =
        (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for index in 0..input.layout.rows() {
        input.read_row(index, &mut row);
        logits::check_row(operands.call, operands.mode, index, &row)?;
        let distribution = Distribution::of(&row);
        let logit = row[distribution.best];
        token.push(distribution.best as i64);
        logprob.push(distribution.log_probability(logit));
        rank.push(logits::rank(&row, logit));
    }
    tokens.write_integers(0, &token);
    logprobs.write_row(0, &logprob);
    ranks.write_integers(0, &rank);
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::testing::{floats, run, try_run};
    use crate::{Dtype, ErrorKind, Mode};

    #[test]
    fn ties_go_to_the_lowest_index_and_count_in_the_rank() {
        let (_, outputs) = run(
            "greedy_logprob",
            Dtype::BF16,
            &[("rows", 2), ("vocab", 4)],
            &[],
            &[("logits", &[1.0, 5.0, 5.0, -2.0, 0.0, 0.0, 0.0, 0.0])],
        );
        assert_eq!(floats(&outputs, "token"), [1.0, 0.0]);
        assert_eq!(floats(&outputs, "rank"), [2.0, 4.0]);
        assert_eq!(floats(&outputs, "logprob")[1], f64::from((0.25f64.ln()) as f32));
    }

    #[test]
    fn rows_without_a_finite_maximum_get_a_token_in_range_and_no_probability() {
        let infinite = f64::INFINITY;
        let (_, outputs) = run(
            "greedy_logprob",
            Dtype::F16,
            &[("rows", 2), ("vocab", 2)],
            &[],
            &[("logits", &[-infinite, -infinite, 0.0, infinite])],
        );
        assert_eq!(floats(&outputs, "token"), [0.0, 1.0]);
        assert_eq!(floats(&outputs, "rank"), [2.0, 1.0]);
        assert!(floats(&outputs, "logprob").iter().all(|value| value.is_nan()));
    }

    #[test]
    fn a_nan_is_an_error_when_checked_and_never_wins_when_not() {
        let arguments = |mode| {
            try_run(
                "greedy_logprob",
                Dtype::F32,
                &[("rows", 2), ("vocab", 3)],
                &[],
                &[("logits", &[0.0, 1.0, 2.0, f64::NAN, 3.0, 3.0])],
                mode,
            )
        };
        let error = arguments(Mode::Checked).unwrap_err();
        assert_eq!((error.kind, error.row), (ErrorKind::NotFinite, Some(1)));
        let (_, outputs) = arguments(Mode::Unchecked).unwrap();
        assert_eq!(floats(&outputs, "token"), [2.0, 1.0]);
        assert_eq!(floats(&outputs, "rank"), [1.0, 2.0]);
        assert_eq!(floats(&outputs, "logprob")[1], f64::from(0.5f64.ln() as f32));
    }
}

//! `topk_logprobs`: a given token and the k best of each row, with their log-probabilities.

use std::borrow::Cow;
use std::cmp::Ordering;

use crate::dtype::Dtype;
use crate::error::{ContractError, ErrorKind};
use crate::operands::Operands;
use crate::operators::logits::{self, Distribution};
use crate::refusal::{Mutation, Refusal};
use crate::spec::{
    Determinism, Domain, DtypeRule, Extent, NanRule, OperatorSpec, ParamSpec, ParamValue, ROWS,
    TensorSpec,
};

/// Shape of the lists: the given token in front, then k.
const LISTS: &[Extent] = &[Extent::Dim("rows"), Extent::ParamPlusOne("k")];

pub(super) const SPEC: OperatorSpec = OperatorSpec {
    name: "topk_logprobs",
    summary: "Column 0 is the given token; columns 1 to k are the k largest logits, value descending, id \
              ascending on ties, NaN last. logprobs are theirs; rank is the given token's, the number of logits \
              not below it. Unchecked, a token out of range gets id -1, logprob NaN and rank -1.",
    dims: &[ROWS, logits::VOCAB],
    params: &[ParamSpec {
        name: "k",
        meaning: "how many of the best tokens are listed",
        default: ParamValue::Int(8),
        domain: Domain::Integers { least: 1, most: 128, most_dim: Some("vocab") },
    }],
    tensors: &[
        logits::LOGITS,
        logits::SELECTED,
        TensorSpec::output("ids", "tokens", DtypeRule::Fixed(Dtype::I64), LISTS),
        TensorSpec::output("logprobs", "log-probabilities", DtypeRule::Fixed(Dtype::F32), LISTS),
        logits::RANK,
    ],
    dtypes: logits::DTYPES,
    values: logits::VALUES,
    nan: NanRule::RefusedWhenChecked,
    determinism: Determinism::FULL,
    own_refusals: &[logits::NAN_LOGIT, logits::BAD_TOKENS, REFUSALS],
    oracle,
    tolerance: logits::tolerance,
    judge: None,
};

const REFUSALS: &[Refusal] = &[
    bad_k(Cow::Borrowed("k-zero"), ParamValue::Int(0), ErrorKind::OutOfRange),
    bad_k(Cow::Borrowed("k-negative"), ParamValue::Int(-1), ErrorKind::OutOfRange),
    bad_k(Cow::Borrowed("k-above-128"), ParamValue::Int(129), ErrorKind::OutOfRange),
    bad_k(Cow::Borrowed("k-real"), ParamValue::Float(4.0), ErrorKind::DtypeMismatch),
    Refusal {
        name: Cow::Borrowed("k-above-vocab"),
        mutation: Mutation::ParamAboveDim { name: "k", dim: "vocab" },
        kind: ErrorKind::OutOfRange,
        argument: "k",
    },
];

const fn bad_k(name: Cow<'static, str>, value: ParamValue, kind: ErrorKind) -> Refusal {
    Refusal { name, mutation: Mutation::Param { name: "k", value }, kind, argument: "k" }
}

/// Value descending, NaN last, then index ascending: a total order.
fn by_rank(row: &[f64], left: usize, right: usize) -> Ordering {
    let key = |place: usize| (row[place].is_nan(), row[place]);
    let ((left_nan, left_value), (right_nan, right_value)) = (key(left), key(right));
    left_nan
        .cmp(&right_nan)
        .then(right_value.partial_cmp(&left_value).unwrap_or(Ordering::Equal))
        .then(left.cmp(&right))
}

/// The k best places of a row, best first.
fn best_places(row: &[f64], k: usize) -> Vec<usize> {
    let mut places: Vec<usize> = (0..row.len()).collect();
    if k < places.len() {
        places.select_nth_unstable_by(k - 1, |left, right| by_rank(row, *left, *right));
        places.truncate(k);
    }
    places.sort_unstable_by(|left, right| by_rank(row, *left, *right));
    places
}

fn oracle(operands: &mut Operands<'_, '_>) -> Result<(), ContractError> {
    let (call, mode) = (operands.call, operands.mode);
    let k = call.int("k")? as usize;
    let (input, selected) = (operands.input("logits")?, operands.input("selected")?);
    let (ids, logprobs, ranks) =
        (operands.output("ids")?, operands.output("logprobs")?, operands.output("rank")?);
    let (mut tokens, mut row, mut rank) = (Vec::new(), Vec::new(), Vec::new());
    selected.read_integers(0, &mut tokens);
    for (index, token) in (0..input.layout.rows()).zip(&tokens) {
        let place = logits::check_token(call, mode, index, *token)?;
        input.read_row(index, &mut row);
        logits::check_row(call, mode, index, &row)?;
        let distribution = Distribution::of(&row);
        let mut listed = vec![-1];
        let mut listed_logprobs = vec![f64::NAN];
        if let Some(place) = place {
            listed[0] = *token;
            listed_logprobs[0] = distribution.log_probability(row[place]);
        }
        for place in best_places(&row, k) {
            listed.push(place as i64);
            listed_logprobs.push(distribution.log_probability(row[place]));
        }
        rank.push(place.map_or(-1, |place| logits::rank(&row, row[place])));
        ids.write_integers(index, &listed);
        logprobs.write_row(index, &listed_logprobs);
    }
    ranks.write_integers(0, &rank);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::{best_places, by_rank};
    use crate::testing::{floats, run, try_run};
    use crate::{Dtype, ErrorKind, Mode, ParamValue};

    #[test]
    fn the_given_token_comes_first_and_ties_are_by_id() {
        let (_, outputs) = run(
            "topk_logprobs",
            Dtype::F32,
            &[("rows", 1), ("vocab", 4)],
            &[("k", ParamValue::Int(3))],
            &[("logits", &[0.0, 1.0, 1.0, 0.0]), ("selected", &[3.0])],
        );
        assert_eq!(floats(&outputs, "ids"), [3.0, 1.0, 2.0, 0.0]);
        assert_eq!(floats(&outputs, "rank"), [4.0]);
        let sum = 2.0 + 2.0 * (-1f64).exp();
        let (low, high) = ((-1.0 - sum.ln()) as f32, (-sum.ln()) as f32);
        assert_eq!(floats(&outputs, "logprobs"), [low, high, high, low].map(f64::from));
    }

    #[test]
    fn a_bad_token_is_marked_and_the_list_is_still_there_when_unchecked() {
        let (_, outputs) = try_run(
            "topk_logprobs",
            Dtype::F16,
            &[("rows", 1), ("vocab", 2)],
            &[("k", ParamValue::Int(2))],
            &[("logits", &[f64::NAN, f64::NEG_INFINITY]), ("selected", &[-5.0])],
            Mode::Unchecked,
        )
        .unwrap();
        assert_eq!(floats(&outputs, "ids"), [-1.0, 1.0, 0.0]);
        assert_eq!(floats(&outputs, "rank"), [-1.0]);
        assert!(floats(&outputs, "logprobs").iter().all(|value| value.is_nan()));
    }

    #[test]
    fn k_above_the_vocabulary_is_refused() {
        let error = try_run(
            "topk_logprobs",
            Dtype::F16,
            &[("rows", 1), ("vocab", 2)],
            &[("k", ParamValue::Int(3))],
            &[],
            Mode::Checked,
        )
        .unwrap_err();
        assert_eq!((error.kind, error.argument.as_ref()), (ErrorKind::OutOfRange, "k"));
    }

    #[test]
    fn selection_agrees_with_a_full_sort() {
        let stream = crate::inputs::Stream::new(3, "logits");
        for length in [1u64, 2, 17, 1000] {
            let row: Vec<f64> =
                (0..length).map(|index| (stream.normal(index) * 4.0).round()).collect();
            let mut sorted: Vec<usize> = (0..row.len()).collect();
            sorted.sort_by(|left, right| by_rank(&row, *left, *right));
            for k in [1, row.len().div_ceil(2), row.len()] {
                assert_eq!(best_places(&row, k), sorted[..k]);
            }
        }
    }
}

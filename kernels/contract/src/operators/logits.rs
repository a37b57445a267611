//! What the operators over a vocabulary have in common.

use std::borrow::Cow;

use crate::call::{Call, Mode};
use crate::compare::{Rule, Tolerance};
use crate::dtype::Dtype;
use crate::error::{ContractError, ErrorKind};
use crate::refusal::{DeviceValue, Mutation, Refusal};
use crate::spec::{DimSpec, DtypeRule, Extent, Source, TensorSpec};
use crate::values::ValueClass;

/// Element types of logits.
pub(super) const DTYPES: &[Dtype] = &[Dtype::F32, Dtype::F16, Dtype::BF16];

/// Value classes of logits: all.
pub(super) const VALUES: &[ValueClass] = &ValueClass::ALL;

/// The last axis of logits.
pub(super) const VOCAB: DimSpec =
    DimSpec { name: "vocab", meaning: "number of tokens, the last axis of logits", min: 1 };

/// Shape of logits.
pub(super) const ROWS_BY_VOCAB: &[Extent] = &[Extent::Dim("rows"), Extent::Dim("vocab")];

/// One value per row.
pub(super) const PER_ROW: &[Extent] = &[Extent::Dim("rows")];

/// Logits that are only read.
pub(super) const LOGITS: TensorSpec = TensorSpec::input(
    "logits",
    "logits of each row; minus infinity masks a token",
    DtypeRule::Activation,
    ROWS_BY_VOCAB,
    Source::Logits,
);

/// The given token of each row.
pub(super) const SELECTED: TensorSpec = TensorSpec::input(
    "selected",
    "the given token of each row, in [0, vocab)",
    DtypeRule::Fixed(Dtype::I64),
    PER_ROW,
    Source::Ids("vocab"),
);

/// Rank of a row's token.
pub(super) const RANK: TensorSpec = TensorSpec::output(
    "rank",
    "number of logits not below the token's own: 1 is best; 0 for a NaN logit, -1 for a bad token",
    DtypeRule::Fixed(Dtype::I64),
    PER_ROW,
);

/// A NaN logit, found in checked mode.
pub(super) const NAN_LOGIT: &[Refusal] = &[Refusal {
    name: Cow::Borrowed("logits-nan"),
    mutation: Mutation::Value {
        tensor: "logits",
        row: 1,
        column: 0,
        value: DeviceValue::Float(f64::NAN),
    },
    kind: ErrorKind::NotFinite,
    argument: "logits",
}];

/// Tokens out of range, found in checked mode.
pub(super) const BAD_TOKENS: &[Refusal] = &[
    bad_token(Cow::Borrowed("selected-negative"), DeviceValue::Int(-1)),
    bad_token(Cow::Borrowed("selected-beyond-vocab"), DeviceValue::Dim("vocab")),
];

const fn bad_token(name: Cow<'static, str>, value: DeviceValue) -> Refusal {
    Refusal {
        name,
        mutation: Mutation::Value { tensor: "selected", row: 0, column: 1, value },
        kind: ErrorKind::OutOfRange,
        argument: "selected",
    }
}

/// Refuses a NaN in checked mode.
pub(super) fn check_row(
    call: &Call,
    mode: Mode,
    index: u64,
    row: &[f64],
) -> Result<(), ContractError> {
    match row.iter().position(|value| value.is_nan()) {
        Some(column) if mode == Mode::Checked => {
            Err(ContractError::new(call.operator.name, "logits", ErrorKind::NotFinite)
                .at_row(index)
                .found(format_args!("NaN in column {column}"))
                .accepted("numbers and infinities"))
        }
        _ => Ok(()),
    }
}

/// The place of a token in its row; `None` when it is bad and the mode is unchecked.
pub(super) fn check_token(
    call: &Call,
    mode: Mode,
    index: u64,
    token: i64,
) -> Result<Option<usize>, ContractError> {
    let vocab = call.dim("vocab")?;
    match u64::try_from(token) {
        Ok(place) if place < vocab => Ok(Some(place as usize)),
        _ if mode == Mode::Unchecked => Ok(None),
        _ => Err(ContractError::new(call.operator.name, "selected", ErrorKind::OutOfRange)
            .at_row(index)
            .found(token)
            .accepted(format_args!("0 to {}", vocab - 1))),
    }
}

/// What a row's log-probabilities need: its maximum and the sum of exponentials below it, NaN left out.
pub(super) struct Distribution {
    /// Largest logit that is not NaN; minus infinity for none.
    pub(super) max: f64,
    /// First place of the largest logit that is not NaN; 0 for none.
    pub(super) best: usize,
    log_sum: f64,
}

impl Distribution {
    /// Reads a row twice: maximum, then sum.
    pub(super) fn of(row: &[f64]) -> Self {
        let mut best: Option<usize> = None;
        for (place, value) in row.iter().enumerate() {
            if !value.is_nan() && best.is_none_or(|best| *value > row[best]) {
                best = Some(place);
            }
        }
        let max = best.map_or(f64::NEG_INFINITY, |best| row[best]);
        let sum: f64 =
            row.iter().filter(|value| !value.is_nan()).map(|value| (value - max).exp()).sum();
        Self { max, best: best.unwrap_or(0), log_sum: sum.ln() }
    }

    /// `logit - max - ln(sum exp(row - max))`; NaN when the maximum is infinite, because there is then no
    /// distribution.
    pub(super) fn log_probability(&self, logit: f64) -> f64 {
        if self.max.is_finite() { logit - self.max - self.log_sum } else { f64::NAN }
    }
}

/// Number of logits not below `logit`; 0 when it is NaN.
pub(super) fn rank(row: &[f64], logit: f64) -> i64 {
    row.iter().filter(|value| **value >= logit).count() as i64
}

/// Tolerance of the outputs of operators over a vocabulary.
pub(super) fn tolerance(call: &Call, tensor: &TensorSpec) -> Tolerance {
    if tensor.dtype != DtypeRule::Fixed(Dtype::F32) {
        return Tolerance {
            rule: Rule::Bits,
            reason: "tokens and ranks follow from comparisons of the logits themselves, which are exact",
        };
    }
    let chain = call.dim("vocab").unwrap_or(0).min(1024);
    Tolerance {
        rule: Rule::Within { ulps: 4, abs_floor: (32 + chain) as f64 * 2f64.powi(-24) },
        reason: "an F32 sum of exponentials whose longest chain of additions is min(vocab, 1024) errs by that \
                 many halves of a step, relative to the sum and so absolute after the logarithm; 32 for the \
                 exponentials, the tree above the chains and the logarithm; 4 steps for the two subtractions",
    }
}

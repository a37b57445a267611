//! `greedy_logprob`, `selected_logprob_rank`, `topk_logprobs` and `min_p`.

use proofhouse_contract::{ContractError, ErrorKind, Mode, TensorMut, TensorView};

use crate::candidates::Candidates;
use crate::distribution::{Distribution, Ranked, logit};
use crate::parallel::over_rows;
use crate::rows::{Rows, RowsMut};
use crate::simd::{Target, logits};

/// What every operator over a vocabulary needs to know.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Setting {
    /// Path and element type.
    pub target: Target,
    /// Whether device values are checked.
    pub mode: Mode,
    /// The operator's name, for errors.
    pub operator: &'static str,
}

impl Setting {
    /// The error for a row with a NaN, in checked mode.
    fn nan_fault(&self, index: usize, row: &[u8], nan: bool) -> Option<ContractError> {
        if !nan || self.mode == Mode::Unchecked {
            return None;
        }
        let kind = self.target.kind;
        let column = (0..row.len() / kind.size()).find(|place| logit(kind, row, *place).is_nan());
        Some(
            ContractError::new(self.operator, "logits", ErrorKind::NotFinite)
                .at_row(index as u64)
                .found(format_args!("NaN in column {}", column.unwrap_or(0)))
                .accepted("numbers and infinities"),
        )
    }

    /// The error for a token out of range, in checked mode.
    fn token_fault(&self, index: usize, token: i64, vocab: usize) -> Option<ContractError> {
        if self.mode == Mode::Unchecked {
            return None;
        }
        Some(
            ContractError::new(self.operator, "selected", ErrorKind::OutOfRange)
                .at_row(index as u64)
                .found(token)
                .accepted(format_args!("0 to {}", vocab - 1)),
        )
    }

    /// The error for a bad probability, in checked mode.
    fn probability_fault(&self, index: usize, p: f32) -> Option<ContractError> {
        if self.mode == Mode::Unchecked {
            return None;
        }
        let kind = if p.is_nan() { ErrorKind::NotFinite } else { ErrorKind::OutOfRange };
        Some(
            ContractError::new(self.operator, "p", kind)
                .at_row(index as u64)
                .found(p)
                .accepted("0 to 1"),
        )
    }

    /// The logit of a row's given token; none for a token out of range that nobody checks.
    fn selected_logit(
        &self,
        index: usize,
        row: &[u8],
        token: i64,
    ) -> Result<Option<f32>, ContractError> {
        let kind = self.target.kind;
        let vocab = row.len() / kind.size();
        match usize::try_from(token).ok().filter(|place| *place < vocab) {
            Some(place) => Ok(Some(logit(kind, row, place))),
            None => self.token_fault(index, token, vocab).map_or(Ok(None), Err),
        }
    }
}

fn integer(raw: &[u8]) -> i64 {
    let mut word = [0u8; 8];
    word.copy_from_slice(raw);
    i64::from_le_bytes(word)
}

fn number(raw: &[u8]) -> f32 {
    let mut word = [0u8; 4];
    word.copy_from_slice(raw);
    f32::from_le_bytes(word)
}

/// Runs over accepted rows and turns the first fault into an error.
fn finish(fault: Option<ContractError>) -> Result<(), ContractError> {
    fault.map_or(Ok(()), Err)
}

/// Best token, its log-probability and rank.
pub(crate) fn greedy_logprob(
    setting: Setting,
    input: &TensorView<'_>,
    token: &mut TensorMut<'_>,
    logprob: &mut TensorMut<'_>,
    rank: &mut TensorMut<'_>,
) -> Result<(), ContractError> {
    let rows = (
        Rows::of(input),
        RowsMut::elements(token),
        RowsMut::elements(logprob),
        RowsMut::elements(rank),
    );
    let row_bytes = input.layout.width() as usize * setting.target.kind.size();
    finish(over_rows(rows, row_bytes, &|first, (input, mut token, mut logprob, mut rank)| {
        for index in 0..input.count() {
            let row = input.row(index);
            let seen = Distribution::of(setting.target, row, Ranked::Maximum, None);
            let fault = setting.nan_fault(first + index, row, seen.nan);
            if fault.is_some() {
                return fault;
            }
            let place = seen.first_maximum(setting.target, row);
            token.row(index).copy_from_slice(&(place as i64).to_le_bytes());
            logprob.row(index).copy_from_slice(&seen.log_probability(seen.max).to_le_bytes());
            rank.row(index).copy_from_slice(&(seen.rank as i64).to_le_bytes());
        }
        None
    }))
}

/// Log-probability and rank of a given token.
pub(crate) fn selected_logprob_rank(
    setting: Setting,
    input: &TensorView<'_>,
    selected: &TensorView<'_>,
    logprob: &mut TensorMut<'_>,
    rank: &mut TensorMut<'_>,
) -> Result<(), ContractError> {
    let rows = (
        Rows::of(input),
        Rows::elements(selected),
        RowsMut::elements(logprob),
        RowsMut::elements(rank),
    );
    let vocab = input.layout.width() as usize;
    let row_bytes = vocab * setting.target.kind.size();
    finish(over_rows(rows, row_bytes, &|first, (input, selected, mut logprob, mut rank)| {
        for index in 0..input.count() {
            let (row, token) = (input.row(index), integer(selected.row(index)));
            let given = match setting.selected_logit(first + index, row, token) {
                Ok(given) => given,
                Err(fault) => return Some(fault),
            };
            let (row_logprob, row_rank) = match given {
                None => (f32::NAN, -1),
                Some(given) => {
                    let seen = Distribution::of(setting.target, row, Ranked::Logit(given), None);
                    let fault = setting.nan_fault(first + index, row, seen.nan);
                    if fault.is_some() {
                        return fault;
                    }
                    (seen.log_probability(given), seen.rank as i64)
                }
            };
            logprob.row(index).copy_from_slice(&row_logprob.to_le_bytes());
            rank.row(index).copy_from_slice(&row_rank.to_le_bytes());
        }
        None
    }))
}

/// Operands of `topk_logprobs`, accepted.
pub(crate) struct TopkOperands<'a, 'b, 'c> {
    /// Logits.
    pub logits: &'a TensorView<'b>,
    /// The given tokens.
    pub selected: &'a TensorView<'b>,
    /// Given token, then the best.
    pub ids: &'a mut TensorMut<'c>,
    /// Their log-probabilities.
    pub logprobs: &'a mut TensorMut<'c>,
    /// Rank of the given token.
    pub rank: &'a mut TensorMut<'c>,
}

/// A given token and the `k` best.
pub(crate) fn topk_logprobs(
    setting: Setting,
    operands: TopkOperands<'_, '_, '_>,
    k: usize,
) -> Result<(), ContractError> {
    let TopkOperands { logits: input, selected, ids, logprobs, rank } = operands;
    let vocab = input.layout.width() as usize;
    if u32::try_from(vocab).is_err() {
        return Err(ContractError::new(setting.operator, "vocab", ErrorKind::Unsupported)
            .found(vocab)
            .accepted("below 2^32"));
    }
    let row_bytes = vocab * setting.target.kind.size();
    let rows = (
        Rows::of(input),
        Rows::elements(selected),
        RowsMut::of(ids),
        RowsMut::of(logprobs),
        RowsMut::elements(rank),
    );
    finish(over_rows(
        rows,
        row_bytes,
        &|first, (input, selected, mut ids, mut logprobs, mut rank)| {
            for index in 0..input.count() {
                let (row, token) = (input.row(index), integer(selected.row(index)));
                let given = match setting.selected_logit(first + index, row, token) {
                    Ok(given) => given,
                    Err(fault) => return Some(fault),
                };
                let mut candidates = Candidates::new(k);
                let ranked = Ranked::Logit(given.unwrap_or(f32::NAN));
                let seen = Distribution::of(setting.target, row, ranked, Some(&mut candidates));
                let fault = setting.nan_fault(first + index, row, seen.nan);
                if fault.is_some() {
                    return fault;
                }
                let head =
                    given.map_or((-1, f32::NAN), |given| (token, seen.log_probability(given)));
                let row_rank = if given.is_some() { seen.rank as i64 } else { -1 };
                rank.row(index).copy_from_slice(&row_rank.to_le_bytes());
                let mut list =
                    List { ids: ids.row(index), logprobs: logprobs.row(index), length: 0 };
                list.push(head.0, head.1);
                list_best(setting.target, row, &seen, &mut candidates, &mut list);
            }
            None
        },
    ))
}

/// The lists of one row, as they fill.
struct List<'a> {
    ids: &'a mut [u8],
    logprobs: &'a mut [u8],
    length: usize,
}

impl List<'_> {
    fn push(&mut self, id: i64, logprob: f32) {
        self.ids[self.length * 8..][..8].copy_from_slice(&id.to_le_bytes());
        self.logprobs[self.length * 4..][..4].copy_from_slice(&logprob.to_le_bytes());
        self.length += 1;
    }

    fn is_full(&self) -> bool {
        self.length * 8 == self.ids.len()
    }
}

/// Lists the best: candidates are above minus infinity, so masked tokens and then NaN fill what is left.
fn list_best(
    target: Target,
    row: &[u8],
    seen: &Distribution,
    candidates: &mut Candidates,
    list: &mut List<'_>,
) {
    for (value, id) in candidates.sorted() {
        list.push(i64::from(id), seen.log_probability(value));
    }
    let masked = |value: f32| value == f32::NEG_INFINITY;
    for belongs in [masked as fn(f32) -> bool, f32::is_nan] {
        for place in 0..row.len() / target.kind.size() {
            if list.is_full() {
                return;
            }
            let value = logit(target.kind, row, place);
            if belongs(value) {
                list.push(place as i64, seen.log_probability(value));
            }
        }
    }
}

/// Masks improbable tokens in place.
pub(crate) fn min_p(
    setting: Setting,
    logits: &mut TensorMut<'_>,
    p: &TensorView<'_>,
) -> Result<(), ContractError> {
    let row_bytes = logits.layout.width() as usize * setting.target.kind.size();
    let rows = (RowsMut::of(logits), Rows::elements(p));
    finish(over_rows(rows, row_bytes, &|first, (mut logits, p)| {
        for index in 0..p.count() {
            let fault = min_p_row(&setting, first + index, logits.row(index), number(p.row(index)));
            if fault.is_some() {
                return fault;
            }
        }
        None
    }))
}

fn min_p_row(setting: &Setting, index: usize, row: &mut [u8], p: f32) -> Option<ContractError> {
    if !(0.0..=1.0).contains(&p) {
        return setting.probability_fault(index, p);
    }
    if p == 0.0 {
        return None;
    }
    let peak = logits::peak(setting.target, row);
    let fault = setting.nan_fault(index, row, peak.nan);
    if fault.is_none() {
        let threshold = f64::from(peak.value) + f64::from(p).ln();
        logits::cut(setting.target, row, not_below(threshold));
    }
    fault
}

/// The smallest F32 that is not below a threshold: an F32 is below the one when it is below the other.
fn not_below(threshold: f64) -> f32 {
    let nearest = threshold as f32;
    if f64::from(nearest) < threshold { nearest.next_up() } else { nearest }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_threshold_between_two_f32_masks_the_one_below_it_and_keeps_the_one_above() {
        let (low, high) = (1.0f32, 1.0f32.next_up());
        for part in [0.1, 0.5, 0.9] {
            let threshold = f64::from(low) + part * (f64::from(high) - f64::from(low));
            let cut = not_below(threshold);
            assert!(low < cut && cut <= high, "{threshold}");
        }
        assert_eq!(not_below(1.0), 1.0);
        assert_eq!(not_below(f64::NEG_INFINITY), f32::NEG_INFINITY);
    }
}

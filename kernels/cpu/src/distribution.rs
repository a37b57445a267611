//! One pass over a row of logits: maximum, exponential mass, rank and candidates.
//!
//! The row is cut into chunks of fixed length that stay in the first-level cache between finding a chunk's
//! maximum and summing its exponentials. Chunks are joined pairwise in a tree whose shape follows from the row's
//! length alone, so the result does not depend on threads.

use crate::candidates::Candidates;
use crate::parallel::worth_parting;
use crate::simd::{Kind, Target, logits};

/// Logits of a chunk.
const CHUNK: usize = 1 << 13;

/// Whose rank is counted.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Ranked {
    /// The row's maximum.
    Maximum,
    /// A given logit.
    Logit(f32),
}

/// What one pass over a row, or a part of it, gives.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Distribution {
    /// Largest logit that is not NaN; minus infinity for none.
    pub max: f32,
    /// Number of logits not below the ranked one.
    pub rank: u64,
    /// Whether a logit is NaN.
    pub nan: bool,
    /// `sum exp(x - max)` when the maximum is finite.
    sum: f64,
    /// Where the chunk with the first maximum starts.
    start: usize,
}

impl Distribution {
    /// Reads a row, and offers its logits to the candidates when there are any.
    pub(crate) fn of(
        target: Target,
        row: &[u8],
        ranked: Ranked,
        candidates: Option<&mut Candidates>,
    ) -> Self {
        part(Part { target, bytes: row, start: 0, ranked }, candidates)
    }

    /// `logit - max - ln(sum exp(x - max))`; NaN when the maximum is infinite, because there is then no
    /// distribution.
    pub(crate) fn log_probability(&self, logit: f32) -> f32 {
        if self.max.is_finite() {
            ((f64::from(logit) - f64::from(self.max)) - self.sum.ln()) as f32
        } else {
            f32::NAN
        }
    }

    /// Place of the first maximum in the row; 0 when there is none. The rank must be the maximum's.
    pub(crate) fn first_maximum(&self, target: Target, row: &[u8]) -> usize {
        if self.rank == 0 {
            return 0;
        }
        self.start + logits::position(target, &row[self.start * target.kind.size()..], self.max)
    }
}

/// A part of a row that starts at a chunk.
#[derive(Clone, Copy)]
struct Part<'a> {
    target: Target,
    bytes: &'a [u8],
    start: usize,
    ranked: Ranked,
}

fn part(piece: Part<'_>, candidates: Option<&mut Candidates>) -> Distribution {
    let chunk_bytes = CHUNK * piece.target.kind.size();
    let chunks = piece.bytes.len().div_ceil(chunk_bytes);
    if chunks <= 1 {
        return chunk(piece, candidates);
    }
    let middle = chunks / 2;
    let (head, tail) = piece.bytes.split_at(middle * chunk_bytes);
    let head = Part { bytes: head, ..piece };
    let tail = Part { bytes: tail, start: piece.start + middle * CHUNK, ..piece };
    let (left, right) = if worth_parting(piece.bytes.len()) {
        both(head, tail, candidates)
    } else if let Some(candidates) = candidates {
        (part(head, Some(&mut *candidates)), part(tail, Some(candidates)))
    } else {
        (part(head, None), part(tail, None))
    };
    join(piece.ranked, &left, &right)
}

/// Both parts at once. The best candidates of the whole are the best of both parts' best.
fn both(
    head: Part<'_>,
    tail: Part<'_>,
    candidates: Option<&mut Candidates>,
) -> (Distribution, Distribution) {
    let Some(candidates) = candidates else {
        return rayon::join(|| part(head, None), || part(tail, None));
    };
    let mut later = candidates.another();
    let results =
        rayon::join(|| part(head, Some(&mut *candidates)), || part(tail, Some(&mut later)));
    candidates.absorb(&later);
    results
}

fn chunk(piece: Part<'_>, candidates: Option<&mut Candidates>) -> Distribution {
    let Part { target, bytes, start, ranked } = piece;
    let peak = logits::peak(target, bytes);
    let threshold = match ranked {
        Ranked::Maximum => peak.value,
        Ranked::Logit(logit) => logit,
    };
    let shift = if peak.value.is_finite() { peak.value } else { 0.0 };
    let mass = logits::mass(target, bytes, shift, threshold);
    if let Some(candidates) = candidates
        && peak.value > candidates.threshold()
    {
        logits::collect(target, bytes, start as u32, candidates);
    }
    Distribution { max: peak.value, rank: mass.reaching, nan: peak.nan, sum: mass.sum, start }
}

fn join(ranked: Ranked, left: &Distribution, right: &Distribution) -> Distribution {
    let max = if right.max > left.max { right.max } else { left.max };
    let weight = |part: &Distribution| {
        let below = f64::from(part.max) - f64::from(max);
        if below == 0.0 { part.sum } else { part.sum * below.exp() }
    };
    let sum = if max.is_finite() { weight(left) + weight(right) } else { 0.0 };
    let (rank, start) = match ranked {
        Ranked::Logit(_) => (left.rank + right.rank, left.start),
        Ranked::Maximum if right.max > left.max => (right.rank, right.start),
        Ranked::Maximum if left.max > right.max => (left.rank, left.start),
        // A part of NaN alone has rank 0: its start is not where the maximum is.
        Ranked::Maximum => {
            (left.rank + right.rank, if left.rank == 0 { right.start } else { left.start })
        }
    };
    Distribution { max, rank, nan: left.nan | right.nan, sum, start }
}

/// One logit of a row.
pub(crate) fn logit(kind: Kind, row: &[u8], place: usize) -> f32 {
    let size = kind.size();
    let raw = &row[place * size..][..size];
    match kind {
        Kind::F32 => f32::from_le_bytes([raw[0], raw[1], raw[2], raw[3]]),
        Kind::F16 => half::f16::from_le_bytes([raw[0], raw[1]]).to_f32(),
        Kind::Bf16 => half::bf16::from_le_bytes([raw[0], raw[1]]).to_f32(),
    }
}

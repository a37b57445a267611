//! Rows of the normalizations.
//!
//! The sum of squares is taken in F32 in eight vectors of partial sums, over fixed blocks whose totals are added in
//! F64. It does not depend on anything but the row and the path.

use super::Target;
use super::dispatch::dispatch;
use super::lanes::{Element, Lanes};

/// Elements whose squares are summed in F32 before the total moves to F64.
const BLOCK: usize = 1 << 14;
/// Independent partial sums, to hide the latency of an addition.
const SUMS: usize = 8;

/// Squares of one row and where the next row lies, for the cache.
#[inline(always)]
unsafe fn block_squares<L: Lanes, E: Element>(x: *const u8, length: usize) -> f64 {
    // SAFETY: the caller promises `length` elements at `x` and the lanes' features.
    unsafe {
        let mut sums = [L::splat(0.0); SUMS];
        let mut at = 0;
        while at + SUMS * L::N <= length {
            for place in 0..SUMS / 2 {
                let pair = E::load_pair::<L>(x.add((at + 2 * place * L::N) * E::SIZE));
                for (sum, v) in sums[2 * place..].iter_mut().zip(pair) {
                    *sum = L::fma(v, v, *sum);
                }
            }
            at += SUMS * L::N;
        }
        while at < length {
            let count = (length - at).min(L::N);
            let v = if count == L::N {
                E::load::<L>(x.add(at * E::SIZE))
            } else {
                E::load_part::<L>(x.add(at * E::SIZE), count, 0.0)
            };
            sums[0] = L::fma(v, v, sums[0]);
            at += count;
        }
        fold::<L>(sums)
    }
}

/// The total of the partial sums, pairwise in a fixed order.
#[inline(always)]
unsafe fn fold<L: Lanes>(mut sums: [L::V; SUMS]) -> f64 {
    let mut half = SUMS / 2;
    while half > 0 {
        for place in 0..half {
            // SAFETY: the caller promises the lanes' features.
            sums[place] = unsafe { L::add(sums[place], sums[place + half]) };
        }
        half /= 2;
    }
    // SAFETY: as above.
    unsafe { L::sum(sums[0]) }
}

/// Sum of the squares of `length` elements at `x`.
#[inline(always)]
unsafe fn squares_kernel<L: Lanes, E: Element>(x: *const u8, length: usize) -> f64 {
    let mut total = 0.0;
    let mut at = 0;
    while at < length {
        let count = (length - at).min(BLOCK);
        // SAFETY: the block lies within the row.
        total += unsafe { block_squares::<L, E>(x.add(at * E::SIZE), count) };
        at += count;
    }
    total
}

dispatch! {
    /// Sum of squares of a row.
    fn squares_of(x: *const u8, length: usize) -> f64 = squares_kernel
}

/// The sum of the squares of a row, accumulated in F32; infinite where a square overflows F32.
///
/// # Panics
/// When the bytes are not whole elements.
pub(crate) fn squares(target: Target, x: &[u8]) -> f64 {
    let length = elements(target, x);
    // SAFETY: the slice holds `length` elements.
    unsafe { squares_of(target, x.as_ptr(), length) }
}

/// `residual = round(x + residual)`, then the sum of the squares of the rounded values.
#[inline(always)]
unsafe fn add_squares_kernel<L: Lanes, E: Element>(
    x: *const u8,
    residual: *mut u8,
    length: usize,
) -> f64 {
    let mut total = 0.0;
    let mut start = 0;
    while start < length {
        let end = (start + BLOCK).min(length);
        // SAFETY: the block lies within both rows.
        total += unsafe { add_block::<L, E>(x, residual, start, end) };
        start = end;
    }
    total
}

#[inline(always)]
unsafe fn add_block<L: Lanes, E: Element>(
    x: *const u8,
    residual: *mut u8,
    start: usize,
    end: usize,
) -> f64 {
    // SAFETY: the caller promises elements `start..end` of both rows and the lanes' features.
    unsafe {
        let mut sums = [L::splat(0.0); SUMS];
        let mut at = start;
        while at + SUMS * L::N <= end {
            for place in 0..SUMS / 2 {
                let offset = (at + 2 * place * L::N) * E::SIZE;
                let [left, right] = E::load_pair::<L>(x.add(offset));
                let [left_sum, right_sum] = E::load_pair::<L>(residual.add(offset));
                let pair = [
                    E::round::<L>(L::add(left, left_sum)),
                    E::round::<L>(L::add(right, right_sum)),
                ];
                E::store_pair::<L>(residual.add(offset), pair);
                for (sum, v) in sums[2 * place..].iter_mut().zip(pair) {
                    *sum = L::fma(v, v, *sum);
                }
            }
            at += SUMS * L::N;
        }
        while at < end {
            let count = (end - at).min(L::N);
            let offset = at * E::SIZE;
            let left = E::load_part::<L>(x.add(offset), count, 0.0);
            let right = E::load_part::<L>(residual.add(offset), count, 0.0);
            let rounded = E::round::<L>(L::add(left, right));
            E::store_part::<L>(residual.add(offset), count, rounded);
            sums[0] = L::fma(rounded, rounded, sums[0]);
            at += count;
        }
        fold::<L>(sums)
    }
}

dispatch! {
    /// Residual addition with the sum of squares.
    fn add_squares_of(x: *const u8, residual: *mut u8, length: usize) -> f64 = add_squares_kernel
}

/// `residual = round(x + residual)` in place; returns the sum of the squares of the rounded values.
///
/// # Panics
/// When the rows differ in length.
pub(crate) fn add_squares(target: Target, x: &[u8], residual: &mut [u8]) -> f64 {
    let length = elements(target, x);
    assert_eq!(x.len(), residual.len(), "rows of one length");
    // SAFETY: both slices hold `length` elements.
    unsafe { add_squares_of(target, x.as_ptr(), residual.as_mut_ptr(), length) }
}

/// Distance from an element to the same place in the row that comes next, for the cache.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ahead(pub(super) usize);

impl Ahead {
    /// The next row starts `bytes` after this one.
    pub(crate) const fn bytes(bytes: usize) -> Self {
        Self(bytes)
    }
}

/// Asks for the lines of a pair of vectors.
#[inline(always)]
pub(super) unsafe fn prefetch_pair<L: Lanes, E: Element>(from: *const u8) {
    // SAFETY: the address need not be valid.
    unsafe {
        L::prefetch(from);
        if L::N * E::SIZE >= 64 {
            L::prefetch(from.wrapping_add(L::N * E::SIZE));
        }
    }
}

/// `y = round(x * inverse * w)`.
#[inline(always)]
unsafe fn apply_kernel<L: Lanes, E: Element>(
    x: *const u8,
    w: *const u8,
    y: *mut u8,
    length: usize,
    inverse: f32,
    ahead: usize,
) {
    // SAFETY: the caller promises `length` elements at all three and the lanes' features; prefetches are of
    // addresses that need not be valid.
    unsafe {
        let inverse = L::splat(inverse);
        let mut at = 0;
        while at + 4 * L::N <= length {
            for place in 0..2 {
                let offset = (at + 2 * place * L::N) * E::SIZE;
                prefetch_pair::<L, E>(x.wrapping_add(offset + ahead));
                let [left, right] = E::load_pair::<L>(x.add(offset));
                let [left_gain, right_gain] = E::load_pair::<L>(w.add(offset));
                let left = L::mul(L::mul(left, inverse), left_gain);
                let right = L::mul(L::mul(right, inverse), right_gain);
                E::store_pair::<L>(y.add(offset), [left, right]);
            }
            at += 4 * L::N;
        }
        while at < length {
            let count = (length - at).min(L::N);
            let offset = at * E::SIZE;
            let scaled = L::mul(E::load_part::<L>(x.add(offset), count, 0.0), inverse);
            let gain = E::load_part::<L>(w.add(offset), count, 0.0);
            E::store_part::<L>(y.add(offset), count, L::mul(scaled, gain));
            at += count;
        }
    }
}

dispatch! {
    /// A normalized row.
    fn apply_of(x: *const u8, w: *const u8, y: *mut u8, length: usize, inverse: f32, ahead: usize) = apply_kernel
}

/// `y = round(x * inverse * w)` for one row.
///
/// # Panics
/// When the rows differ in length.
pub(crate) fn apply(target: Target, x: &[u8], w: &[u8], y: &mut [u8], inverse: f32, ahead: Ahead) {
    let length = elements(target, x);
    assert!(x.len() == w.len() && x.len() == y.len(), "rows of one length");
    // SAFETY: all three slices hold `length` elements.
    unsafe { apply_of(target, x.as_ptr(), w.as_ptr(), y.as_mut_ptr(), length, inverse, ahead.0) }
}

pub(super) fn elements(target: Target, row: &[u8]) -> usize {
    assert!(row.len().is_multiple_of(target.kind.size()), "whole elements");
    row.len() / target.kind.size()
}

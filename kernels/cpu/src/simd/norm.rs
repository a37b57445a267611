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
pub(crate) struct Ahead(usize);

impl Ahead {
    /// The next row starts `bytes` after this one.
    pub(crate) const fn bytes(bytes: usize) -> Self {
        Self(bytes)
    }
}

/// Asks for the lines of a pair of vectors.
#[inline(always)]
unsafe fn prefetch_pair<L: Lanes, E: Element>(from: *const u8) {
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

/// The value that is quantized: two roundings, as vLLM's operator has them.
#[inline(always)]
unsafe fn twice_rounded<L: Lanes, E: Element>(x: L::V, w: L::V, inverse: L::V) -> L::V {
    // SAFETY: the caller promises the lanes' features.
    unsafe { E::round::<L>(L::mul(E::round::<L>(L::mul(x, inverse)), w)) }
}

/// Largest magnitude of the twice rounded values; NaN does not count.
#[inline(always)]
unsafe fn absmax_kernel<L: Lanes, E: Element>(
    x: *const u8,
    w: *const u8,
    length: usize,
    inverse: f32,
) -> f32 {
    // SAFETY: the caller promises `length` elements at both and the lanes' features.
    unsafe {
        let inverse = L::splat(inverse);
        let mut largest = [L::splat(0.0); 4];
        let mut at = 0;
        while at + 4 * L::N <= length {
            for place in 0..2 {
                let offset = (at + 2 * place * L::N) * E::SIZE;
                let values = E::load_pair::<L>(x.add(offset));
                let gains = E::load_pair::<L>(w.add(offset));
                for lane in 0..2 {
                    let v = twice_rounded::<L, E>(values[lane], gains[lane], inverse);
                    let largest = &mut largest[2 * place + lane];
                    *largest = L::max(L::abs(v), *largest);
                }
            }
            at += 4 * L::N;
        }
        while at < length {
            let count = (length - at).min(L::N);
            let v = E::load_part::<L>(x.add(at * E::SIZE), count, 0.0);
            let gain = E::load_part::<L>(w.add(at * E::SIZE), count, 0.0);
            largest[0] = L::max(L::abs(twice_rounded::<L, E>(v, gain, inverse)), largest[0]);
            at += count;
        }
        let pairs = [L::max(largest[0], largest[1]), L::max(largest[2], largest[3])];
        L::largest(L::max(pairs[0], pairs[1]))
    }
}

dispatch! {
    /// Largest magnitude before quantization.
    fn absmax_of(x: *const u8, w: *const u8, length: usize, inverse: f32) -> f32 = absmax_kernel
}

/// The largest `|round(round(x * inverse) * w)|` of a row, NaN left out; 0 when there is nothing else.
///
/// # Panics
/// When the rows differ in length.
pub(crate) fn absmax(target: Target, x: &[u8], w: &[u8], inverse: f32) -> f32 {
    let length = elements(target, x);
    assert_eq!(x.len(), w.len(), "rows of one length");
    // SAFETY: both slices hold `length` elements.
    unsafe { absmax_of(target, x.as_ptr(), w.as_ptr(), length, inverse) }
}

/// How a row is quantized: the inverse root mean square and the scale, which must be finite and positive.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Quantizer {
    /// The inverse root mean square.
    pub inverse: f32,
    /// The row's scale.
    pub scale: f32,
}

/// `q = fp8(v / scale)`, the quotient correctly rounded to F32.
#[inline(always)]
unsafe fn quantize_kernel<L: Lanes, E: Element>(
    x: *const u8,
    w: *const u8,
    q: *mut u8,
    length: usize,
    quantizer: Quantizer,
    ahead: usize,
) {
    // SAFETY: the caller promises `length` elements at `x` and `w`, bytes at `q`, and the lanes' features;
    // prefetches are of addresses that need not be valid.
    unsafe {
        let inverse = L::splat(quantizer.inverse);
        let scale = L::splat(quantizer.scale);
        let reciprocal = L::splat(1.0 / quantizer.scale);
        let mut at = 0;
        while at + 2 * L::N <= length {
            let offset = at * E::SIZE;
            prefetch_pair::<L, E>(x.wrapping_add(offset + ahead));
            let [left, right] = E::load_pair::<L>(x.add(offset));
            let [left_gain, right_gain] = E::load_pair::<L>(w.add(offset));
            let left = twice_rounded::<L, E>(left, left_gain, inverse);
            let right = twice_rounded::<L, E>(right, right_gain, inverse);
            let quotients =
                [quotient::<L>(left, scale, reciprocal), quotient::<L>(right, scale, reciprocal)];
            E::store_codes::<L>(q.add(at), quotients, [left, right]);
            at += 2 * L::N;
        }
        while at < length {
            let count = (length - at).min(L::N);
            let x = E::load_part::<L>(x.add(at * E::SIZE), count, 0.0);
            let gain = E::load_part::<L>(w.add(at * E::SIZE), count, 0.0);
            let v = twice_rounded::<L, E>(x, gain, inverse);
            L::store_e4m3_part(q.add(at), count, quotient::<L>(v, scale, reciprocal), v);
            at += count;
        }
    }
}

/// `v / scale` by the reciprocal and one exact remainder: the correctly rounded quotient (Markstein), without
/// the slow division. It loses the sign of a zero and holds unless the scale's significand is all ones.
#[inline(always)]
unsafe fn quotient<L: Lanes>(v: L::V, scale: L::V, reciprocal: L::V) -> L::V {
    // SAFETY: the caller promises the lanes' features.
    unsafe {
        let estimate = L::mul(v, reciprocal);
        let remainder = L::fnma(estimate, scale, v);
        L::fma(remainder, reciprocal, estimate)
    }
}

dispatch! {
    /// A quantized row.
    fn quantize_of(
        x: *const u8,
        w: *const u8,
        q: *mut u8,
        length: usize,
        quantizer: Quantizer,
        ahead: usize,
    ) = quantize_kernel
}

/// `q = fp8(round(round(x * inverse) * w) / scale)` for one row.
///
/// # Panics
/// When the rows differ in length.
pub(crate) fn quantize(
    target: Target,
    x: &[u8],
    w: &[u8],
    q: &mut [u8],
    quantizer: Quantizer,
    ahead: Ahead,
) {
    let length = elements(target, x);
    assert!(x.len() == w.len() && q.len() == length, "rows of one length");
    // SAFETY: `x` and `w` hold `length` elements and `q` as many bytes.
    unsafe {
        quantize_of(target, x.as_ptr(), w.as_ptr(), q.as_mut_ptr(), length, quantizer, ahead.0)
    }
}

fn elements(target: Target, row: &[u8]) -> usize {
    assert!(row.len().is_multiple_of(target.kind.size()), "whole elements");
    row.len() / target.kind.size()
}

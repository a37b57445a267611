//! Pieces of rows of logits: largest value, exponential mass, rank, candidates, cut.
//!
//! A NaN logit is never the largest, adds no mass and is never a candidate.

use super::Target;
use super::dispatch::dispatch;
use super::exponential::exponential;
use super::lanes::{Element, Lanes};
use super::scalar::Scalar;
use crate::candidates::Candidates;

/// The largest logit of a piece, and whether a NaN was seen.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Peak {
    /// The largest logit; minus infinity when there is none.
    pub value: f32,
    /// Whether a logit is NaN.
    pub nan: bool,
}

#[inline(always)]
unsafe fn peak_kernel<L: Lanes, E: Element>(x: *const u8, length: usize) -> Peak {
    // SAFETY: the caller promises `length` elements at `x` and the lanes' features.
    unsafe {
        let mut largest = [L::splat(f32::NEG_INFINITY); 4];
        let mut nan = [L::none(); 4];
        let mut at = 0;
        while at + 4 * L::N <= length {
            for place in 0..2 {
                let pair = E::load_pair::<L>(x.add((at + 2 * place * L::N) * E::SIZE));
                for (lane, v) in pair.into_iter().enumerate() {
                    largest[2 * place + lane] = L::max(v, largest[2 * place + lane]);
                    nan[2 * place + lane] = L::or(nan[2 * place + lane], L::is_nan(v));
                }
            }
            at += 4 * L::N;
        }
        while at < length {
            let count = (length - at).min(L::N);
            let v = E::load_part::<L>(x.add(at * E::SIZE), count, f32::NEG_INFINITY);
            largest[0] = L::max(v, largest[0]);
            nan[0] = L::or(nan[0], L::is_nan(v));
            at += count;
        }
        let largest = L::max(L::max(largest[0], largest[1]), L::max(largest[2], largest[3]));
        let nan = L::or(L::or(nan[0], nan[1]), L::or(nan[2], nan[3]));
        Peak { value: L::largest(largest), nan: L::bits(nan) != 0 }
    }
}

dispatch! {
    /// The largest logit.
    fn peak_of(x: *const u8, length: usize) -> Peak = peak_kernel
}

/// The largest logit of a piece, and whether it holds a NaN.
///
/// # Panics
/// When the bytes are not whole elements.
pub(crate) fn peak(target: Target, x: &[u8]) -> Peak {
    let length = elements(target, x);
    // SAFETY: the slice holds `length` elements.
    unsafe { peak_of(target, x.as_ptr(), length) }
}

/// Exponential mass of a piece and how many of its logits reach a threshold.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Mass {
    /// `sum exp(x - shift)`.
    pub sum: f64,
    /// Count of `x >= threshold`.
    pub reaching: u64,
}

#[inline(always)]
unsafe fn mass_kernel<L: Lanes, E: Element>(
    x: *const u8,
    length: usize,
    shift: f32,
    threshold: f32,
) -> Mass {
    // SAFETY: the caller promises `length` elements at `x` and the lanes' features; prefetches are of
    // addresses that need not be valid.
    unsafe {
        let (shift, threshold) = (L::splat(shift), L::splat(threshold));
        let mut sums = [L::splat(0.0); 2];
        let mut reaching = 0u64;
        let mut at = 0;
        while at + 2 * L::N <= length {
            let offset = at * E::SIZE;
            L::prefetch(x.wrapping_add(offset + length * E::SIZE));
            if L::N * E::SIZE >= 64 {
                L::prefetch(x.wrapping_add(offset + (length + L::N) * E::SIZE));
            }
            for (v, sum) in E::load_pair::<L>(x.add(offset)).into_iter().zip(&mut sums) {
                reaching += u64::from(L::bits(L::ge(v, threshold)).count_ones());
                *sum = L::add(*sum, weight::<L>(v, shift));
            }
            at += 2 * L::N;
        }
        while at < length {
            let count = (length - at).min(L::N);
            let v = E::load_part::<L>(x.add(at * E::SIZE), count, f32::NAN);
            reaching += u64::from(L::bits(L::ge(v, threshold)).count_ones());
            let weights = L::select(L::is_nan(v), L::splat(0.0), weight::<L>(v, shift));
            sums[0] = L::add(sums[0], weights);
            at += count;
        }
        Mass { sum: L::sum(L::add(sums[0], sums[1])), reaching }
    }
}

/// `exp(v - shift)` for `v <= shift`.
///
/// What is below e^-87 times the largest weight (minus infinity and NaN too) counts as e^-87: even 2^40 of
/// those do not reach the last bit of an F64 sum that holds a 1.
#[inline(always)]
unsafe fn weight<L: Lanes>(v: L::V, shift: L::V) -> L::V {
    // SAFETY: the caller promises the lanes' features.
    unsafe {
        let d = L::max(L::sub(v, shift), L::splat(-87.0));
        let (fraction, power) = exponential::<L>(d);
        L::scale(fraction, power)
    }
}

dispatch! {
    /// Exponential mass.
    fn mass_of(x: *const u8, length: usize, shift: f32, threshold: f32) -> Mass = mass_kernel
}

/// `sum exp(x - shift)` of a piece, and how many of its logits are `threshold` or more.
///
/// `shift` must be finite and no logit may exceed it.
///
/// # Panics
/// When the bytes are not whole elements.
pub(crate) fn mass(target: Target, x: &[u8], shift: f32, threshold: f32) -> Mass {
    let length = elements(target, x);
    // SAFETY: the slice holds `length` elements.
    unsafe { mass_of(target, x.as_ptr(), length, shift, threshold) }
}

#[inline(always)]
unsafe fn position_kernel<L: Lanes, E: Element>(x: *const u8, length: usize, value: f32) -> usize {
    // SAFETY: the caller promises `length` elements at `x` and the lanes' features.
    unsafe {
        let wanted = L::splat(value);
        let mut at = 0;
        while at < length {
            let count = (length - at).min(L::N);
            let v = E::load_part::<L>(x.add(at * E::SIZE), count, f32::NAN);
            let found = L::bits(L::ge(v, wanted));
            if found != 0 {
                return at + found.trailing_zeros() as usize;
            }
            at += count;
        }
        length
    }
}

dispatch! {
    /// The first logit that reaches a value.
    fn position_of(x: *const u8, length: usize, value: f32) -> usize = position_kernel
}

/// Index of the first logit of a piece that is `value` or more; the piece's length when there is none.
///
/// # Panics
/// When the bytes are not whole elements.
pub(crate) fn position(target: Target, x: &[u8], value: f32) -> usize {
    let length = elements(target, x);
    // SAFETY: the slice holds `length` elements.
    unsafe { position_of(target, x.as_ptr(), length, value) }
}

#[inline(always)]
unsafe fn collect_kernel<L: Lanes, E: Element>(
    x: *const u8,
    length: usize,
    base: u32,
    into: &mut Candidates,
) {
    // SAFETY: the caller promises `length` elements at `x` and the lanes' features.
    unsafe {
        let mut threshold = L::splat(into.threshold());
        let mut at = 0;
        while at < length {
            let count = (length - at).min(L::N);
            let v = if count == L::N {
                E::load::<L>(x.add(at * E::SIZE))
            } else {
                E::load_part::<L>(x.add(at * E::SIZE), count, f32::NAN)
            };
            let mut found = L::bits(L::gt(v, threshold));
            if found != 0 {
                while found != 0 {
                    let lane = at + found.trailing_zeros() as usize;
                    found &= found - 1;
                    into.push(E::load::<Scalar>(x.add(lane * E::SIZE)), base + lane as u32);
                }
                threshold = L::splat(into.threshold());
            }
            at += count;
        }
    }
}

dispatch! {
    /// Candidates for the best logits.
    fn collect_of(x: *const u8, length: usize, base: u32, into: &mut Candidates) = collect_kernel
}

/// Offers every logit of a piece above the candidates' threshold; the first one has the id `base`.
///
/// # Panics
/// When the bytes are not whole elements.
pub(crate) fn collect(target: Target, x: &[u8], base: u32, into: &mut Candidates) {
    let length = elements(target, x);
    // SAFETY: the slice holds `length` elements.
    unsafe { collect_of(target, x.as_ptr(), length, base, into) }
}

#[inline(always)]
unsafe fn cut_kernel<L: Lanes, E: Element>(x: *mut u8, length: usize, threshold: f32) {
    // SAFETY: the caller promises `length` elements at `x` and the lanes' features.
    unsafe {
        let wide = L::splat(threshold);
        let mut at = 0;
        while at + L::N <= length {
            let here = x.add(at * E::SIZE);
            let below = L::lt(E::load::<L>(here), wide);
            if L::bits(below) != 0 {
                E::mask::<L>(here, below);
            }
            at += L::N;
        }
        while at < length {
            let here = x.add(at * E::SIZE);
            E::mask::<Scalar>(here, E::load::<Scalar>(here) < threshold);
            at += 1;
        }
    }
}

dispatch! {
    /// Logits below a threshold become minus infinity.
    fn cut_of(x: *mut u8, length: usize, threshold: f32) = cut_kernel
}

/// Sets every logit below `threshold` to minus infinity; the others keep their bits.
///
/// # Panics
/// When the bytes are not whole elements.
pub(crate) fn cut(target: Target, x: &mut [u8], threshold: f32) {
    let length = elements(target, x);
    // SAFETY: the slice holds `length` elements.
    unsafe { cut_of(target, x.as_mut_ptr(), length, threshold) }
}

fn elements(target: Target, row: &[u8]) -> usize {
    assert!(row.len().is_multiple_of(target.kind.size()), "whole elements");
    row.len() / target.kind.size()
}

//! Rows of normalization with quantization to E4M3.
//!
//! What is quantized is computed once, together with its largest magnitude, into a block on the stack; the scale is
//! known only then, and the block is quantized from the first-level cache. Longer rows compute it twice.

use std::mem::MaybeUninit;

use super::dispatch::dispatch;
use super::lanes::{Element, Lanes};
use super::norm::{Ahead, elements, prefetch_pair};
use super::{Kind, Target};

/// Bytes of a block.
const BLOCK_BYTES: usize = 1 << 15;

/// Room for a block of values, as elements of the row's type.
pub(crate) struct Block {
    bytes: MaybeUninit<[u8; BLOCK_BYTES]>,
    /// How many bytes were written.
    filled: usize,
}

impl Block {
    /// A block that holds nothing yet.
    pub(crate) const fn new() -> Self {
        Self { bytes: MaybeUninit::uninit(), filled: 0 }
    }

    /// Elements that fit.
    pub(crate) const fn capacity(kind: Kind) -> usize {
        match kind {
            // Cheap to compute again, and large: a small block leaves the cache to the row.
            Kind::F32 => 1024,
            Kind::F16 | Kind::Bf16 => BLOCK_BYTES / kind.size(),
        }
    }
}

/// The value that is quantized: two roundings, as vLLM's operator has them.
#[inline(always)]
unsafe fn twice_rounded<L: Lanes, E: Element>(x: L::V, w: L::V, inverse: L::V) -> L::V {
    // SAFETY: the caller promises the lanes' features.
    unsafe { E::round::<L>(L::mul(E::round::<L>(L::mul(x, inverse)), w)) }
}

/// Writes the twice rounded values to `v`; returns their largest magnitude, or NaN when one of them is NaN.
#[inline(always)]
unsafe fn values_kernel<L: Lanes, E: Element>(
    x: *const u8,
    w: *const u8,
    v: *mut u8,
    length: usize,
    inverse: f32,
) -> f32 {
    // SAFETY: the caller promises `length` elements at all three and the lanes' features.
    unsafe {
        let inverse = L::splat(inverse);
        let mut largest = [L::splat(0.0); 2];
        let mut at = 0;
        while at + 2 * L::N <= length {
            let offset = at * E::SIZE;
            let [left, right] = E::load_pair::<L>(x.add(offset));
            let [left_gain, right_gain] = E::load_pair::<L>(w.add(offset));
            let left = twice_rounded::<L, E>(left, left_gain, inverse);
            let right = twice_rounded::<L, E>(right, right_gain, inverse);
            E::store_pair::<L>(v.add(offset), [left, right]);
            largest = [L::max_magnitude(left, largest[0]), L::max_magnitude(right, largest[1])];
            at += 2 * L::N;
        }
        while at < length {
            let count = (length - at).min(L::N);
            let offset = at * E::SIZE;
            let value = E::load_part::<L>(x.add(offset), count, 0.0);
            let gain = E::load_part::<L>(w.add(offset), count, 0.0);
            let value = twice_rounded::<L, E>(value, gain, inverse);
            E::store_part::<L>(v.add(offset), count, value);
            largest[0] = L::max_magnitude(value, largest[0]);
            at += count;
        }
        let largest = L::max_magnitude(largest[0], largest[1]);
        if L::bits(L::is_nan(largest)) == 0 { L::largest(largest) } else { f32::NAN }
    }
}

dispatch! {
    /// Values before quantization.
    fn values_of(x: *const u8, w: *const u8, v: *mut u8, length: usize, inverse: f32) -> f32 = values_kernel
}

/// Fills the block with `round(round(x * inverse) * w)`; returns the largest magnitude, NaN when there is a NaN.
///
/// # Panics
/// When the rows differ in length, or do not fit the block.
pub(crate) fn values(target: Target, x: &[u8], w: &[u8], block: &mut Block, inverse: f32) -> f32 {
    let length = elements(target, x);
    assert!(x.len() == w.len() && x.len() <= BLOCK_BYTES, "rows of one length that fit the block");
    let to = block.bytes.as_mut_ptr().cast();
    // SAFETY: both slices hold `length` elements and the block has room for them.
    let largest = unsafe { values_of(target, x.as_ptr(), w.as_ptr(), to, length, inverse) };
    block.filled = x.len();
    largest
}

/// `q = fp8(v / scale)`, the quotient correctly rounded to F32.
#[inline(always)]
unsafe fn quantize_kernel<L: Lanes, E: Element>(
    v: *const u8,
    q: *mut u8,
    length: usize,
    scale: f32,
    next: *const u8,
) {
    // SAFETY: the caller promises `length` elements at `v`, bytes at `q`, and the lanes' features; prefetches
    // are of addresses that need not be valid.
    unsafe {
        let divisor = Divisor::<L> {
            scale: L::splat(scale / L::E4M3_UNIT),
            reciprocal: L::splat(L::E4M3_UNIT / scale),
        };
        let mut at = 0;
        while at + 2 * L::N <= length {
            prefetch_pair::<L, E>(next.wrapping_add(at * E::SIZE));
            let [left, right] = E::load_pair::<L>(v.add(at * E::SIZE));
            let quotients = [divisor.quotient(left), divisor.quotient(right)];
            E::store_codes::<L>(q.add(at), quotients, [left, right]);
            at += 2 * L::N;
        }
        while at < length {
            let count = (length - at).min(L::N);
            let value = E::load_part::<L>(v.add(at * E::SIZE), count, 0.0);
            L::store_e4m3_part(q.add(at), count, divisor.quotient(value), value);
            at += count;
        }
    }
}

/// A divisor and its correctly rounded reciprocal, both scaled for the store by an exact power of two.
#[derive(Clone, Copy)]
struct Divisor<L: Lanes> {
    scale: L::V,
    reciprocal: L::V,
}

impl<L: Lanes> Divisor<L> {
    /// The quotient by the reciprocal and one exact remainder, correctly rounded (Markstein) without the slow
    /// division. It loses the sign of a zero and holds unless the divisor's significand is all ones.
    #[inline(always)]
    unsafe fn quotient(self, v: L::V) -> L::V {
        // SAFETY: the caller promises the lanes' features.
        unsafe {
            let estimate = L::mul(v, self.reciprocal);
            let remainder = L::fnma(estimate, self.scale, v);
            L::fma(remainder, self.reciprocal, estimate)
        }
    }
}

dispatch! {
    /// Quantized values.
    fn quantize_of(v: *const u8, q: *mut u8, length: usize, scale: f32, next: *const u8) = quantize_kernel
}

/// Whether [`quantize`] divides exactly by a scale.
pub(crate) fn divides_exactly(scale: f32) -> bool {
    const SIGNIFICAND: u32 = (1 << 23) - 1;
    // The upper bound leaves room for the power of two in the divisor.
    (1e-30..1e30).contains(&scale) && scale.to_bits() & SIGNIFICAND != SIGNIFICAND
}

/// Quantizes the values that [`values`] left in the block: as many as `q` is long.
///
/// No value may be NaN or exceed 448 scales, which must divide exactly. `row` is the row that the values are of,
/// and `ahead` says where the next one lies.
///
/// # Panics
/// When the lengths differ, the block holds fewer values or the scale does not divide exactly.
pub(crate) fn quantize(
    target: Target,
    block: &Block,
    row: &[u8],
    q: &mut [u8],
    scale: f32,
    ahead: Ahead,
) {
    let length = elements(target, row);
    assert!(
        length == q.len() && row.len() <= block.filled,
        "rows of one length that fill the block"
    );
    assert!(divides_exactly(scale), "a scale that divides exactly");
    let next = row.as_ptr().wrapping_add(ahead.0);
    // SAFETY: that many elements of the block were written, and `q` holds as many bytes.
    unsafe { quantize_of(target, block.bytes.as_ptr().cast(), q.as_mut_ptr(), length, scale, next) }
}

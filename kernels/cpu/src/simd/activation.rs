//! Rows of the gated activations.

use super::Target;
use super::dispatch::dispatch;
use super::exponential::exponential;
use super::lanes::{Element, Lanes};

/// `g * sigmoid(g)`.
///
/// With `t = exp(-|g|)`, which never overflows, it is `g / (1 + t)` for positive g and `g * t / (1 + t)` for
/// negative. Minus infinity gives NaN, as the formula does.
#[inline(always)]
unsafe fn silu<L: Lanes>(g: L::V) -> L::V {
    // SAFETY: the caller promises the lanes' features.
    unsafe {
        // Below -200 the exponential is zero; NaN takes the bound here and comes back through g.
        let d = L::max(L::negative_abs(g), L::splat(-200.0));
        let (fraction, power) = exponential::<L>(d);
        let t = L::scale(fraction, power);
        let numerator = L::select(L::lt(g, L::splat(0.0)), L::mul(g, t), g);
        L::mul(numerator, L::reciprocal(L::add(t, L::splat(1.0))))
    }
}

/// `a = round(silu(g))`, `y = round(a * u)`.
#[inline(always)]
unsafe fn silu_and_mul_kernel<L: Lanes, E: Element>(
    gate: *const u8,
    up: *const u8,
    y: *mut u8,
    length: usize,
) {
    // SAFETY: the caller promises `length` elements at all three and the lanes' features.
    unsafe {
        let mut at = 0;
        while at + 2 * L::N <= length {
            let offset = at * E::SIZE;
            let [left, right] = E::load_pair::<L>(gate.add(offset));
            let [left_up, right_up] = E::load_pair::<L>(up.add(offset));
            let left = L::mul(E::round::<L>(silu::<L>(left)), left_up);
            let right = L::mul(E::round::<L>(silu::<L>(right)), right_up);
            E::store_pair::<L>(y.add(offset), [left, right]);
            at += 2 * L::N;
        }
        while at < length {
            let count = (length - at).min(L::N);
            let offset = at * E::SIZE;
            let a = E::round::<L>(silu::<L>(E::load_part::<L>(gate.add(offset), count, 0.0)));
            let u = E::load_part::<L>(up.add(offset), count, 0.0);
            E::store_part::<L>(y.add(offset), count, L::mul(a, u));
            at += count;
        }
    }
}

dispatch! {
    /// A gated row.
    fn silu_and_mul_of(gate: *const u8, up: *const u8, y: *mut u8, length: usize) = silu_and_mul_kernel
}

/// `y = round(round(silu(gate)) * up)` for one row.
///
/// # Panics
/// When the rows differ in length.
pub(crate) fn silu_and_mul(target: Target, gate: &[u8], up: &[u8], y: &mut [u8]) {
    let size = target.kind.size();
    assert!(
        gate.len() == up.len() && gate.len() == y.len() && gate.len().is_multiple_of(size),
        "rows of one length"
    );
    let length = gate.len() / size;
    // SAFETY: all three slices hold `length` elements.
    unsafe { silu_and_mul_of(target, gate.as_ptr(), up.as_ptr(), y.as_mut_ptr(), length) }
}

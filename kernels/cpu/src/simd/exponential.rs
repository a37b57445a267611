//! The exponential function over lanes.

use super::lanes::Lanes;

/// 1/ln 2 in two parts: the second is what F32 cannot hold of the first.
const LOG2_E: f32 = std::f32::consts::LOG2_E;
const LOG2_E_REST: f32 = 1.925_963e-8;

/// Minimax polynomial of `2^r` on [-1/2, 1/2], relative error 1.9e-9 before its coefficients are F32.
const POLYNOMIAL: [f32; 7] = [
    1.0,
    std::f32::consts::LN_2, // the minimax coefficient rounds to the same F32
    0.240_226_46,
    0.055_503_286,
    0.009_618_489,
    0.001_339_993_1,
    0.000_153_458_12,
];

/// `exp(d) = fraction * 2^power`, for finite `d` in [-200, 88]: power integral, fraction in [0.7, 1.42].
///
/// The error of the fraction is about one ulp. The two stay apart so that a caller can scale last, with a
/// single rounding when the result is subnormal.
#[inline(always)]
pub(super) unsafe fn exponential<L: Lanes>(d: L::V) -> (L::V, L::V) {
    // SAFETY: the caller promises the lanes' features.
    unsafe {
        let log2_e = L::splat(LOG2_E);
        // Adding 1.5 * 2^23 rounds to an integer; taking it away leaves that integer.
        let round = L::splat(12_582_912.0);
        let power = L::sub(L::fma(d, log2_e, round), round);
        // The product is exact inside the subtraction, so `r` carries no rounding of `d / ln 2`.
        let r = L::fms(d, log2_e, power);
        let r = L::fma(d, L::splat(LOG2_E_REST), r);
        let mut fraction = L::splat(POLYNOMIAL[6]);
        for degree in (0..6).rev() {
            fraction = L::fma(fraction, r, L::splat(POLYNOMIAL[degree]));
        }
        (fraction, power)
    }
}

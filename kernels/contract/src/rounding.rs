//! Conversions between f64 and the element types, each with exactly one rounding, and distances in ulp.
//!
//! Going from f64 to a short type through f32 rounds twice and is wrong near midpoints, so the short types
//! are encoded from the bits of the f64 directly.

use half::{bf16, f16};

use crate::dtype::Dtype;

/// Largest finite E4M3 code without its sign (448).
const E4M3_MAX: u64 = 0x7e;
/// The E4M3 NaN code without its sign.
const E4M3_NAN: u64 = 0x7f;

/// Rounds `magnitude` (finite, non-negative) to the nearest lattice point, ties to even, and returns the code
/// counted from zero; the code runs past the largest finite one on overflow.
const fn nearest_code(magnitude: f64, mantissa_bits: u32, min_exponent: i64) -> u64 {
    let bits = magnitude.to_bits();
    let field = (bits >> 52) as i64;
    if field == 0 {
        // Zero, or an f64 subnormal: far below half a step of every type here.
        return 0;
    }
    let significand = (bits & ((1 << 52) - 1)) | (1 << 52);
    let exponent = field - 1023;
    let (binade, below) = if exponent < min_exponent {
        (0, (min_exponent - exponent) as u32)
    } else {
        ((exponent - min_exponent) as u64, 0)
    };
    let dropped = 52 - mantissa_bits + below;
    if dropped > 53 {
        return 0;
    }
    let half = 1u64 << (dropped - 1);
    let odd = (significand >> dropped) & 1;
    let rounded = (significand + half - 1 + odd) >> dropped;
    (binade << mantissa_bits) + rounded
}

/// Rounds to F16 bits: nearest, ties to even, overflow to infinity.
#[must_use]
pub const fn f16_bits(value: f64) -> u16 {
    let sign = ((value.to_bits() >> 48) & 0x8000) as u16;
    if value.is_nan() {
        return sign | 0x7e00;
    }
    let magnitude = value.abs();
    if magnitude.is_infinite() {
        return sign | 0x7c00;
    }
    let code = nearest_code(magnitude, 10, -14);
    sign | if code > 0x7c00 { 0x7c00 } else { code as u16 }
}

/// Rounds to BF16 bits: nearest, ties to even, overflow to infinity.
#[must_use]
pub const fn bf16_bits(value: f64) -> u16 {
    let sign = ((value.to_bits() >> 48) & 0x8000) as u16;
    if value.is_nan() {
        return sign | 0x7fc0;
    }
    let magnitude = value.abs();
    if magnitude.is_infinite() {
        return sign | 0x7f80;
    }
    let code = nearest_code(magnitude, 7, -126);
    sign | if code > 0x7f80 { 0x7f80 } else { code as u16 }
}

/// Rounds to E4M3 bits: nearest, ties to even, saturating at ±448 (infinities too), NaN as 0x7f with its sign.
#[must_use]
pub const fn e4m3_bits(value: f64) -> u8 {
    let sign = ((value.to_bits() >> 56) & 0x80) as u8;
    if value.is_nan() {
        return sign | E4M3_NAN as u8;
    }
    let magnitude = value.abs();
    if magnitude.is_infinite() {
        return sign | E4M3_MAX as u8;
    }
    let code = nearest_code(magnitude, 3, -6);
    sign | if code > E4M3_MAX { E4M3_MAX as u8 } else { code as u8 }
}

/// Decodes E4M3 bits exactly.
#[must_use]
pub fn e4m3_value(bits: u8) -> f64 {
    let magnitude = u64::from(bits & 0x7f);
    let value = if magnitude == E4M3_NAN {
        f64::NAN
    } else if magnitude < 8 {
        magnitude as f64 / 512.0
    } else {
        let exponent = (magnitude >> 3) as i32 - 7;
        (8 + (magnitude & 7)) as f64 / 8.0 * 2f64.powi(exponent)
    };
    if bits & 0x80 == 0 { value } else { -value }
}

/// Rounds to `dtype` once and returns the element's bits, zero-extended.
///
/// Integers saturate, and round to nearest, ties to even.
#[must_use]
pub fn encode(dtype: Dtype, value: f64) -> u64 {
    match dtype {
        Dtype::F32 => u64::from((value as f32).to_bits()),
        Dtype::F16 => u64::from(f16_bits(value)),
        Dtype::BF16 => u64::from(bf16_bits(value)),
        Dtype::F8E4M3 => u64::from(e4m3_bits(value)),
        Dtype::I32 => u64::from(value.round_ties_even() as i32 as u32),
        Dtype::I64 => value.round_ties_even() as i64 as u64,
        Dtype::U8 => u64::from(value.round_ties_even() as u8),
    }
}

/// Decodes the bits of one element; exact for every type but I64 beyond 2^53.
#[must_use]
pub fn decode(dtype: Dtype, bits: u64) -> f64 {
    match dtype {
        Dtype::F32 => f64::from(f32::from_bits(bits as u32)),
        Dtype::F16 => f16::from_bits(bits as u16).to_f64(),
        Dtype::BF16 => bf16::from_bits(bits as u16).to_f64(),
        Dtype::F8E4M3 => e4m3_value(bits as u8),
        Dtype::I32 => f64::from(bits as u32 as i32),
        Dtype::I64 => bits as i64 as f64,
        Dtype::U8 => f64::from(bits as u8),
    }
}

/// The value that storing `value` as `dtype` and loading it again gives: one rounding.
#[must_use]
pub fn round_to(dtype: Dtype, value: f64) -> f64 {
    decode(dtype, encode(dtype, value))
}

/// Position of an element on its type's lattice; both zeros are 0, negative values count down.
fn lattice_index(dtype: Dtype, bits: u64) -> i128 {
    let sign_bit = match dtype {
        Dtype::F32 => 31,
        Dtype::F16 | Dtype::BF16 => 15,
        Dtype::F8E4M3 => 7,
        Dtype::I32 => return i128::from(bits as u32 as i32),
        Dtype::I64 => return i128::from(bits as i64),
        Dtype::U8 => return i128::from(bits as u8),
    };
    let magnitude = i128::from(bits & ((1 << sign_bit) - 1));
    if bits >> sign_bit & 1 == 1 { -magnitude } else { magnitude }
}

/// Number of steps between two elements on the lattice of `dtype`.
///
/// ±0 are the same point, two NaNs are 0 apart, a NaN and a number are `u64::MAX` apart. Infinity is one step
/// beyond the largest finite value.
#[must_use]
pub fn ulp_distance(dtype: Dtype, left: u64, right: u64) -> u64 {
    if dtype.is_float() {
        let (left_nan, right_nan) = (decode(dtype, left).is_nan(), decode(dtype, right).is_nan());
        if left_nan || right_nan {
            return if left_nan && right_nan { 0 } else { u64::MAX };
        }
    }
    let steps = (lattice_index(dtype, left) - lattice_index(dtype, right)).unsigned_abs();
    u64::try_from(steps).unwrap_or(u64::MAX)
}

/// Size of one lattice step of `dtype` at `value`: the gap to the next point away from zero.
///
/// Integers have steps of 1. The value must be finite.
#[must_use]
pub fn ulp_size(dtype: Dtype, value: f64) -> f64 {
    let Some(mantissa) = dtype.mantissa_bits() else {
        return 1.0;
    };
    let magnitude = round_to(dtype, value.abs().min(dtype.max_finite()));
    if magnitude == 0.0 {
        return dtype.min_positive();
    }
    let exponent = ((magnitude.to_bits() >> 52) as i32) - 1023;
    2f64.powi(exponent - mantissa as i32).max(dtype.min_positive())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The neighbor of `value` above or below it in f64.
    fn nudge(value: f64, up: bool) -> f64 {
        if up { value.next_up() } else { value.next_down() }
    }

    fn finite_codes(dtype: Dtype, count: u64) -> Vec<(u64, f64)> {
        (0..count)
            .map(|code| (code, decode(dtype, code)))
            .filter(|(_, value)| value.is_finite())
            .collect()
    }

    fn check_lattice(dtype: Dtype, count: u64, finite: usize) {
        let codes = finite_codes(dtype, count / 2);
        assert_eq!(codes.len(), finite);
        for window in codes.windows(2) {
            let ((low_code, low), (high_code, high)) = (window[0], window[1]);
            for sign in [1.0, -1.0] {
                let sign_bits = if sign < 0.0 { count / 2 } else { 0 };
                assert_eq!(encode(dtype, sign * low), low_code | sign_bits);
                let middle = (low + high) / 2.0;
                let even = if low_code % 2 == 0 { low_code } else { high_code };
                assert_eq!(
                    encode(dtype, sign * middle),
                    even | sign_bits,
                    "{dtype} tie at {middle}"
                );
                assert_eq!(encode(dtype, sign * nudge(middle, true)), high_code | sign_bits);
                assert_eq!(encode(dtype, sign * nudge(middle, false)), low_code | sign_bits);
            }
        }
    }

    #[test]
    fn every_code_and_every_midpoint_rounds_once_to_even() {
        check_lattice(Dtype::F16, 1 << 16, 0x7c00);
        check_lattice(Dtype::BF16, 1 << 16, 0x7f80);
        check_lattice(Dtype::F8E4M3, 1 << 8, 0x7f);
    }

    #[test]
    fn every_non_finite_code_survives_a_round_trip() {
        for dtype in [Dtype::F16, Dtype::BF16] {
            for code in 0..1 << 16 {
                let value = decode(dtype, code);
                if value.is_nan() {
                    assert!(decode(dtype, encode(dtype, value)).is_nan());
                } else {
                    assert_eq!(encode(dtype, value), code);
                }
            }
        }
    }

    #[test]
    fn decoding_agrees_with_a_table_built_from_the_definition() {
        for code in 0u8..=0xff {
            let (exponent, fraction) = (i32::from(code >> 3 & 15), f64::from(code & 7));
            let sign = if code >> 7 == 1 { -1.0 } else { 1.0 };
            let expected = match (exponent, code & 7) {
                (15, 7) => f64::NAN,
                (0, _) => sign * fraction * 2f64.powi(-9),
                _ => sign * (1.0 + fraction / 8.0) * 2f64.powi(exponent - 7),
            };
            let value = e4m3_value(code);
            assert!(value == expected || (value.is_nan() && expected.is_nan()));
            assert_eq!(value.is_sign_negative(), code >> 7 == 1, "sign of {code:#x}");
        }
    }

    #[test]
    fn overflow_goes_to_infinity_in_halves_and_saturates_in_e4m3() {
        assert_eq!(f16_bits(65519.999), 0x7bff);
        assert_eq!(f16_bits(65520.0), 0x7c00);
        assert_eq!(bf16_bits(f64::MAX), 0x7f80);
        assert_eq!(bf16_bits(-3.4e38), 0xff80);
        assert_eq!(e4m3_bits(448.0), 0x7e);
        assert_eq!(e4m3_bits(464.0), 0x7e);
        assert_eq!(e4m3_bits(1e300), 0x7e);
        assert_eq!(e4m3_bits(f64::NEG_INFINITY), 0xfe);
        assert_eq!(e4m3_bits(f64::NAN), 0x7f);
        assert_eq!(e4m3_bits(-f64::NAN), 0xff);
        assert_eq!(e4m3_bits(-0.0), 0x80);
    }

    #[test]
    fn one_rounding_differs_from_two_and_the_single_one_is_used() {
        // Just above the midpoint of 1 and the next F16, by less than f32 can see.
        let value = 1.0 + 2f64.powi(-11) + 2f64.powi(-40);
        assert_eq!(f16_bits(f64::from(value as f32)), 0x3c00);
        assert_eq!(f16_bits(value), 0x3c01);
        let value = 1.0 + 2f64.powi(-8) + 2f64.powi(-40);
        assert_eq!(bf16_bits(f64::from(value as f32)), 0x3f80);
        assert_eq!(bf16_bits(value), 0x3f81);
    }

    #[test]
    fn rounding_from_f32_agrees_with_the_half_crate() {
        let mut word = 0x9e37_79b9_7f4a_7c15_u64;
        for _ in 0..200_000 {
            word = word.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let value = f32::from_bits((word >> 32) as u32);
            if value.is_nan() {
                continue;
            }
            assert_eq!(f16_bits(f64::from(value)), f16::from_f32(value).to_bits());
            assert_eq!(bf16_bits(f64::from(value)), bf16::from_f32(value).to_bits());
        }
    }

    #[test]
    fn distances_count_lattice_steps() {
        assert_eq!(ulp_distance(Dtype::F8E4M3, 0x00, 0x80), 0);
        assert_eq!(ulp_distance(Dtype::F8E4M3, 0x01, 0x81), 2);
        assert_eq!(ulp_distance(Dtype::F8E4M3, 0x7f, 0xff), 0);
        assert_eq!(ulp_distance(Dtype::F8E4M3, 0x7f, 0x7e), u64::MAX);
        assert_eq!(ulp_distance(Dtype::F16, 0x3c00, 0x3c03), 3);
        assert_eq!(ulp_distance(Dtype::BF16, 0x0001, 0x8001), 2);
        assert_eq!(
            ulp_distance(Dtype::F32, u64::from((-0f32).to_bits()), u64::from(0f32.to_bits())),
            0
        );
        assert_eq!(ulp_distance(Dtype::I64, i64::MIN as u64, i64::MAX as u64), u64::MAX);
        assert_eq!(ulp_distance(Dtype::I64, -1i64 as u64, 1), 2);
        assert_eq!(ulp_distance(Dtype::U8, 250, 255), 5);
    }

    #[test]
    fn step_sizes_follow_the_binade() {
        assert_eq!(ulp_size(Dtype::F16, 1.0), 2f64.powi(-10));
        assert_eq!(ulp_size(Dtype::BF16, -3.0), 2f64.powi(-6));
        assert_eq!(ulp_size(Dtype::F8E4M3, 0.0), 2f64.powi(-9));
        assert_eq!(ulp_size(Dtype::F32, 1e-44), 2f64.powi(-149));
    }
}

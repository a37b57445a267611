//! Sixteen lanes: AVX-512 F, BW, VL and DQ.

use std::arch::x86_64::*;

use super::lanes::Lanes;

/// Sixteen F32 lanes in one register.
#[derive(Clone, Copy)]
pub(crate) struct Avx512;

/// The upper half of a lane.
const UPPER: i32 = 0xffff_0000_u32 as i32;

#[inline(always)]
const fn first(count: usize) -> u16 {
    ((1u32 << count) - 1) as u16
}

// SAFETY of every block below: the trait's contract. The caller guarantees the instructions and the pointers;
// masked loads and stores touch no byte outside the mask.
impl Avx512 {
    /// BF16 bits in the upper halves, rounded; the lower halves are left over.
    #[inline(always)]
    unsafe fn bf16_lanes(v: __m512) -> __m512i {
        // SAFETY: see above.
        unsafe {
            let bits = _mm512_castps_si512(v);
            let odd = _mm512_test_epi32_mask(bits, _mm512_set1_epi32(1 << 16));
            let rounded = _mm512_add_epi32(bits, _mm512_set1_epi32(0x7fff));
            _mm512_mask_add_epi32(rounded, odd, rounded, _mm512_set1_epi32(1))
        }
    }

    #[inline(always)]
    unsafe fn bf16_words(v: __m512) -> __m256i {
        // SAFETY: see above.
        unsafe { _mm512_cvtepi32_epi16(_mm512_srli_epi32::<16>(Self::bf16_lanes(v))) }
    }

    /// F16 values of which the upper byte, moved up by one bit, is the E4M3 code but for its sign.
    ///
    /// E4M3 scaled by 2^-8 has the exponents of F16, subnormals included, and three bits of its ten.
    #[inline(always)]
    unsafe fn e4m3_halves(v: __m512, signs: __m512) -> __m256i {
        // SAFETY: see above.
        unsafe {
            // Adding 1.5 * 2^20 times the power of two of v leaves three bits behind the leading one; below the
            // smallest normal number, 2^-14 here, the power stays.
            let bits = _mm512_castps_si512(v);
            let half = _mm512_set1_epi32(0x0040_0000);
            let exponent = _mm512_set1_epi32(0x7f80_0000);
            // (bits & exponent) | half
            let power = _mm512_ternarylogic_epi32::<0b1110_1010>(bits, exponent, half);
            let power =
                _mm512_max_epi32(power, _mm512_set1_epi32(((127 - 14) << 23) | 0x0040_0000));
            let shift = _mm512_castsi512_ps(_mm512_add_epi32(power, _mm512_set1_epi32(20 << 23)));
            let rounded = _mm512_castps_si512(_mm512_sub_ps(_mm512_add_ps(v, shift), shift));
            let sign = _mm512_set1_epi32(i32::MIN);
            // rounded | (signs & sign)
            let signed =
                _mm512_ternarylogic_epi32::<0b1111_1000>(rounded, _mm512_castps_si512(signs), sign);
            _mm512_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(_mm512_castsi512_ps(signed))
        }
    }

    #[inline(always)]
    unsafe fn e4m3_codes(v: __m512, signs: __m512) -> __m128i {
        // SAFETY: see above.
        unsafe {
            let halves = Self::e4m3_halves(v, signs);
            let codes = _mm256_and_si256(_mm256_srli_epi16::<7>(halves), _mm256_set1_epi16(0x7f));
            let signs = _mm256_and_si256(_mm256_srli_epi16::<8>(halves), _mm256_set1_epi16(0x80));
            _mm256_cvtepi16_epi8(_mm256_or_si256(codes, signs))
        }
    }

    #[inline(always)]
    unsafe fn widen_bf16(words: __m256i) -> __m512 {
        // SAFETY: see above.
        unsafe { _mm512_castsi512_ps(_mm512_slli_epi32::<16>(_mm512_cvtepu16_epi32(words))) }
    }
}

// SAFETY of every block below: the trait's contract, as above.
impl Lanes for Avx512 {
    const N: usize = 16;
    const E4M3_UNIT: f32 = 1.0 / 256.0;
    type V = __m512;
    type M = __mmask16;

    #[inline(always)]
    unsafe fn splat(value: f32) -> __m512 {
        // SAFETY: see above.
        unsafe { _mm512_set1_ps(value) }
    }
    #[inline(always)]
    unsafe fn load_f32(from: *const u8) -> __m512 {
        // SAFETY: see above.
        unsafe { _mm512_loadu_ps(from.cast()) }
    }
    #[inline(always)]
    unsafe fn load_f16(from: *const u8) -> __m512 {
        // SAFETY: see above.
        unsafe { _mm512_cvtph_ps(_mm256_loadu_si256(from.cast())) }
    }
    #[inline(always)]
    unsafe fn load_bf16(from: *const u8) -> __m512 {
        // SAFETY: see above.
        unsafe { Self::widen_bf16(_mm256_loadu_si256(from.cast())) }
    }
    #[inline(always)]
    unsafe fn load_bf16_pair(from: *const u8) -> [__m512; 2] {
        // SAFETY: see above.
        unsafe {
            let words = _mm512_loadu_si512(from.cast());
            let even = _mm512_slli_epi32::<16>(words);
            let odd = _mm512_and_si512(words, _mm512_set1_epi32(UPPER));
            [_mm512_castsi512_ps(even), _mm512_castsi512_ps(odd)]
        }
    }
    #[inline(always)]
    unsafe fn load_f32_part(from: *const u8, count: usize, fill: f32) -> __m512 {
        // SAFETY: see above.
        unsafe { _mm512_mask_loadu_ps(_mm512_set1_ps(fill), first(count), from.cast()) }
    }
    #[inline(always)]
    unsafe fn load_f16_part(from: *const u8, count: usize, fill: f32) -> __m512 {
        // SAFETY: see above.
        unsafe {
            let words = _mm256_maskz_loadu_epi16(first(count), from.cast());
            _mm512_mask_cvtph_ps(_mm512_set1_ps(fill), first(count), words)
        }
    }
    #[inline(always)]
    unsafe fn load_bf16_part(from: *const u8, count: usize, fill: f32) -> __m512 {
        // SAFETY: see above.
        unsafe {
            let words = _mm256_maskz_loadu_epi16(first(count), from.cast());
            _mm512_mask_mov_ps(_mm512_set1_ps(fill), first(count), Self::widen_bf16(words))
        }
    }
    #[inline(always)]
    unsafe fn store_f32(to: *mut u8, v: __m512) {
        // SAFETY: see above.
        unsafe { _mm512_storeu_ps(to.cast(), v) }
    }
    #[inline(always)]
    unsafe fn store_f16(to: *mut u8, v: __m512) {
        // SAFETY: see above.
        unsafe { _mm256_storeu_si256(to.cast(), _mm512_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(v)) }
    }
    #[inline(always)]
    unsafe fn store_bf16(to: *mut u8, v: __m512) {
        // SAFETY: see above.
        unsafe { _mm256_storeu_si256(to.cast(), Self::bf16_words(v)) }
    }
    #[inline(always)]
    unsafe fn store_bf16_pair(to: *mut u8, pair: [__m512; 2]) {
        // SAFETY: see above.
        unsafe {
            let even = _mm512_srli_epi32::<16>(Self::bf16_lanes(pair[0]));
            let odd = Self::bf16_lanes(pair[1]);
            // even | (odd & upper)
            let words =
                _mm512_ternarylogic_epi32::<0b1111_1000>(even, odd, _mm512_set1_epi32(UPPER));
            _mm512_storeu_si512(to.cast(), words);
        }
    }
    #[inline(always)]
    unsafe fn store_f32_part(to: *mut u8, count: usize, v: __m512) {
        // SAFETY: see above.
        unsafe { _mm512_mask_storeu_ps(to.cast(), first(count), v) }
    }
    #[inline(always)]
    unsafe fn store_f16_part(to: *mut u8, count: usize, v: __m512) {
        // SAFETY: see above.
        unsafe {
            _mm256_mask_storeu_epi16(
                to.cast(),
                first(count),
                _mm512_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(v),
            )
        }
    }
    #[inline(always)]
    unsafe fn store_bf16_part(to: *mut u8, count: usize, v: __m512) {
        // SAFETY: see above.
        unsafe { _mm256_mask_storeu_epi16(to.cast(), first(count), Self::bf16_words(v)) }
    }
    #[inline(always)]
    unsafe fn store_e4m3(to: *mut u8, v: __m512, signs: __m512) {
        // SAFETY: see above.
        unsafe { _mm_storeu_si128(to.cast(), Self::e4m3_codes(v, signs)) }
    }
    #[inline(always)]
    unsafe fn store_e4m3_part(to: *mut u8, count: usize, v: __m512, signs: __m512) {
        // SAFETY: see above.
        unsafe { _mm_mask_storeu_epi8(to.cast(), first(count), Self::e4m3_codes(v, signs)) }
    }
    #[inline(always)]
    unsafe fn store_e4m3_pair(to: *mut u8, pair: [__m512; 2], signs: [__m512; 2]) {
        // SAFETY: see above.
        unsafe {
            let even = Self::e4m3_halves(pair[0], signs[0]);
            let odd = Self::e4m3_halves(pair[1], signs[1]);
            let low = _mm256_set1_epi16(0x00ff);
            // Even codes in the low bytes, odd codes in the high ones: low ? a : b is 0b1100_1010 of (low, a, b).
            let codes = _mm256_ternarylogic_epi32::<0b1100_1010>(
                low,
                _mm256_srli_epi16::<7>(even),
                _mm256_slli_epi16::<1>(odd),
            );
            let signs =
                _mm256_ternarylogic_epi32::<0b1100_1010>(low, _mm256_srli_epi16::<8>(even), odd);
            let sign = _mm256_set1_epi8(i8::MIN);
            let bytes = _mm256_ternarylogic_epi32::<0b1100_1010>(sign, signs, codes);
            _mm256_storeu_si256(to.cast(), bytes);
        }
    }
    #[inline(always)]
    unsafe fn mask_f32(to: *mut u8, mask: __mmask16) {
        // SAFETY: see above.
        unsafe { _mm512_mask_storeu_ps(to.cast(), mask, _mm512_set1_ps(f32::NEG_INFINITY)) }
    }
    #[inline(always)]
    unsafe fn mask_half(to: *mut u8, mask: __mmask16, pattern: u16) {
        // SAFETY: see above.
        unsafe { _mm256_mask_storeu_epi16(to.cast(), mask, _mm256_set1_epi16(pattern as i16)) }
    }

    #[inline(always)]
    unsafe fn add(a: __m512, b: __m512) -> __m512 {
        // SAFETY: see above.
        unsafe { _mm512_add_ps(a, b) }
    }
    #[inline(always)]
    unsafe fn sub(a: __m512, b: __m512) -> __m512 {
        // SAFETY: see above.
        unsafe { _mm512_sub_ps(a, b) }
    }
    #[inline(always)]
    unsafe fn mul(a: __m512, b: __m512) -> __m512 {
        // SAFETY: see above.
        unsafe { _mm512_mul_ps(a, b) }
    }
    #[inline(always)]
    unsafe fn fms(a: __m512, b: __m512, c: __m512) -> __m512 {
        // SAFETY: see above.
        unsafe { _mm512_fmsub_ps(a, b, c) }
    }
    #[inline(always)]
    unsafe fn fma(a: __m512, b: __m512, c: __m512) -> __m512 {
        // SAFETY: see above.
        unsafe { _mm512_fmadd_ps(a, b, c) }
    }
    #[inline(always)]
    unsafe fn fnma(a: __m512, b: __m512, c: __m512) -> __m512 {
        // SAFETY: see above.
        unsafe { _mm512_fnmadd_ps(a, b, c) }
    }
    #[inline(always)]
    unsafe fn reciprocal(v: __m512) -> __m512 {
        // SAFETY: see above.
        unsafe {
            // One Newton step takes the 14-bit estimate to F32.
            let estimate = _mm512_rcp14_ps(v);
            let error = _mm512_fnmadd_ps(v, estimate, _mm512_set1_ps(1.0));
            _mm512_fmadd_ps(estimate, error, estimate)
        }
    }
    #[inline(always)]
    unsafe fn max(a: __m512, b: __m512) -> __m512 {
        // SAFETY: see above.
        unsafe { _mm512_max_ps(a, b) }
    }
    #[inline(always)]
    unsafe fn max_magnitude(a: __m512, b: __m512) -> __m512 {
        // SAFETY: see above. As integers, magnitudes keep their order and NaN is the largest.
        unsafe {
            let (a, b) = (_mm512_abs_ps(a), _mm512_abs_ps(b));
            let larger = _mm512_max_epu32(_mm512_castps_si512(a), _mm512_castps_si512(b));
            _mm512_castsi512_ps(larger)
        }
    }
    #[inline(always)]
    unsafe fn negative_abs(v: __m512) -> __m512 {
        // SAFETY: see above.
        unsafe {
            let sign = _mm512_set1_epi32(i32::MIN);
            _mm512_castsi512_ps(_mm512_or_si512(_mm512_castps_si512(v), sign))
        }
    }
    #[inline(always)]
    unsafe fn scale(v: __m512, n: __m512) -> __m512 {
        // SAFETY: see above.
        unsafe { _mm512_scalef_ps(v, n) }
    }
    #[inline(always)]
    unsafe fn round_f16(v: __m512) -> __m512 {
        // SAFETY: see above.
        unsafe { _mm512_cvtph_ps(_mm512_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(v)) }
    }
    #[inline(always)]
    unsafe fn round_bf16(v: __m512) -> __m512 {
        // SAFETY: see above.
        unsafe {
            let upper = _mm512_set1_epi32(UPPER);
            _mm512_castsi512_ps(_mm512_and_si512(Self::bf16_lanes(v), upper))
        }
    }

    #[inline(always)]
    unsafe fn gt(a: __m512, b: __m512) -> __mmask16 {
        // SAFETY: see above.
        unsafe { _mm512_cmp_ps_mask::<_CMP_GT_OQ>(a, b) }
    }
    #[inline(always)]
    unsafe fn ge(a: __m512, b: __m512) -> __mmask16 {
        // SAFETY: see above.
        unsafe { _mm512_cmp_ps_mask::<_CMP_GE_OQ>(a, b) }
    }
    #[inline(always)]
    unsafe fn lt(a: __m512, b: __m512) -> __mmask16 {
        // SAFETY: see above.
        unsafe { _mm512_cmp_ps_mask::<_CMP_LT_OQ>(a, b) }
    }
    #[inline(always)]
    unsafe fn is_nan(v: __m512) -> __mmask16 {
        // SAFETY: see above.
        unsafe { _mm512_cmp_ps_mask::<_CMP_UNORD_Q>(v, v) }
    }
    #[inline(always)]
    unsafe fn select(mask: __mmask16, yes: __m512, no: __m512) -> __m512 {
        // SAFETY: see above.
        unsafe { _mm512_mask_mov_ps(no, mask, yes) }
    }
    #[inline(always)]
    unsafe fn or(a: __mmask16, b: __mmask16) -> __mmask16 {
        a | b
    }
    #[inline(always)]
    unsafe fn none() -> __mmask16 {
        0
    }
    #[inline(always)]
    unsafe fn bits(mask: __mmask16) -> u32 {
        u32::from(mask)
    }
    #[inline(always)]
    unsafe fn sum(v: __m512) -> f64 {
        // SAFETY: see above.
        unsafe {
            let low = _mm512_cvtps_pd(_mm512_castps512_ps256(v));
            let high = _mm512_cvtps_pd(_mm512_extractf32x8_ps::<1>(v));
            _mm512_reduce_add_pd(_mm512_add_pd(low, high))
        }
    }
    #[inline(always)]
    unsafe fn largest(v: __m512) -> f32 {
        // SAFETY: see above.
        unsafe { _mm512_reduce_max_ps(v) }
    }
    #[inline(always)]
    unsafe fn prefetch(from: *const u8) {
        // SAFETY: a prefetch never faults.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(from.cast()) }
    }
}

//! Eight lanes: AVX2, FMA and F16C.

use std::arch::x86_64::*;

use super::lanes::Lanes;

/// Eight F32 lanes in one register.
#[derive(Clone, Copy)]
pub(crate) struct Avx2;

/// The upper half of a lane.
const UPPER: i32 = 0xffff_0000_u32 as i32;

/// Copies `count` elements of `SIZE` bytes into a whole register's worth of bytes.
#[inline(always)]
unsafe fn gather_part<const BYTES: usize>(
    from: *const u8,
    count: usize,
    size: usize,
) -> [u8; BYTES] {
    let mut whole = [0u8; BYTES];
    // SAFETY: the caller promises `count` elements, and they fit the array.
    unsafe { std::ptr::copy_nonoverlapping(from, whole.as_mut_ptr(), count * size) };
    whole
}

// SAFETY of every block below: the trait's contract. The caller guarantees the instructions and the pointers.
impl Avx2 {
    /// BF16 bits in the upper halves, rounded; the lower halves are left over.
    #[inline(always)]
    unsafe fn bf16_lanes(v: __m256) -> __m256i {
        // SAFETY: see above.
        unsafe {
            let bits = _mm256_castps_si256(v);
            let odd = _mm256_and_si256(_mm256_srli_epi32::<16>(bits), _mm256_set1_epi32(1));
            _mm256_add_epi32(_mm256_add_epi32(bits, _mm256_set1_epi32(0x7fff)), odd)
        }
    }

    #[inline(always)]
    unsafe fn bf16_words(v: __m256) -> __m128i {
        // SAFETY: see above.
        unsafe {
            let words = _mm256_srli_epi32::<16>(Self::bf16_lanes(v));
            let packed = _mm256_packus_epi32(words, words);
            _mm256_castsi256_si128(_mm256_permute4x64_epi64::<0b1000>(packed))
        }
    }

    /// Eight E4M3 codes in the low bytes of the result.
    #[inline(always)]
    unsafe fn e4m3_codes(v: __m256, signs: __m256) -> u64 {
        // SAFETY: see above.
        unsafe {
            let signs = _mm256_castps_si256(signs);
            let sign = _mm256_and_si256(_mm256_srli_epi32::<24>(signs), _mm256_set1_epi32(0x80));
            let magnitude = Self::magnitude(v);
            let word = _mm256_castps_si256(magnitude);
            let odd = _mm256_and_si256(_mm256_srli_epi32::<20>(word), _mm256_set1_epi32(1));
            let rounded =
                _mm256_add_epi32(_mm256_add_epi32(word, _mm256_set1_epi32(0x7_ffff)), odd);
            let normal =
                _mm256_sub_epi32(_mm256_srli_epi32::<20>(rounded), _mm256_set1_epi32(120 << 3));
            // Adding 2^14 leaves a multiple of 2^-9, the subnormal step, in the low bits.
            let shifted = _mm256_castps_si256(_mm256_add_ps(magnitude, _mm256_set1_ps(16384.0)));
            let below = _mm256_cmp_ps::<_CMP_LT_OQ>(magnitude, _mm256_set1_ps(0.015_625));
            let code = _mm256_blendv_epi8(normal, shifted, _mm256_castps_si256(below));
            let code = _mm256_or_si256(_mm256_and_si256(code, _mm256_set1_epi32(0xff)), sign);
            let pick = _mm256_setr_epi8(
                0, 4, 8, 12, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, 0, 4, 8, 12, -1, -1,
                -1, -1, -1, -1, -1, -1, -1, -1, -1, -1,
            );
            let bytes = _mm256_shuffle_epi8(code, pick);
            let low = _mm_cvtsi128_si32(_mm256_castsi256_si128(bytes)) as u32;
            let high = _mm_cvtsi128_si32(_mm256_extracti128_si256::<1>(bytes)) as u32;
            u64::from(low) | u64::from(high) << 32
        }
    }

    #[inline(always)]
    unsafe fn magnitude(v: __m256) -> __m256 {
        // SAFETY: see above.
        unsafe { _mm256_andnot_ps(_mm256_set1_ps(-0.0), v) }
    }

    #[inline(always)]
    unsafe fn widen_bf16(words: __m128i) -> __m256 {
        // SAFETY: see above.
        unsafe { _mm256_castsi256_ps(_mm256_slli_epi32::<16>(_mm256_cvtepu16_epi32(words))) }
    }

    /// `2^n` for integral `n` in [-126, 127].
    #[inline(always)]
    unsafe fn power(n: __m256i) -> __m256 {
        // SAFETY: see above.
        unsafe {
            _mm256_castsi256_ps(_mm256_slli_epi32::<23>(_mm256_add_epi32(
                n,
                _mm256_set1_epi32(127),
            )))
        }
    }

    /// Lanes below `count` from `v`, the others `fill`.
    #[inline(always)]
    unsafe fn keep(v: __m256, count: usize, fill: f32) -> __m256 {
        // SAFETY: see above.
        unsafe {
            let lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
            let kept = _mm256_cmpgt_epi32(_mm256_set1_epi32(count as i32), lane);
            _mm256_blendv_ps(_mm256_set1_ps(fill), v, _mm256_castsi256_ps(kept))
        }
    }
}

// SAFETY of every block below: the trait's contract, as above.
impl Lanes for Avx2 {
    const N: usize = 8;
    const E4M3_UNIT: f32 = 1.0;
    type V = __m256;
    type M = __m256;

    #[inline(always)]
    unsafe fn splat(value: f32) -> __m256 {
        // SAFETY: see above.
        unsafe { _mm256_set1_ps(value) }
    }
    #[inline(always)]
    unsafe fn load_f32(from: *const u8) -> __m256 {
        // SAFETY: see above.
        unsafe { _mm256_loadu_ps(from.cast()) }
    }
    #[inline(always)]
    unsafe fn load_f16(from: *const u8) -> __m256 {
        // SAFETY: see above.
        unsafe { _mm256_cvtph_ps(_mm_loadu_si128(from.cast())) }
    }
    #[inline(always)]
    unsafe fn load_bf16(from: *const u8) -> __m256 {
        // SAFETY: see above.
        unsafe { Self::widen_bf16(_mm_loadu_si128(from.cast())) }
    }
    #[inline(always)]
    unsafe fn load_bf16_pair(from: *const u8) -> [__m256; 2] {
        // SAFETY: see above.
        unsafe {
            let words = _mm256_loadu_si256(from.cast());
            let even = _mm256_slli_epi32::<16>(words);
            let odd = _mm256_and_si256(words, _mm256_set1_epi32(UPPER));
            [_mm256_castsi256_ps(even), _mm256_castsi256_ps(odd)]
        }
    }
    #[inline(always)]
    unsafe fn load_f32_part(from: *const u8, count: usize, fill: f32) -> __m256 {
        // SAFETY: see above.
        unsafe {
            let whole = gather_part::<32>(from, count, 4);
            Self::keep(Self::load_f32(whole.as_ptr()), count, fill)
        }
    }
    #[inline(always)]
    unsafe fn load_f16_part(from: *const u8, count: usize, fill: f32) -> __m256 {
        // SAFETY: see above.
        unsafe {
            let whole = gather_part::<16>(from, count, 2);
            Self::keep(Self::load_f16(whole.as_ptr()), count, fill)
        }
    }
    #[inline(always)]
    unsafe fn load_bf16_part(from: *const u8, count: usize, fill: f32) -> __m256 {
        // SAFETY: see above.
        unsafe {
            let whole = gather_part::<16>(from, count, 2);
            Self::keep(Self::load_bf16(whole.as_ptr()), count, fill)
        }
    }
    #[inline(always)]
    unsafe fn store_f32(to: *mut u8, v: __m256) {
        // SAFETY: see above.
        unsafe { _mm256_storeu_ps(to.cast(), v) }
    }
    #[inline(always)]
    unsafe fn store_f16(to: *mut u8, v: __m256) {
        // SAFETY: see above.
        unsafe { _mm_storeu_si128(to.cast(), _mm256_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(v)) }
    }
    #[inline(always)]
    unsafe fn store_bf16(to: *mut u8, v: __m256) {
        // SAFETY: see above.
        unsafe { _mm_storeu_si128(to.cast(), Self::bf16_words(v)) }
    }
    #[inline(always)]
    unsafe fn store_bf16_pair(to: *mut u8, pair: [__m256; 2]) {
        // SAFETY: see above.
        unsafe {
            let even = _mm256_srli_epi32::<16>(Self::bf16_lanes(pair[0]));
            let words = _mm256_blend_epi16::<0b1010_1010>(even, Self::bf16_lanes(pair[1]));
            _mm256_storeu_si256(to.cast(), words);
        }
    }
    #[inline(always)]
    unsafe fn store_f32_part(to: *mut u8, count: usize, v: __m256) {
        let mut whole = [0u8; 32];
        // SAFETY: see above; `count` elements fit both the array and the caller's room.
        unsafe {
            Self::store_f32(whole.as_mut_ptr(), v);
            std::ptr::copy_nonoverlapping(whole.as_ptr(), to, count * 4);
        }
    }
    #[inline(always)]
    unsafe fn store_f16_part(to: *mut u8, count: usize, v: __m256) {
        let mut whole = [0u8; 16];
        // SAFETY: see above; `count` elements fit both the array and the caller's room.
        unsafe {
            Self::store_f16(whole.as_mut_ptr(), v);
            std::ptr::copy_nonoverlapping(whole.as_ptr(), to, count * 2);
        }
    }
    #[inline(always)]
    unsafe fn store_bf16_part(to: *mut u8, count: usize, v: __m256) {
        let mut whole = [0u8; 16];
        // SAFETY: see above; `count` elements fit both the array and the caller's room.
        unsafe {
            Self::store_bf16(whole.as_mut_ptr(), v);
            std::ptr::copy_nonoverlapping(whole.as_ptr(), to, count * 2);
        }
    }
    #[inline(always)]
    unsafe fn store_e4m3(to: *mut u8, v: __m256, signs: __m256) {
        // SAFETY: see above.
        unsafe { to.cast::<[u8; 8]>().write(Self::e4m3_codes(v, signs).to_le_bytes()) }
    }
    #[inline(always)]
    unsafe fn store_e4m3_part(to: *mut u8, count: usize, v: __m256, signs: __m256) {
        // SAFETY: see above; `count` bytes fit both the array and the caller's room.
        unsafe {
            let codes = Self::e4m3_codes(v, signs).to_le_bytes();
            std::ptr::copy_nonoverlapping(codes.as_ptr(), to, count);
        }
    }
    #[inline(always)]
    unsafe fn store_e4m3_pair(to: *mut u8, pair: [__m256; 2], signs: [__m256; 2]) {
        // SAFETY: see above.
        unsafe {
            let (even, odd) =
                (Self::e4m3_codes(pair[0], signs[0]), Self::e4m3_codes(pair[1], signs[1]));
            let both =
                _mm_unpacklo_epi8(_mm_cvtsi64_si128(even as i64), _mm_cvtsi64_si128(odd as i64));
            _mm_storeu_si128(to.cast(), both);
        }
    }
    #[inline(always)]
    unsafe fn mask_f32(to: *mut u8, mask: __m256) {
        // SAFETY: see above; a masked store touches only the lanes of its mask.
        unsafe {
            let gone = _mm256_set1_ps(f32::NEG_INFINITY);
            _mm256_maskstore_ps(to.cast(), _mm256_castps_si256(mask), gone);
        }
    }
    #[inline(always)]
    unsafe fn mask_half(to: *mut u8, mask: __m256, pattern: u16) {
        // SAFETY: see above; all eight elements are the caller's.
        unsafe {
            let wide = _mm256_castps_si256(mask);
            let packed =
                _mm_packs_epi32(_mm256_castsi256_si128(wide), _mm256_extracti128_si256::<1>(wide));
            let kept = _mm_loadu_si128(to.cast());
            let words = _mm_blendv_epi8(kept, _mm_set1_epi16(pattern as i16), packed);
            _mm_storeu_si128(to.cast(), words);
        }
    }

    #[inline(always)]
    unsafe fn add(a: __m256, b: __m256) -> __m256 {
        // SAFETY: see above.
        unsafe { _mm256_add_ps(a, b) }
    }
    #[inline(always)]
    unsafe fn sub(a: __m256, b: __m256) -> __m256 {
        // SAFETY: see above.
        unsafe { _mm256_sub_ps(a, b) }
    }
    #[inline(always)]
    unsafe fn mul(a: __m256, b: __m256) -> __m256 {
        // SAFETY: see above.
        unsafe { _mm256_mul_ps(a, b) }
    }
    #[inline(always)]
    unsafe fn fms(a: __m256, b: __m256, c: __m256) -> __m256 {
        // SAFETY: see above.
        unsafe { _mm256_fmsub_ps(a, b, c) }
    }
    #[inline(always)]
    unsafe fn fma(a: __m256, b: __m256, c: __m256) -> __m256 {
        // SAFETY: see above.
        unsafe { _mm256_fmadd_ps(a, b, c) }
    }
    #[inline(always)]
    unsafe fn fnma(a: __m256, b: __m256, c: __m256) -> __m256 {
        // SAFETY: see above.
        unsafe { _mm256_fnmadd_ps(a, b, c) }
    }
    #[inline(always)]
    unsafe fn reciprocal(v: __m256) -> __m256 {
        // SAFETY: see above.
        unsafe { _mm256_div_ps(_mm256_set1_ps(1.0), v) }
    }
    #[inline(always)]
    unsafe fn max(a: __m256, b: __m256) -> __m256 {
        // SAFETY: see above.
        unsafe { _mm256_max_ps(a, b) }
    }
    #[inline(always)]
    unsafe fn max_magnitude(a: __m256, b: __m256) -> __m256 {
        // SAFETY: see above. As integers, magnitudes keep their order and NaN is the largest.
        unsafe {
            let (a, b) = (Self::magnitude(a), Self::magnitude(b));
            let larger = _mm256_max_epu32(_mm256_castps_si256(a), _mm256_castps_si256(b));
            _mm256_castsi256_ps(larger)
        }
    }
    #[inline(always)]
    unsafe fn negative_abs(v: __m256) -> __m256 {
        // SAFETY: see above.
        unsafe { _mm256_or_ps(_mm256_set1_ps(-0.0), v) }
    }
    #[inline(always)]
    unsafe fn scale(v: __m256, n: __m256) -> __m256 {
        // SAFETY: see above.
        unsafe {
            // In three factors, each a normal power of two: the first two products are exact for v near 1.
            let n = _mm256_cvtps_epi32(n);
            let first = _mm256_max_epi32(n, _mm256_set1_epi32(-100));
            let rest = _mm256_sub_epi32(n, first);
            let second = _mm256_max_epi32(rest, _mm256_set1_epi32(-100));
            let third = _mm256_sub_epi32(rest, second);
            let v = _mm256_mul_ps(_mm256_mul_ps(v, Self::power(third)), Self::power(second));
            _mm256_mul_ps(v, Self::power(first))
        }
    }
    #[inline(always)]
    unsafe fn round_f16(v: __m256) -> __m256 {
        // SAFETY: see above.
        unsafe { _mm256_cvtph_ps(_mm256_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(v)) }
    }
    #[inline(always)]
    unsafe fn round_bf16(v: __m256) -> __m256 {
        // SAFETY: see above.
        unsafe {
            let upper = _mm256_set1_epi32(UPPER);
            _mm256_castsi256_ps(_mm256_and_si256(Self::bf16_lanes(v), upper))
        }
    }

    #[inline(always)]
    unsafe fn gt(a: __m256, b: __m256) -> __m256 {
        // SAFETY: see above.
        unsafe { _mm256_cmp_ps::<_CMP_GT_OQ>(a, b) }
    }
    #[inline(always)]
    unsafe fn ge(a: __m256, b: __m256) -> __m256 {
        // SAFETY: see above.
        unsafe { _mm256_cmp_ps::<_CMP_GE_OQ>(a, b) }
    }
    #[inline(always)]
    unsafe fn lt(a: __m256, b: __m256) -> __m256 {
        // SAFETY: see above.
        unsafe { _mm256_cmp_ps::<_CMP_LT_OQ>(a, b) }
    }
    #[inline(always)]
    unsafe fn is_nan(v: __m256) -> __m256 {
        // SAFETY: see above.
        unsafe { _mm256_cmp_ps::<_CMP_UNORD_Q>(v, v) }
    }
    #[inline(always)]
    unsafe fn select(mask: __m256, yes: __m256, no: __m256) -> __m256 {
        // SAFETY: see above.
        unsafe { _mm256_blendv_ps(no, yes, mask) }
    }
    #[inline(always)]
    unsafe fn or(a: __m256, b: __m256) -> __m256 {
        // SAFETY: see above.
        unsafe { _mm256_or_ps(a, b) }
    }
    #[inline(always)]
    unsafe fn none() -> __m256 {
        // SAFETY: see above.
        unsafe { _mm256_setzero_ps() }
    }
    #[inline(always)]
    unsafe fn bits(mask: __m256) -> u32 {
        // SAFETY: see above.
        unsafe { _mm256_movemask_ps(mask) as u32 }
    }
    #[inline(always)]
    unsafe fn sum(v: __m256) -> f64 {
        // SAFETY: see above.
        unsafe {
            let low = _mm256_cvtps_pd(_mm256_castps256_ps128(v));
            let high = _mm256_cvtps_pd(_mm256_extractf128_ps::<1>(v));
            let four = _mm256_add_pd(low, high);
            let two = _mm_add_pd(_mm256_castpd256_pd128(four), _mm256_extractf128_pd::<1>(four));
            _mm_cvtsd_f64(_mm_add_sd(two, _mm_unpackhi_pd(two, two)))
        }
    }
    #[inline(always)]
    unsafe fn largest(v: __m256) -> f32 {
        // SAFETY: see above.
        unsafe {
            let four = _mm_max_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps::<1>(v));
            let two = _mm_max_ps(four, _mm_movehl_ps(four, four));
            _mm_cvtss_f32(_mm_max_ss(two, _mm_movehdup_ps(two)))
        }
    }
    #[inline(always)]
    unsafe fn prefetch(from: *const u8) {
        // SAFETY: a prefetch never faults.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(from.cast()) }
    }
}

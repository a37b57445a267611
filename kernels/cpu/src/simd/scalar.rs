//! One lane in plain Rust: runs everywhere, and is what the wide paths are compared with.

use half::{bf16, f16};
use proofhouse_contract::rounding;

use super::lanes::Lanes;

/// One F32 lane.
#[derive(Clone, Copy)]
pub(crate) struct Scalar;

#[inline(always)]
unsafe fn read<const SIZE: usize>(from: *const u8) -> [u8; SIZE] {
    // SAFETY: the caller promises one element of `SIZE` bytes; a byte array needs no alignment.
    unsafe { from.cast::<[u8; SIZE]>().read() }
}

#[inline(always)]
unsafe fn write<const SIZE: usize>(to: *mut u8, bytes: [u8; SIZE]) {
    // SAFETY: the caller promises room for one element of `SIZE` bytes; a byte array needs no alignment.
    unsafe { to.cast::<[u8; SIZE]>().write(bytes) }
}

impl Lanes for Scalar {
    const N: usize = 1;
    const E4M3_UNIT: f32 = 1.0;
    type V = f32;
    type M = bool;

    #[inline(always)]
    unsafe fn splat(value: f32) -> f32 {
        value
    }
    #[inline(always)]
    unsafe fn load_f32(from: *const u8) -> f32 {
        // SAFETY: the caller's promise is the same.
        f32::from_le_bytes(unsafe { read(from) })
    }
    #[inline(always)]
    unsafe fn load_f16(from: *const u8) -> f32 {
        // SAFETY: the caller's promise is the same.
        f16::from_le_bytes(unsafe { read(from) }).to_f32()
    }
    #[inline(always)]
    unsafe fn load_bf16(from: *const u8) -> f32 {
        // SAFETY: the caller's promise is the same.
        bf16::from_le_bytes(unsafe { read(from) }).to_f32()
    }
    #[inline(always)]
    unsafe fn load_bf16_pair(from: *const u8) -> [f32; 2] {
        // SAFETY: the caller promises two elements.
        unsafe { [Self::load_bf16(from), Self::load_bf16(from.add(2))] }
    }
    #[inline(always)]
    unsafe fn load_f32_part(from: *const u8, count: usize, fill: f32) -> f32 {
        // SAFETY: the element is read only when the caller promises it.
        if count == 0 { fill } else { unsafe { Self::load_f32(from) } }
    }
    #[inline(always)]
    unsafe fn load_f16_part(from: *const u8, count: usize, fill: f32) -> f32 {
        // SAFETY: the element is read only when the caller promises it.
        if count == 0 { fill } else { unsafe { Self::load_f16(from) } }
    }
    #[inline(always)]
    unsafe fn load_bf16_part(from: *const u8, count: usize, fill: f32) -> f32 {
        // SAFETY: the element is read only when the caller promises it.
        if count == 0 { fill } else { unsafe { Self::load_bf16(from) } }
    }
    #[inline(always)]
    unsafe fn store_f32(to: *mut u8, v: f32) {
        // SAFETY: the caller's promise is the same.
        unsafe { write(to, v.to_le_bytes()) }
    }
    #[inline(always)]
    unsafe fn store_f16(to: *mut u8, v: f32) {
        // SAFETY: the caller's promise is the same.
        unsafe { write(to, f16::from_f32(v).to_le_bytes()) }
    }
    #[inline(always)]
    unsafe fn store_bf16(to: *mut u8, v: f32) {
        // SAFETY: the caller's promise is the same.
        unsafe { write(to, bf16::from_f32(v).to_le_bytes()) }
    }
    #[inline(always)]
    unsafe fn store_bf16_pair(to: *mut u8, pair: [f32; 2]) {
        // SAFETY: the caller promises room for two elements.
        unsafe {
            Self::store_bf16(to, pair[0]);
            Self::store_bf16(to.add(2), pair[1]);
        }
    }
    #[inline(always)]
    unsafe fn store_f32_part(to: *mut u8, count: usize, v: f32) {
        if count > 0 {
            // SAFETY: the caller promises room for one element.
            unsafe { Self::store_f32(to, v) }
        }
    }
    #[inline(always)]
    unsafe fn store_f16_part(to: *mut u8, count: usize, v: f32) {
        if count > 0 {
            // SAFETY: the caller promises room for one element.
            unsafe { Self::store_f16(to, v) }
        }
    }
    #[inline(always)]
    unsafe fn store_bf16_part(to: *mut u8, count: usize, v: f32) {
        if count > 0 {
            // SAFETY: the caller promises room for one element.
            unsafe { Self::store_bf16(to, v) }
        }
    }
    #[inline(always)]
    unsafe fn store_e4m3(to: *mut u8, v: f32, signs: f32) {
        let code = rounding::e4m3_bits(f64::from(v.abs())) & 0x7f;
        let sign = ((signs.to_bits() >> 24) & 0x80) as u8;
        // SAFETY: the caller promises room for one byte.
        unsafe { write(to, [code | sign]) }
    }
    #[inline(always)]
    unsafe fn store_e4m3_part(to: *mut u8, count: usize, v: f32, signs: f32) {
        if count > 0 {
            // SAFETY: the caller promises room for one byte.
            unsafe { Self::store_e4m3(to, v, signs) }
        }
    }
    #[inline(always)]
    unsafe fn store_e4m3_pair(to: *mut u8, pair: [f32; 2], signs: [f32; 2]) {
        // SAFETY: the caller promises room for two bytes.
        unsafe {
            Self::store_e4m3(to, pair[0], signs[0]);
            Self::store_e4m3(to.add(1), pair[1], signs[1]);
        }
    }
    #[inline(always)]
    unsafe fn mask_f32(to: *mut u8, mask: bool) {
        if mask {
            // SAFETY: the caller promises room for one element.
            unsafe { write(to, f32::NEG_INFINITY.to_le_bytes()) }
        }
    }
    #[inline(always)]
    unsafe fn mask_half(to: *mut u8, mask: bool, pattern: u16) {
        if mask {
            // SAFETY: the caller promises room for one element.
            unsafe { write(to, pattern.to_le_bytes()) }
        }
    }

    #[inline(always)]
    unsafe fn add(a: f32, b: f32) -> f32 {
        a + b
    }
    #[inline(always)]
    unsafe fn sub(a: f32, b: f32) -> f32 {
        a - b
    }
    #[inline(always)]
    unsafe fn mul(a: f32, b: f32) -> f32 {
        a * b
    }
    #[inline(always)]
    unsafe fn fma(a: f32, b: f32, c: f32) -> f32 {
        fused(a, b, c)
    }
    #[inline(always)]
    unsafe fn fms(a: f32, b: f32, c: f32) -> f32 {
        fused(a, b, -c)
    }
    #[inline(always)]
    unsafe fn fnma(a: f32, b: f32, c: f32) -> f32 {
        fused(-a, b, c)
    }
    #[inline(always)]
    unsafe fn reciprocal(v: f32) -> f32 {
        1.0 / v
    }
    #[inline(always)]
    unsafe fn max(a: f32, b: f32) -> f32 {
        if a > b { a } else { b }
    }
    #[inline(always)]
    unsafe fn max_magnitude(a: f32, b: f32) -> f32 {
        // As integers, magnitudes keep their order and NaN is the largest.
        f32::from_bits(a.abs().to_bits().max(b.abs().to_bits()))
    }
    #[inline(always)]
    unsafe fn negative_abs(v: f32) -> f32 {
        -v.abs()
    }
    #[inline(always)]
    unsafe fn scale(v: f32, n: f32) -> f32 {
        // Exact in F64, rounded once by the conversion.
        let power = f64::from_bits(((n as i64).wrapping_add(1023) as u64) << 52);
        (f64::from(v) * power) as f32
    }
    #[inline(always)]
    unsafe fn round_f16(v: f32) -> f32 {
        f16::from_f32(v).to_f32()
    }
    #[inline(always)]
    unsafe fn round_bf16(v: f32) -> f32 {
        bf16::from_f32(v).to_f32()
    }

    #[inline(always)]
    unsafe fn gt(a: f32, b: f32) -> bool {
        a > b
    }
    #[inline(always)]
    unsafe fn ge(a: f32, b: f32) -> bool {
        a >= b
    }
    #[inline(always)]
    unsafe fn lt(a: f32, b: f32) -> bool {
        a < b
    }
    #[inline(always)]
    unsafe fn is_nan(v: f32) -> bool {
        v.is_nan()
    }
    #[inline(always)]
    unsafe fn select(mask: bool, yes: f32, no: f32) -> f32 {
        if mask { yes } else { no }
    }
    #[inline(always)]
    unsafe fn or(a: bool, b: bool) -> bool {
        a | b
    }
    #[inline(always)]
    unsafe fn none() -> bool {
        false
    }
    #[inline(always)]
    unsafe fn bits(mask: bool) -> u32 {
        u32::from(mask)
    }
    #[inline(always)]
    unsafe fn sum(v: f32) -> f64 {
        f64::from(v)
    }
    #[inline(always)]
    unsafe fn largest(v: f32) -> f32 {
        v
    }
    #[inline(always)]
    unsafe fn prefetch(_: *const u8) {}
}

/// `a * b + c`: the product of two F32 is exact in F64, where `mul_add` would be a library call.
#[inline(always)]
fn fused(a: f32, b: f32, c: f32) -> f32 {
    (f64::from(a) * f64::from(b) + f64::from(c)) as f32
}

//! The lowest floor: a vector of F32 lanes, and how elements of each type get in and out of it.
//!
//! Arithmetic is F32 in every lane. Methods are unsafe because an implementation may need instructions that the
//! caller must know to be there, and because they read and write through pointers. They are all
//! `inline(always)`, so that they become single instructions inside the functions that enable the features.

/// A vector type of one instruction set.
///
/// # Safety of every method
/// The instruction set of the implementing type must be available. Pointers must be valid for the elements
/// that the name says: [`Lanes::N`] of them, or `count` (at most `N`) where there is a `count`. No alignment
/// is needed.
pub(crate) trait Lanes: Copy {
    /// Number of lanes.
    const N: usize;
    /// The power of two that quotients are scaled by before they are stored as E4M3.
    const E4M3_UNIT: f32;
    /// `N` F32 values.
    type V: Copy;
    /// `N` truth values.
    type M: Copy;

    unsafe fn splat(value: f32) -> Self::V;
    unsafe fn load_f32(from: *const u8) -> Self::V;
    unsafe fn load_f16(from: *const u8) -> Self::V;
    unsafe fn load_bf16(from: *const u8) -> Self::V;
    /// Loads `count` elements; the other lanes are `fill`.
    unsafe fn load_f32_part(from: *const u8, count: usize, fill: f32) -> Self::V;
    unsafe fn load_f16_part(from: *const u8, count: usize, fill: f32) -> Self::V;
    unsafe fn load_bf16_part(from: *const u8, count: usize, fill: f32) -> Self::V;
    /// Loads `2 * N` BF16: elements at even places, then elements at odd places.
    unsafe fn load_bf16_pair(from: *const u8) -> [Self::V; 2];
    unsafe fn store_f32(to: *mut u8, v: Self::V);
    unsafe fn store_f16(to: *mut u8, v: Self::V);
    unsafe fn store_bf16(to: *mut u8, v: Self::V);
    /// The reverse of [`Lanes::load_bf16_pair`], rounding.
    unsafe fn store_bf16_pair(to: *mut u8, pair: [Self::V; 2]);
    unsafe fn store_f32_part(to: *mut u8, count: usize, v: Self::V);
    unsafe fn store_f16_part(to: *mut u8, count: usize, v: Self::V);
    unsafe fn store_bf16_part(to: *mut u8, count: usize, v: Self::V);
    /// Rounds quotients to E4M3 bytes: nearest even. They carry the factor [`Lanes::E4M3_UNIT`], are not NaN and
    /// round to at most 448; the signs are those of `signs`.
    unsafe fn store_e4m3(to: *mut u8, v: Self::V, signs: Self::V);
    unsafe fn store_e4m3_part(to: *mut u8, count: usize, v: Self::V, signs: Self::V);
    /// As [`Lanes::store_e4m3`] for `2 * N` elements in the order of [`Lanes::load_bf16_pair`].
    unsafe fn store_e4m3_pair(to: *mut u8, pair: [Self::V; 2], signs: [Self::V; 2]);
    /// Stores F32 minus infinity in the lanes of the mask; the other elements keep their bits.
    unsafe fn mask_f32(to: *mut u8, mask: Self::M);
    /// Stores a 16-bit pattern in the lanes of the mask; the other elements keep their bits.
    unsafe fn mask_half(to: *mut u8, mask: Self::M, pattern: u16);

    unsafe fn add(a: Self::V, b: Self::V) -> Self::V;
    unsafe fn sub(a: Self::V, b: Self::V) -> Self::V;
    unsafe fn mul(a: Self::V, b: Self::V) -> Self::V;
    /// `a * b + c` with one rounding.
    unsafe fn fma(a: Self::V, b: Self::V, c: Self::V) -> Self::V;
    /// `a * b - c` with one rounding.
    unsafe fn fms(a: Self::V, b: Self::V, c: Self::V) -> Self::V;
    /// `c - a * b` with one rounding.
    unsafe fn fnma(a: Self::V, b: Self::V, c: Self::V) -> Self::V;
    /// `1 / v` for `v` in [1, 2], to about one ulp.
    unsafe fn reciprocal(v: Self::V) -> Self::V;
    /// `a > b ? a : b`: `b` where `a` is NaN.
    unsafe fn max(a: Self::V, b: Self::V) -> Self::V;
    /// The larger magnitude; NaN where either is NaN.
    unsafe fn max_magnitude(a: Self::V, b: Self::V) -> Self::V;
    unsafe fn negative_abs(v: Self::V) -> Self::V;
    /// `v * 2^n` for integral `n` in [-300, 127], with one rounding.
    unsafe fn scale(v: Self::V, n: Self::V) -> Self::V;
    /// What a store as F16 and a load give back.
    unsafe fn round_f16(v: Self::V) -> Self::V;
    /// What a store as BF16 and a load give back. A NaN stays one when its lower 16 bits are clear, as they are in
    /// every NaN that comes from a BF16 or from an invalid operation; the stores ask for the same.
    unsafe fn round_bf16(v: Self::V) -> Self::V;

    unsafe fn gt(a: Self::V, b: Self::V) -> Self::M;
    unsafe fn ge(a: Self::V, b: Self::V) -> Self::M;
    unsafe fn lt(a: Self::V, b: Self::V) -> Self::M;
    unsafe fn is_nan(v: Self::V) -> Self::M;
    unsafe fn select(mask: Self::M, yes: Self::V, no: Self::V) -> Self::V;
    unsafe fn or(a: Self::M, b: Self::M) -> Self::M;
    unsafe fn none() -> Self::M;
    /// One bit per lane, the first lane lowest.
    unsafe fn bits(mask: Self::M) -> u32;

    /// The sum of all lanes, added in F64 in a fixed order.
    unsafe fn sum(v: Self::V) -> f64;
    /// The largest lane; NaN lanes do not count.
    unsafe fn largest(v: Self::V) -> f32;
    /// Asks for the cache line at an address that need not be valid.
    unsafe fn prefetch(from: *const u8);
}

/// An element type of activations.
pub(crate) trait Element: Copy {
    /// Bytes of one element.
    const SIZE: usize;
    unsafe fn load<L: Lanes>(from: *const u8) -> L::V;
    unsafe fn load_part<L: Lanes>(from: *const u8, count: usize, fill: f32) -> L::V;
    /// Loads `2 * N` elements into two vectors, in an order of the type's own.
    unsafe fn load_pair<L: Lanes>(from: *const u8) -> [L::V; 2];
    /// Stores what lies in the order of [`Element::load_pair`].
    unsafe fn store_pair<L: Lanes>(to: *mut u8, pair: [L::V; 2]);
    /// Stores E4M3 bytes of what lies in the order of [`Element::load_pair`].
    unsafe fn store_codes<L: Lanes>(to: *mut u8, pair: [L::V; 2], signs: [L::V; 2]);
    unsafe fn store_part<L: Lanes>(to: *mut u8, count: usize, v: L::V);
    unsafe fn round<L: Lanes>(v: L::V) -> L::V;
    /// Stores minus infinity in the lanes of the mask; the other elements keep their bits.
    unsafe fn mask<L: Lanes>(to: *mut u8, mask: L::M);
}

/// IEEE binary32 elements.
#[derive(Clone, Copy)]
pub(crate) struct F32;
/// IEEE binary16 elements.
#[derive(Clone, Copy)]
pub(crate) struct F16;
/// Upper halves of binary32.
#[derive(Clone, Copy)]
pub(crate) struct Bf16;

macro_rules! element {
    (@pairs consecutive, $size:expr, $load:ident, $store:ident) => {
        #[inline(always)]
        unsafe fn load_pair<L: Lanes>(from: *const u8) -> [L::V; 2] {
            // SAFETY: the caller promises `2 * N` elements.
            unsafe { [L::$load(from), L::$load(from.add(L::N * $size))] }
        }

        #[inline(always)]
        unsafe fn store_pair<L: Lanes>(to: *mut u8, pair: [L::V; 2]) {
            // SAFETY: the caller promises room for `2 * N` elements.
            unsafe {
                L::$store(to, pair[0]);
                L::$store(to.add(L::N * $size), pair[1]);
            }
        }

        #[inline(always)]
        unsafe fn store_codes<L: Lanes>(to: *mut u8, pair: [L::V; 2], signs: [L::V; 2]) {
            // SAFETY: the caller promises room for `2 * N` bytes.
            unsafe {
                L::store_e4m3(to, pair[0], signs[0]);
                L::store_e4m3(to.add(L::N), pair[1], signs[1]);
            }
        }
    };
    (@pairs alternating, $size:expr, $load:ident, $store:ident) => {
        #[inline(always)]
        unsafe fn load_pair<L: Lanes>(from: *const u8) -> [L::V; 2] {
            // SAFETY: the caller's promise is the same.
            unsafe { L::load_bf16_pair(from) }
        }

        #[inline(always)]
        unsafe fn store_pair<L: Lanes>(to: *mut u8, pair: [L::V; 2]) {
            // SAFETY: the caller's promise is the same.
            unsafe { L::store_bf16_pair(to, pair) }
        }

        #[inline(always)]
        unsafe fn store_codes<L: Lanes>(to: *mut u8, pair: [L::V; 2], signs: [L::V; 2]) {
            // SAFETY: the caller's promise is the same.
            unsafe { L::store_e4m3_pair(to, pair, signs) }
        }
    };
    ($type:ident, $pairs:ident, $size:expr, $load:ident, $load_part:ident, $store:ident, $store_part:ident, |$v:ident| $round:expr, |$to:ident, $mask:ident| $masked:expr) => {
        impl Element for $type {
            const SIZE: usize = $size;

            #[inline(always)]
            unsafe fn load<L: Lanes>(from: *const u8) -> L::V {
                // SAFETY: the caller's promise is the same.
                unsafe { L::$load(from) }
            }

            #[inline(always)]
            unsafe fn load_part<L: Lanes>(from: *const u8, count: usize, fill: f32) -> L::V {
                // SAFETY: the caller's promise is the same.
                unsafe { L::$load_part(from, count, fill) }
            }

            element!(@pairs $pairs, $size, $load, $store);

            #[inline(always)]
            unsafe fn store_part<L: Lanes>(to: *mut u8, count: usize, v: L::V) {
                // SAFETY: the caller's promise is the same.
                unsafe { L::$store_part(to, count, v) }
            }

            #[inline(always)]
            unsafe fn round<L: Lanes>($v: L::V) -> L::V {
                $round
            }

            #[inline(always)]
            unsafe fn mask<L: Lanes>($to: *mut u8, $mask: L::M) {
                // SAFETY: the caller's promise is the same.
                unsafe { $masked }
            }
        }
    };
}

element!(
    F32,
    consecutive,
    4,
    load_f32,
    load_f32_part,
    store_f32,
    store_f32_part,
    |v| v,
    |to, mask| L::mask_f32(to, mask)
);
element!(
    F16,
    consecutive,
    2,
    load_f16,
    load_f16_part,
    store_f16,
    store_f16_part,
    |v| {
        // SAFETY: the caller's promise is the same.
        unsafe { L::round_f16(v) }
    },
    |to, mask| L::mask_half(to, mask, 0xfc00)
);
element!(
    Bf16,
    alternating,
    2,
    load_bf16,
    load_bf16_part,
    store_bf16,
    store_bf16_part,
    |v| {
        // SAFETY: the caller's promise is the same.
        unsafe { L::round_bf16(v) }
    },
    |to, mask| L::mask_half(to, mask, 0xff80)
);

//! Seeded inputs: every element follows from the seed, the tensor's name and the element's index alone.
//!
//! Only integer arithmetic, one conversion of a short integer to f64 and multiplications by powers of two are
//! used before the single rounding to the element type (the exceptions are named below and are exact in f64),
//! so a device twin gives the same bytes.
//!
//! # Words
//! `mix(z)` is the SplitMix64 finalizer: `z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9`, `z = (z ^ (z >> 27)) *
//! 0x94d049bb133111eb`, `z ^ (z >> 31)`, all modulo 2^64. A stream's key is `mix(seed ^ fnv1a(name))` with the
//! 64-bit FNV-1a hash of the tensor's name. Word `lane` (0 to 3) of element `i` is
//! `mix(key + (4*i + lane + 1) * 0x9e3779b97f4a7c15)`. Element `i` counts logical elements in row order.
//!
//! # Values
//! - *normal*: the twelve 16-bit pieces of words 0 to 2 are added; the sum less 393210 is divided by 65536.
//!   Mean 0, standard deviation 1 to five digits, range ±6; exact in F32.
//! - *uniform*: the top 24 bits of word 0, less 2^23, divided by 2^23: [-1, 1), exact in F32.
//! - *all-equal*: 0.7109375, exact in every type.
//! - *cancelling*: even elements are 64 times a normal value; an odd element is the negative of the one before
//!   it plus 1/64 of its own uniform value. A counterpart tensor is the negative of its partner's value plus
//!   1/64 of its own uniform value.
//! - *huge*: the limit times k/256 with k = 129 + (word 0 >> 57) (129 to 256), negative when the lowest bit of
//!   word 0 is set. The limit is the type's largest finite value F, or the smaller of F and
//!   2^floor((122 - b) / 2) with b the number of binary digits of the width, or half of that (see
//!   [`crate::spec::HugeLimit`]).
//! - *subnormal*: the top m bits of word 0 (m the stored significand bits) times the type's smallest positive
//!   value, negative when the lowest bit is set.
//! - *signed-zero*: zero, negative when bit 0 of word 3 is set; where bits 1 to 3 of word 3 are all zero, normal.
//! - *inf*, *nan*: normal, but in every row but those whose word 3 (of the row's first element, bit 8) is set,
//!   and always in row 0 and never in row 1, the column (word 3 >> 16) modulo the width is ±inf (sign from bit 9)
//!   or NaN (positive, quiet).
//! - *one-hot*: 8 in the column (word 3 of the row's first element >> 16) modulo the width, else 0.
//! - *heavy-ties*: (two top bits of word 0) / 2 - 1: one of -1, -0.5, 0, 0.5.
//! - *masked-rows*: minus infinity unless the four top bits of word 3 are all zero (then normal); every row
//!   whose number is 3 modulo 4 is minus infinity throughout.
//!
//! Logits that come from normal or uniform values are four times as wide. Gains are 1 + 0.125 times a normal value.
//! Ids are the high half of word 0 times the bound. Probabilities are, by row modulo 4: 1/16, (the top 24 bits
//! of word 0, plus a half) / 2^24 rounded to F32, 0, and 1; a single row is not one with 0, which is no work.

mod generate;
mod stream;

pub use generate::{CaseTensors, fill};
pub use stream::{Stream, fnv1a, mix};

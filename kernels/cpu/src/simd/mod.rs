//! The two lower floors: raw lanes and kernels, and the checked rows over them.
//!
//! - `lanes`, `avx512`, `avx2`, `scalar`: vectors of F32 lanes and their loads and stores (unsafe).
//! - `norm`, `quantize`, `activation`, `logits`: kernels over one row, generic over lanes and element type. Each is private
//!   and unsafe; beside it stands a safe function that takes slices, checks their lengths and calls it.
//!
//! Everything above this module is safe code.

#![allow(unsafe_code)]

pub(crate) mod activation;
#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
mod dispatch;
mod exponential;
mod lanes;
pub(crate) mod logits;
pub(crate) mod norm;
pub(crate) mod quantize;
mod scalar;
#[cfg(test)]
mod tests;

pub(crate) use dispatch::{Kind, Target};

//! Fast CPU operators (SIMD, threads) that follow the contract.
//!
//! [`Cpu`] has one safe entry per operator and [`Cpu::run`] for any of them by its call. Three floors keep the
//! unsafe code small: raw lanes and kernels in `simd`, slices with checked lengths over them, and operators that
//! the contract has accepted on top.

#![cfg_attr(test, allow(clippy::unwrap_used))]

mod candidates;
mod check;
mod cpu;
mod distribution;
mod entries;
mod gated;
mod normalized;
mod parallel;
mod path;
mod precise;
mod quantized;
mod rows;
mod simd;
mod vocabulary;

pub use cpu::Cpu;
pub use entries::{DynamicFp8, TopkLogprobs};
pub use parallel::use_threads;
pub use path::Path;

use proofhouse_contract::{Call, ContractError, Mode, TensorMut, TensorView};

/// Runs an operator on the fastest path of this machine: see [`Cpu::run`].
///
/// # Errors
/// As [`Cpu::run`].
pub fn run(
    call: &Call,
    mode: Mode,
    inputs: &[TensorView<'_>],
    outputs: &mut [TensorMut<'_>],
) -> Result<(), ContractError> {
    Cpu::default().run(call, mode, inputs, outputs)
}

/// The name of the fastest path of this machine: `avx512`, `avx2` or `scalar`.
#[must_use]
pub fn dispatch_name() -> &'static str {
    Path::best().name()
}

//! The operators on CUDA: device probe, NVRTC compile with a cache, checked launches.
//!
//! The kernels are CUDA C++ in `kernels/device`, part of this library as text and compiled by NVRTC for the device at
//! hand; libcuda and libnvrtc are found at run time, and their absence is a typed error. [`Runtime`] opens a device,
//! [`Runtime::prepare`] makes a planned call ready, and [`Prepared`] launches it on the caller's stream. What the
//! contract refuses is refused before a launch; in checked mode bad values on the device are reported too.
//!
//! Unsafe code has three floors: `sys` calls the libraries, `memory` and `launch` give regions and kernels a shape,
//! and `prepared` launches only what the contract has accepted.

#![cfg_attr(test, allow(clippy::unwrap_used, reason = "a test may panic"))]

mod cache;
mod compile;
mod device;
mod error;
#[allow(unsafe_code, reason = "launches kernels whose arguments the floors above have checked")]
mod launch;
#[allow(unsafe_code, reason = "gives raw device memory a length and an owner")]
mod memory;
mod operators;
mod prepared;
mod report;
mod runtime;
mod sources;
#[allow(unsafe_code, reason = "calls the driver and NVRTC")]
mod sys;
mod tuning;

pub use cache::Origin;
pub use compile::{Arch, CompileReport, Toolchain};
pub use device::DeviceInfo;
pub use error::CudaError;
pub use memory::{CallersContext, DeviceBuffer, DeviceTensor, OwnedStream, Stream};
pub use prepared::{Launch, Prepared, plan_of_operands};
pub use report::{KernelReport, parse_log};
pub use runtime::{Build, Runtime, compile_all, default_tuning};
pub use tuning::{ChunkShape, GateShape, Overlap, RowShape, Streaming, Target, Tuning};

/// The operators that have kernels here, by name.
pub const OPERATORS: [&str; 6] = [
    "rms_norm",
    "add_rms_norm",
    "rms_norm_dynamic_fp8",
    "silu_and_mul",
    "greedy_logprob",
    "selected_logprob_rank",
];

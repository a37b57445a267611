//! Fake workers, one for each way to go wrong, and the verdict that each must get.
//!
//! The worker itself is the program `proofhouse-fake-worker --defect NAME`: it speaks the protocol through code of its
//! own and runs a plain rms_norm in F32, so that with the defect `none` it is an honest control. On a GPU the workers are
//! those in `harness/testkit/cuda`; there the program plays them for machines without one.

mod cuda;
mod defects;

pub use cuda::CUDA_DEFECTS;
pub use defects::{DEFECTS, Defect, find};

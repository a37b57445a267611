//! The lowest floor: calls of the driver and of NVRTC, each with its arguments checked and its status read.

pub(crate) mod driver;
pub(crate) mod nvrtc;

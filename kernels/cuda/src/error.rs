//! The errors of this crate: what was asked, what was found, and what would be accepted.

use std::path::PathBuf;

use proofhouse_contract::ContractError;

/// What can go wrong between a call and its kernel.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CudaError {
    /// The contract refuses the call, or a value on the device is bad.
    #[error(transparent)]
    Contract(#[from] ContractError),
    /// A library is not installed, or the loader does not find it.
    #[error("{library} is not found; accepted: {accepted}")]
    LibraryMissing {
        /// The library's file name.
        library: &'static str,
        /// Where it would have been found.
        accepted: String,
    },
    /// A call of the driver failed.
    #[error("{call} failed with {code}: {meaning}")]
    Driver {
        /// The driver's function.
        call: &'static str,
        /// The driver's code, by name.
        code: String,
        /// The driver's own words.
        meaning: String,
    },
    /// There is no device of that number.
    #[error("there is no CUDA device {ordinal}; accepted: a number below {devices}")]
    NoDevice {
        /// The number that was asked for.
        ordinal: u32,
        /// How many devices there are.
        devices: u32,
    },
    /// There is no device of that identity.
    #[error("there is no CUDA device {uuid}; accepted: {accepted}")]
    UnknownDevice {
        /// The identity that was asked for.
        uuid: String,
        /// The identities that there are.
        accepted: String,
    },
    /// The device is older than what the kernels are written for.
    #[error("compute capability {major}.{minor} is not supported; accepted: 8.0 and later")]
    UnsupportedDevice {
        /// Major number found.
        major: u32,
        /// Minor number found.
        minor: u32,
    },
    /// A call of NVRTC failed.
    #[error("{call} failed: {meaning}")]
    Nvrtc {
        /// NVRTC's function.
        call: &'static str,
        /// NVRTC's own words.
        meaning: String,
    },
    /// A kernel does not compile: NVRTC's log says where and why.
    #[error("{kernel} does not compile with {options}:\n{log}")]
    Compile {
        /// The kernel's name.
        kernel: &'static str,
        /// NVRTC's options.
        options: String,
        /// NVRTC's log.
        log: String,
    },
    /// The folder of compiled kernels cannot be read or written.
    #[error("the folder of compiled kernels cannot be used: {}", path.display())]
    Cache {
        /// The file or folder at fault.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// A launch is larger than a grid can be, or than the kernels count.
    #[error("{operator}: {what} is {found}; accepted: at most {accepted}")]
    TooLarge {
        /// The operator.
        operator: &'static str,
        /// What is too large.
        what: &'static str,
        /// How large it is.
        found: u64,
        /// How large it may be.
        accepted: u64,
    },
    /// A tuning is not one that the operator's kernel can be built with.
    #[error("{operator}: {what} is {found}; accepted: {accepted}")]
    Tuning {
        /// The operator.
        operator: &'static str,
        /// What is wrong with the tuning.
        what: &'static str,
        /// What was found.
        found: String,
        /// What is accepted.
        accepted: String,
    },
    /// The operator has no kernel here.
    #[error("{operator} has no CUDA kernel; accepted: {accepted}")]
    NoKernel {
        /// The operator.
        operator: &'static str,
        /// The operators that have one.
        accepted: String,
    },
}

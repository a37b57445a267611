//! The seam under the interface: a device that prepares calls, and calls that are ready to run.
//!
//! [`Runtime`](proofhouse_cuda::Runtime) stands behind it; a test puts a device of its own there.

use std::sync::Arc;

use proofhouse_contract::{Call, CallPlan};
use proofhouse_cuda::{CudaError, DeviceInfo, DeviceTensor, Stream};

/// A device.
pub trait Backend: Send + Sync {
    /// What the device is.
    fn info(&self) -> &DeviceInfo;

    /// Makes a planned call ready; the plan has been validated.
    ///
    /// # Errors
    /// What the kernels refuse, and what compiling, loading or allocating gives.
    fn prepare(&self, plan: &CallPlan) -> Result<Arc<dyn Ready>, CudaError>;

    /// Whether what is put into the stream goes into a graph that is being captured.
    ///
    /// # Errors
    /// What the driver says.
    fn is_capturing(&self, stream: Stream) -> Result<bool, CudaError>;
}

/// A call that is ready to run, with operands in the contract's calling order.
pub trait Ready: Send + Sync {
    /// The call.
    fn call(&self) -> &Call;

    /// The kernels of one launch, in order: the names that a graph's nodes have; none where nothing is launched.
    fn kernels(&self) -> &[String];

    /// Puts one launch into a stream: no wait, no allocation.
    ///
    /// # Errors
    /// What the contract refuses, before anything is launched, and what the driver says.
    fn enqueue(&self, operands: &[DeviceTensor<'_>], stream: Stream) -> Result<(), CudaError>;

    /// Launches, waits, and reports the first bad value in the device's memory.
    ///
    /// # Errors
    /// As [`Ready::enqueue`], and that value, with its row.
    fn check(&self, operands: &[DeviceTensor<'_>], stream: Stream) -> Result<(), CudaError>;
}

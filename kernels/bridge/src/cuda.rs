//! The seam's real side: a CUDA runtime and what it has prepared.

use std::path::PathBuf;
use std::sync::Arc;

use proofhouse_contract::{Call, CallPlan};
use proofhouse_cuda::{
    CallersContext, CudaError, DeviceInfo, DeviceTensor, Prepared, Runtime, Stream, Toolchain,
};

use crate::backend::{Backend, Ready};

/// Which device to open, and with what.
#[derive(Clone, Debug, Default)]
pub(crate) struct Wanted {
    /// Its number, where no identity is given.
    pub(crate) ordinal: u32,
    /// Its identity.
    pub(crate) uuid: Option<String>,
    /// Folder of the compiler.
    pub(crate) nvrtc_folder: Option<PathBuf>,
    /// Folder that compiled kernels are kept in.
    pub(crate) kernel_folder: Option<PathBuf>,
}

/// Opens a device.
pub(crate) fn open(wanted: Wanted) -> Result<Box<dyn Backend>, CudaError> {
    // Only once the driver is there, the caller's context can be kept.
    Runtime::device_count()?;
    let _kept = CallersContext::keep();
    let ordinal = match &wanted.uuid {
        Some(uuid) => Runtime::find(uuid)?,
        None => wanted.ordinal,
    };
    let toolchain = Toolchain { nvrtc: wanted.nvrtc_folder };
    Ok(Box::new(Runtime::open(ordinal, &toolchain, wanted.kernel_folder)?))
}

impl Backend for Runtime {
    fn info(&self) -> &DeviceInfo {
        self.device()
    }

    fn prepare(&self, plan: &CallPlan) -> Result<Arc<dyn Ready>, CudaError> {
        Ok(Arc::new(CudaReady::new(Self::prepare(self, plan)?)))
    }

    fn is_capturing(&self, stream: Stream) -> Result<bool, CudaError> {
        Self::is_capturing(self, stream)
    }
}

/// A prepared operator and the names of its kernels.
struct CudaReady {
    prepared: Prepared,
    kernels: Vec<String>,
}

impl CudaReady {
    fn new(prepared: Prepared) -> Self {
        // Without rows there is no block, and so no node; both variants of a kernel have one name.
        let launches = usize::from(prepared.call().dim("rows") != Ok(0));
        let reports = prepared.reports().take(launches);
        let kernels = reports.map(|report| report.kernel.kernel.clone()).collect();
        Self { prepared, kernels }
    }
}

impl Ready for CudaReady {
    fn call(&self) -> &Call {
        self.prepared.call()
    }

    fn kernels(&self) -> &[String] {
        &self.kernels
    }

    fn enqueue(&self, operands: &[DeviceTensor<'_>], stream: Stream) -> Result<(), CudaError> {
        self.prepared.launch(stream, operands)
    }

    fn check(&self, operands: &[DeviceTensor<'_>], stream: Stream) -> Result<(), CudaError> {
        self.prepared.check(stream, operands)
    }
}

//! A device, ready to run operators.

use std::collections::{HashMap, HashSet};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use proofhouse_contract::{Call, CallPlan};

use crate::compile::{CompileReport, Compiler, Toolchain, Variant};
use crate::device::{self, DeviceInfo};
use crate::error::CudaError;
use crate::launch::Kernel;
use crate::memory::{DeviceBuffer, OwnedStream, Stream};
use crate::operators;
use crate::prepared::Prepared;
use crate::sys::driver::{self, Context};
use crate::tuning::{Target, Tuning};

/// A device's primary context, the compiler, and the kernels that were loaded.
#[derive(Clone, Debug)]
pub struct Runtime {
    parts: Arc<Parts>,
}

#[derive(Debug)]
struct Parts {
    context: Arc<Context>,
    device: DeviceInfo,
    compiler: Compiler,
    kernels: Mutex<HashMap<Variant, (Arc<Kernel>, CompileReport)>>,
}

impl Runtime {
    /// Opens the device of that number; compiled kernels are kept in `cache`, where one is given.
    ///
    /// # Errors
    /// `LibraryMissing` without the driver or NVRTC, `NoDevice`, `UnsupportedDevice`, or what the driver says.
    pub fn open(
        ordinal: u32,
        toolchain: &Toolchain,
        cache: Option<PathBuf>,
    ) -> Result<Self, CudaError> {
        driver::load()?;
        let compiler = Compiler::open(toolchain, cache)?;
        let context = Arc::new(Context::retain(ordinal)?);
        context.make_current()?;
        let device = DeviceInfo::probe(&context)?;
        let kernels = Mutex::default();
        Ok(Self { parts: Arc::new(Parts { context, device, compiler, kernels }) })
    }

    /// How many devices there are.
    ///
    /// # Errors
    /// `LibraryMissing` without the driver, or what the driver says.
    pub fn device_count() -> Result<u32, CudaError> {
        driver::load()?;
        driver::device_count()
    }

    /// The number of the device of an identity, as [`DeviceInfo::uuid`] writes it; no context is made.
    ///
    /// # Errors
    /// `LibraryMissing` without the driver, `UnknownDevice`, or what the driver says.
    pub fn find(uuid: &str) -> Result<u32, CudaError> {
        let mut there = Vec::new();
        for ordinal in 0..Self::device_count()? {
            let found = device::format_uuid(driver::uuid_of(ordinal)?);
            if found == uuid {
                return Ok(ordinal);
            }
            there.push(found);
        }
        let accepted = if there.is_empty() { "none".to_owned() } else { there.join(", ") };
        Err(CudaError::UnknownDevice { uuid: uuid.to_owned(), accepted })
    }

    /// Whether what is put into a stream goes into a graph that is being captured.
    ///
    /// # Errors
    /// What the driver says, of the default stream above all while another stream is captured.
    pub fn is_capturing(&self, stream: Stream) -> Result<bool, CudaError> {
        self.make_current()?;
        driver::is_capturing(stream.raw())
    }

    /// What the device is.
    #[must_use]
    pub fn device(&self) -> &DeviceInfo {
        &self.parts.device
    }

    /// The compiler's name and version.
    #[must_use]
    pub fn compiler(&self) -> &str {
        self.parts.compiler.version()
    }

    /// Makes the device's context current on this thread, for calls of other libraries.
    ///
    /// # Errors
    /// What the driver says.
    pub fn make_current(&self) -> Result<(), CudaError> {
        self.parts.context.make_current()
    }

    /// A stream of its own.
    ///
    /// # Errors
    /// What the driver says.
    pub fn create_stream(&self) -> Result<OwnedStream, CudaError> {
        OwnedStream::create(&self.parts.context)
    }

    /// Device memory; its contents are whatever they were.
    ///
    /// # Errors
    /// What the driver says, out of memory above all.
    pub fn allocate(&self, bytes: usize) -> Result<DeviceBuffer, CudaError> {
        DeviceBuffer::allocate(&self.parts.context, bytes)
    }

    /// The tuning that a call gets where the caller has none.
    ///
    /// # Errors
    /// What the contract or the kernels refuse.
    pub fn tuning(&self, call: &Call) -> Result<Tuning, CudaError> {
        default_tuning(call, self.parts.device.target())
    }

    /// Compiles and loads what a planned call needs, and allocates its workspace.
    ///
    /// # Errors
    /// What the contract or the kernels refuse, and what compiling, loading or allocating gives.
    pub fn prepare(&self, plan: &CallPlan) -> Result<Prepared, CudaError> {
        plan.validate()?;
        let tuning = self.tuning(&plan.call)?;
        self.prepare_tuned(plan, tuning)
    }

    /// As [`Runtime::prepare`], with the caller's tuning.
    ///
    /// # Errors
    /// As [`Runtime::prepare`], and `Tuning`.
    pub fn prepare_tuned(&self, plan: &CallPlan, tuning: Tuning) -> Result<Prepared, CudaError> {
        plan.validate()?;
        operators::refuse_unsupported(&plan.call)?;
        operators::check(&plan.call, tuning, self.parts.device.arch)?;
        Prepared::new(self, plan, tuning)
    }

    pub(crate) fn context(&self) -> &Context {
        &self.parts.context
    }

    /// The loaded kernel of a variant.
    pub(crate) fn kernel(
        &self,
        variant: &Variant,
    ) -> Result<(Arc<Kernel>, CompileReport), CudaError> {
        // A thread that panicked while it held the lock left the map as it was.
        let mut kernels = self.parts.kernels.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((kernel, report)) = kernels.get(variant) {
            return Ok((Arc::clone(kernel), report.clone()));
        }
        let compiled = self.parts.compiler.compile(variant, self.parts.device.arch)?;
        let kernel = Arc::new(Kernel::load(
            &self.parts.context,
            &compiled.cubin,
            variant.operator,
            variant.argument_bytes,
        )?);
        kernels.insert(variant.clone(), (Arc::clone(&kernel), compiled.report.clone()));
        Ok((kernel, compiled.report))
    }
}

/// The tuning that a call gets on a device where the caller has none.
///
/// # Errors
/// What the contract or the kernels refuse.
pub fn default_tuning(call: &Call, target: Target) -> Result<Tuning, CudaError> {
    call.validate()?;
    operators::refuse_unsupported(call)?;
    operators::choose(call, target)
}

/// A kernel to compile: the one that a call gets with a tuning, or with the one it would be given.
#[derive(Clone, Debug, PartialEq)]
pub struct Build {
    /// The call.
    pub call: Call,
    /// Its tuning, where it is not the default.
    pub tuning: Option<Tuning>,
    /// Whether its operands can be accessed in 16-byte vectors.
    pub aligned: bool,
}

/// Compiles kernels for a device that need not be there; each variant once.
///
/// # Errors
/// `LibraryMissing` without NVRTC, what the contract or the kernels refuse, and `Compile`.
pub fn compile_all(
    toolchain: &Toolchain,
    cache: Option<PathBuf>,
    target: Target,
    builds: &[Build],
) -> Result<Vec<CompileReport>, CudaError> {
    let compiler = Compiler::open(toolchain, cache)?;
    let mut known = HashSet::new();
    let mut reports = Vec::new();
    for Build { call, tuning, aligned } in builds {
        call.validate()?;
        operators::refuse_unsupported(call)?;
        let tuning = match tuning {
            Some(tuning) => *tuning,
            None => operators::choose(call, target)?,
        };
        operators::check(call, tuning, target.arch)?;
        let variant = operators::variant(call, tuning, *aligned)?;
        if known.insert(variant.clone()) {
            reports.push(compiler.compile(&variant, target.arch)?.report);
        }
    }
    Ok(reports)
}

//! An operator that is ready to run, and launches of it.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use proofhouse_contract::{Call, CallPlan, ContractError, ErrorKind, TensorPlan};

use crate::compile::CompileReport;
use crate::error::CudaError;
use crate::launch::{Geometry, Kernel};
use crate::memory::{self, DeviceBuffer, DeviceTensor, Stream};
use crate::operators::{self, ArgumentSet, STATUS_BYTES, Workspace, decode_status};
use crate::runtime::Runtime;
use crate::tuning::Tuning;

/// Workspaces that launches take in turn.
#[derive(Debug)]
struct Chunks {
    buffer: DeviceBuffer,
    slots: u64,
    stride: u64,
}

/// A call's operator, compiled and loaded, with its workspace.
///
/// Operands may change from launch to launch; sizes, dtype and parameters do not. The workspace belongs to one launch
/// at a time: launches of the same value go into one stream, or wait for each other.
#[derive(Debug)]
pub struct Prepared {
    runtime: Runtime,
    call: Call,
    tuning: Tuning,
    geometry: Geometry,
    aligned: OnceLock<(Arc<Kernel>, CompileReport)>,
    unaligned: OnceLock<(Arc<Kernel>, CompileReport)>,
    chunks: Option<Chunks>,
    status: Option<DeviceBuffer>,
}

impl Prepared {
    pub(crate) fn new(
        runtime: &Runtime,
        plan: &CallPlan,
        tuning: Tuning,
    ) -> Result<Self, CudaError> {
        let call = plan.call.clone();
        let geometry = operators::geometry(&call, tuning, runtime.device().multiprocessors)?;
        let (mut chunks, mut status) = (None, None);
        if let Tuning::Chunks(shape) = tuning {
            let (slots, stride) = Workspace::slots(&call, shape)?;
            let mut buffer = runtime.allocate((slots * stride) as usize)?;
            // Tickets start at zero; the first launch may be in any stream, so this is waited for.
            buffer.fill(0, Stream::default_stream())?;
            crate::sys::driver::synchronize(0)?;
            chunks = Some(Chunks { buffer, slots, stride });
            status = Some(runtime.allocate(STATUS_BYTES)?);
        }
        let prepared = Self {
            runtime: runtime.clone(),
            call,
            tuning,
            geometry,
            aligned: OnceLock::new(),
            unaligned: OnceLock::new(),
            chunks,
            status,
        };
        prepared.kernel(operators::is_aligned(plan))?;
        Ok(prepared)
    }

    /// The call that this is for.
    #[must_use]
    pub const fn call(&self) -> &Call {
        &self.call
    }

    /// How the work is parted.
    #[must_use]
    pub const fn tuning(&self) -> Tuning {
        self.tuning
    }

    /// What compiling the variants in use gave.
    pub fn reports(&self) -> impl Iterator<Item = &CompileReport> {
        [&self.aligned, &self.unaligned].into_iter().filter_map(|cell| Some(&cell.get()?.1))
    }

    fn kernel(&self, aligned: bool) -> Result<&Arc<Kernel>, CudaError> {
        let cell = if aligned { &self.aligned } else { &self.unaligned };
        if let Some((kernel, _)) = cell.get() {
            return Ok(kernel);
        }
        let variant = operators::variant(&self.call, self.tuning, aligned)?;
        let loaded = self.runtime.kernel(&variant)?;
        Ok(&cell.get_or_init(|| loaded).0)
    }

    /// Accepts operands, in the contract's calling order, for any number of launches.
    ///
    /// Operands that are aligned otherwise than the planned ones get another variant of the kernel, which is compiled
    /// here if it has not been.
    ///
    /// # Errors
    /// What the contract refuses; `Missing` or `Unknown` for another number of operands; as [`Runtime::prepare`].
    pub fn bind<'a>(&'a self, operands: &[DeviceTensor<'a>]) -> Result<Launch<'a>, CudaError> {
        let plan = plan_of_operands(&self.call, operands)?;
        plan.validate()?;
        let kernel = Arc::clone(self.kernel(operators::is_aligned(&plan))?);
        let gather = |workspace| ArgumentSet::gather(&plan, self.tuning, workspace);
        let arguments = match (self.tuning, &self.chunks) {
            (Tuning::Chunks(shape), Some(chunks)) => {
                let address = |slot: u64| chunks.buffer.address() + slot * chunks.stride;
                let workspace = |slot| Workspace::new(&self.call, shape, address(slot));
                let slots = (0..chunks.slots).map(|slot| gather(Some(workspace(slot)?)));
                slots.collect::<Result<Vec<_>, CudaError>>()?
            }
            _ => vec![gather(None)?],
        };
        let selected = plan.tensor("selected").map(TensorPlan::first_element);
        Ok(Launch { prepared: self, kernel, arguments, launches: AtomicUsize::new(0), selected })
    }

    /// Accepts operands and puts one launch into a stream: unchecked mode, no wait, no allocation.
    ///
    /// # Errors
    /// As [`Prepared::bind`], and what the driver says.
    pub fn launch(&self, stream: Stream, operands: &[DeviceTensor<'_>]) -> Result<(), CudaError> {
        self.bind(operands)?.enqueue(stream)
    }

    /// Accepts operands, launches and waits: checked mode.
    ///
    /// # Errors
    /// As [`Prepared::launch`], and the first bad value on the device.
    pub fn check(&self, stream: Stream, operands: &[DeviceTensor<'_>]) -> Result<(), CudaError> {
        self.bind(operands)?.check(stream)
    }
}

/// Describes operands, in the contract's calling order, as a plan that is still to be validated.
///
/// # Errors
/// `Missing` or `Unknown` for another number of operands than the call's.
pub fn plan_of_operands(
    call: &Call,
    operands: &[DeviceTensor<'_>],
) -> Result<CallPlan, ContractError> {
    let operator = call.operator.name;
    let mut given = operands.iter();
    let mut tensors = Vec::with_capacity(operands.len());
    for spec in call.tensors() {
        let operand = given.next().ok_or_else(|| {
            ContractError::new(operator, spec.name, ErrorKind::Missing).accepted(spec.meaning)
        })?;
        tensors.push(TensorPlan {
            name: spec.name,
            role: spec.role,
            layout: operand.layout().clone(),
            address: operand.address(),
            bytes: operand.bytes(),
        });
    }
    let surplus = given.count();
    if surplus > 0 {
        return Err(ContractError::new(operator, "operands", ErrorKind::Unknown)
            .found(format_args!("{surplus} more than the contract has"))
            .accepted(format_args!("{} tensors", tensors.len())));
    }
    Ok(CallPlan { call: call.clone(), tensors })
}

/// A launch with its operands, accepted and ready to be put into a stream any number of times.
#[derive(Debug)]
pub struct Launch<'a> {
    prepared: &'a Prepared,
    kernel: Arc<Kernel>,
    /// The same operands with each of the workspaces, which launches take in turn.
    arguments: Vec<ArgumentSet>,
    launches: AtomicUsize,
    selected: Option<u64>,
}

impl Launch<'_> {
    /// Puts the launch into a stream: unchecked mode. It can be captured into a graph.
    ///
    /// # Errors
    /// What the driver says.
    pub fn enqueue(&self, stream: Stream) -> Result<(), CudaError> {
        self.enqueue_with(self.next(), stream)
    }

    fn next(&self) -> &ArgumentSet {
        let launches = self.launches.fetch_add(1, Ordering::Relaxed);
        &self.arguments[launches % self.arguments.len()]
    }

    #[allow(unsafe_code, reason = "the one place where kernels are launched")]
    fn enqueue_with(&self, arguments: &ArgumentSet, stream: Stream) -> Result<(), CudaError> {
        // SAFETY: the contract accepted the operands in `bind`, which also chose the variant by their alignment and
        // gathered the arguments for this kernel; operands and workspace outlive this value by its lifetime, and
        // by the promise of whoever made tensors of raw addresses.
        unsafe { arguments.launch(&self.kernel, self.prepared.geometry, stream) }
    }

    /// Launches and waits, and reports the first bad value on the device: checked mode.
    ///
    /// # Errors
    /// That value, after which the outputs are unspecified; what the driver says.
    pub fn check(&self, stream: Stream) -> Result<(), CudaError> {
        let context = self.prepared.runtime.context();
        let Some(status) = &self.prepared.status else {
            self.enqueue(stream)?;
            context.make_current()?;
            return crate::sys::driver::synchronize(stream.raw());
        };
        status.fill_shared(0xff, stream)?;
        self.enqueue_with(&self.next().with_status(status.address()), stream)?;
        let mut word = [0u8; STATUS_BYTES];
        status.download(&mut word, stream)?;
        decode_status(&self.prepared.call, u64::from_le_bytes(word), |row| match self.selected {
            Some(address) => memory::read_word(context, address + 8 * row, stream),
            None => Ok(0),
        })
    }
}

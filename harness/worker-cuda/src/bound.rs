//! A launch beside the prepared operator and the device memory that it borrows. This is the crate's only unsafe code.

use std::rc::Rc;

use proofhouse_contract::CallPlan;
use proofhouse_cuda::{CudaError, DeviceTensor, Launch, Prepared, Stream};
use proofhouse_timer_cuda::Stream as TimerStream;
use proofhouse_worker::Decline;
use proofhouse_worker_contract::refused;

/// A launch with everything that it needs; `owner` keeps the device memory.
#[derive(Debug)]
pub(crate) struct Bound<O> {
    // Declared first, so dropped first: it borrows from the others.
    launch: Launch<'static>,
    _prepared: Rc<Prepared>,
    owner: O,
}

impl<O> Bound<O> {
    /// Binds a prepared operator to the regions of a plan, which lie in memory of `owner`.
    ///
    /// The caller vouches with `owner` for every address of the plan: it keeps that memory, at that place, as long as it
    /// lives.
    pub(crate) fn new(prepared: &Rc<Prepared>, plan: &CallPlan, owner: O) -> Result<Self, Decline> {
        let operands: Vec<DeviceTensor<'static>> = plan
            .tensors
            .iter()
            .map(|tensor| {
                // SAFETY: the region is device memory that `owner` keeps, and this value owns `owner` and drops the
                // launch first; the device can read and write all memory that its driver allocates.
                unsafe {
                    DeviceTensor::from_raw(tensor.address, tensor.bytes, tensor.layout.clone())
                }
            })
            .collect();
        // SAFETY: the prepared operator lives in an `Rc` that this value holds, so it neither moves nor ends before
        // the launch, which is dropped first.
        let kept: &'static Prepared = unsafe { &*Rc::as_ptr(prepared) };
        let launch = kept.bind(&operands).map_err(|error| declined(&error))?;
        Ok(Self { launch, _prepared: Rc::clone(prepared), owner })
    }

    pub(crate) fn owner(&self) -> &O {
        &self.owner
    }

    pub(crate) fn owner_mut(&mut self) -> &mut O {
        &mut self.owner
    }

    /// Puts the launch into a stream of the timer.
    pub(crate) fn enqueue(&self, stream: TimerStream) -> Result<(), CudaError> {
        // SAFETY: the timer's stream belongs to the same primary context and outlives the call.
        let stream = unsafe { Stream::from_raw(stream.raw()) };
        self.launch.enqueue(stream)
    }

    /// Puts the launch into a stream.
    pub(crate) fn launch(&self, stream: Stream) -> Result<(), CudaError> {
        self.launch.enqueue(stream)
    }

    /// Launches, waits, and reports the first bad value on the device.
    pub(crate) fn check(&self, stream: Stream) -> Result<(), CudaError> {
        self.launch.check(stream)
    }
}

/// What the kernels refuse, as it travels.
pub(crate) fn declined(error: &CudaError) -> Decline {
    match error {
        CudaError::Contract(error) => refused(error),
        CudaError::NoKernel { .. } => Decline::Unsupported(error.to_string()),
        other => crate::image::driver(other),
    }
}

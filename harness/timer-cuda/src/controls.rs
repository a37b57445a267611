//! A copy of known size as work, and the control that cold is cold.

use proofhouse_schema::timing::{Cache, Launch};
use proofhouse_timer::host::CallFailure;
use proofhouse_timer::{MeasureError, Plan, Timer, TurnInputs, TurnOutcome, TurnRequest, Warm};
use serde::Serialize;

use crate::cuda::Cuda;
use crate::device::{CudaDevice, Options};
use crate::driver::{Driver, DriverError};
use crate::handle::Stream;
use crate::kernels::Kernels;
use crate::memory::{Arena, DeviceBuffer};
use crate::plan::{Cell, DevicePlan, device_plan};
use crate::work::CudaWork;

/// Bytes of the copy that must be slower cold than hot.
const CONTROL_BYTES: u64 = 1 << 20;
/// Cold over hot must be above this.
pub const LEAST_COLD_OVER_HOT: f64 = 1.2;
const MIN_SAMPLE_NS: f64 = 500_000.0;
const SAMPLES: u32 = 15;

/// A copy kernel over buffer sets of its own; half of a call's bytes are read, half written.
#[derive(Debug)]
pub struct CopyWork<D: Driver = Cuda> {
    kernels: Kernels<D>,
    arena: Arena<D>,
    bytes: u64,
    sets: Vec<[DeviceBuffer<D>; 2]>,
    /// Sets of the timer in a row that are one of these.
    dwell: u32,
}

impl CopyWork {
    /// Copies of `bytes` bytes, a multiple of 16, with one buffer set.
    ///
    /// # Errors
    /// A [`DriverError`] when there is no memory.
    pub fn new(cuda: &Cuda, bytes: u64) -> Result<Self, DriverError> {
        Self::over(cuda, cuda.facts().multiprocessors, bytes)
    }
}

impl<D: Driver> CopyWork<D> {
    pub(crate) fn over(driver: &D, multiprocessors: u32, bytes: u64) -> Result<Self, DriverError> {
        let kernels = Kernels::load(driver, multiprocessors)?;
        let arena = Arena::new(driver);
        let mut work = Self { kernels, arena, bytes, sets: Vec::new(), dwell: 1 };
        work.grow_to(1)?;
        Ok(work)
    }

    /// Makes the buffer sets of a plan.
    ///
    /// # Errors
    /// A [`DriverError`] when there is no memory.
    pub fn grow(&mut self, plan: &Plan) -> Result<(), DriverError> {
        self.dwell = plan.dwell;
        self.grow_to(plan.buffer_sets())
    }

    fn grow_to(&mut self, count: u32) -> Result<(), DriverError> {
        let contents: Vec<u8> = (0..self.bytes).map(|at| (at % 251) as u8).collect();
        while self.sets.len() < count as usize {
            let [mut from, to] = [self.arena.cut(self.bytes, 0)?, self.arena.cut(self.bytes, 0)?];
            from.upload(&contents)?;
            self.sets.push([from, to]);
        }
        Ok(())
    }
}

impl<D: Driver> CudaWork for CopyWork<D> {
    fn enqueue(&mut self, set: u32, stream: Stream) -> Result<(), CallFailure> {
        let [from, to] = &self.sets[(set / self.dwell) as usize];
        let copied = self.kernels.copy(to.address(), from.address(), self.bytes, stream);
        copied.map_err(|error| CallFailure { code: error.code, message: error.to_string() })
    }
}

/// Spins on any stream: work of known length.
#[derive(Debug)]
pub struct Spinner<D: Driver = Cuda>(Kernels<D>);

impl Spinner {
    /// A spinner on the device.
    ///
    /// # Errors
    /// A [`DriverError`].
    pub fn new(cuda: &Cuda) -> Result<Self, DriverError> {
        Ok(Self(Kernels::load(cuda, 1)?))
    }
}

impl<D: Driver> Spinner<D> {
    /// Keeps the stream busy for so many nanoseconds of the global timer.
    ///
    /// # Errors
    /// A [`DriverError`].
    pub fn spin(&self, ns: u64, stream: Stream) -> Result<(), DriverError> {
        self.0.spin(ns, stream)
    }
}

/// Times of the same copy in both cache states.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct CacheControl {
    /// Bytes of the copy.
    pub bytes: u64,
    /// Median of one cold call in nanoseconds.
    pub cold_ns: f64,
    /// Median of one hot call in nanoseconds.
    pub hot_ns: f64,
}

impl CacheControl {
    /// Cold over hot.
    #[must_use]
    pub fn ratio(&self) -> f64 {
        self.cold_ns / self.hot_ns
    }

    /// Whether cold is cold on this device.
    #[must_use]
    pub fn holds(&self) -> bool {
        self.ratio() > LEAST_COLD_OVER_HOT
    }

    /// Times a copy of 1 MiB cold and hot, through the same timer as every cell.
    ///
    /// # Errors
    /// [`ControlError`].
    pub fn measure(cuda: &Cuda) -> Result<Self, ControlError> {
        let bytes = CONTROL_BYTES;
        let time = |cache| {
            TimedCopy::warm(cuda, bytes, cache, Launch::Graph, 0)?.turn(0.0).map(|t| median(&t))
        };
        Ok(Self { bytes, cold_ns: time(Cache::Cold)?, hot_ns: time(Cache::Hot)? })
    }
}

/// Why a control gave nothing.
#[derive(Debug, thiserror::Error)]
pub enum ControlError {
    /// A driver call failed.
    #[error("the control's work cannot be set up")]
    Driver(#[from] DriverError),
    /// The measurement failed.
    #[error("the control cannot be measured")]
    Measure(#[from] MeasureError),
    /// The measurement cannot be trusted.
    #[error("the control's turn cannot be trusted: {0:?}")]
    Invalid(Vec<proofhouse_timer::Invalid>),
}

/// A copy that is warm, and the plan that it is measured by.
#[derive(Debug)]
pub struct TimedCopy {
    /// The timer, ready for turns.
    pub warm: Warm<CudaDevice<CopyWork>>,
    /// The plan.
    pub chosen: DevicePlan,
    /// The guess that the plan was made from, in nanoseconds.
    pub guessed_ns: f64,
}

impl TimedCopy {
    /// Warms a copy of `bytes` bytes; `reuse_bytes` as in [`Cell`].
    ///
    /// # Errors
    /// [`ControlError`].
    pub fn warm(
        cuda: &Cuda,
        bytes: u64,
        cache: Cache,
        launch: Launch,
        reuse_bytes: u64,
    ) -> Result<Self, ControlError> {
        let options = Options::new(launch);
        let mut device = CudaDevice::new(cuda, CopyWork::new(cuda, bytes)?, options)?;
        let guessed_ns = device.guess_call_ns(false)?;
        let chosen = device_plan(&Cell {
            footprint_bytes: 2 * bytes,
            in_place: false,
            cache,
            launch,
            min_sample_ns: MIN_SAMPLE_NS,
            call_ns: guessed_ns,
            l2_bytes: cuda.facts().l2_bytes,
            free_bytes: device.free_bytes()?,
            reuse_bytes,
        });
        device.work_mut().grow(&chosen.plan)?;
        let warm = Timer::new(device, &chosen.plan)?.calibrate()?.warm()?;
        Ok(Self { warm, chosen, guessed_ns })
    }

    /// Times of one call in nanoseconds, one for each sample of a turn, each region lengthened by
    /// the fraction `slowdown`.
    ///
    /// # Errors
    /// [`ControlError`].
    pub fn turn(&mut self, slowdown: f64) -> Result<Vec<f64>, ControlError> {
        let inputs = TurnInputs::Rotating;
        match self.warm.turn(TurnRequest { inputs, samples: Some(SAMPLES), slowdown })? {
            TurnOutcome::Valid(turn) => {
                Ok(turn.samples.iter().map(proofhouse_timer::Sample::per_call_ns).collect())
            }
            TurnOutcome::Invalid(turn) => Err(ControlError::Invalid(turn.reasons)),
        }
    }
}

fn median(times: &[f64]) -> f64 {
    let mut sorted = times.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len() / 2).copied().unwrap_or(f64::NAN)
}

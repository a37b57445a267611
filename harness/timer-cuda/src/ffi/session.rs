//! What lies behind the interface's pointer: a device, then a plan, then a warm timer.

use proofhouse_schema::device::{Reuse, Telemetry};
use proofhouse_schema::timing::Launch;
use proofhouse_timer::ffi::boundary::{Outcome, Turns};
use proofhouse_timer::ffi::{PlanC, ReportC, Status};
use proofhouse_timer::{Device as _, MeasureError, Phase, Sample, Timer, TurnRequest};
use serde::Serialize;

use super::layout::{CellC, Known};
use crate::device::CudaDevice;
use crate::driver::{Driver, DriverError};
use crate::plan::{DevicePlan, device_plan};
use crate::telemetry::columns;
use crate::work::CudaWork;

/// A timer on its way from a device to turns.
#[derive(Debug)]
pub(super) struct Session<W: CudaWork, D: Driver> {
    launch: Launch,
    chosen: Option<DevicePlan>,
    state: State<W, D>,
    judged: Vec<Sample>,
}

#[derive(Debug)]
enum State<W: CudaWork, D: Driver> {
    Cold(Box<CudaDevice<W, D>>),
    Warm(Box<Turns<CudaDevice<W, D>>>),
    /// The warm-up failed and took the device along.
    Gone,
}

/// What is told of the last turn, in the protocol's words.
#[derive(Debug, Serialize)]
struct Told<'a> {
    /// For eager calls: nanoseconds that the host needed to enqueue each judged sample's calls.
    enqueue_ns: Vec<f64>,
    /// What was read after each judged sample.
    telemetry: Telemetry,
    /// Kernels of the graph; none for eager calls.
    kernels: &'a [String],
    /// How buffers are kept in or out of the cache.
    reuse: Option<Reuse>,
    /// Why there is no telemetry beside the multiprocessor's clock.
    telemetry_missing: Option<String>,
    /// Regions of the turn that were taken again because the host was late after them.
    retaken: u32,
    /// Regions that hold some launch time.
    exposed_regions: u64,
}

impl<W: CudaWork, D: Driver> Session<W, D> {
    pub(super) fn new(device: CudaDevice<W, D>) -> Self {
        let launch = device.launch;
        Self { launch, chosen: None, state: State::Cold(Box::new(device)), judged: Vec::new() }
    }

    /// Guesses the time of a call on set 0, and chooses the plan.
    pub(super) fn plan(&mut self, cell: &CellC) -> Result<PlanC, Outcome> {
        cell.check().map_err(Outcome::argument)?;
        let State::Cold(device) = &mut self.state else {
            return Err(Outcome::argument("a plan after the warm-up; accepted: before it"));
        };
        let call_ns = device.guess_call_ns(cell.in_place == 1).map_err(outcome)?;
        let l2_bytes = device.properties().last_level_cache_bytes;
        let free_bytes = device.free_bytes().map_err(|error| driver(&error))?;
        let known = Known { launch: self.launch, call_ns, l2_bytes, free_bytes };
        let chosen = self.chosen.insert(device_plan(&cell.with(known)));
        Ok(PlanC::of(&chosen.plan, l2_bytes))
    }

    /// Calibrates and warms by the chosen plan.
    pub(super) fn warm(&mut self, report: &mut ReportC) -> Result<(), Outcome> {
        let Some(chosen) = &self.chosen else {
            return Err(Outcome::argument("a warm-up before a plan was chosen"));
        };
        let State::Cold(device) = std::mem::replace(&mut self.state, State::Gone) else {
            return Err(Outcome::argument("a second warm-up; accepted: one"));
        };
        let warmed =
            Timer::new(*device, &chosen.plan).and_then(Timer::calibrate).and_then(|t| t.warm());
        let mut warm = warmed.map_err(outcome)?;
        warm.device_mut().clear_rows();
        report.describe(&warm);
        self.state = State::Warm(Box::new(Turns::new(warm)));
        Ok(())
    }

    fn turns(&mut self) -> Result<&mut Turns<CudaDevice<W, D>>, Outcome> {
        match &mut self.state {
            State::Warm(turns) => Ok(turns),
            State::Cold(_) => Err(Outcome::argument("the timer is not warm")),
            State::Gone => Err(Outcome::argument("the warm-up failed; accepted: a new timer")),
        }
    }

    /// The warm-up's samples.
    pub(super) fn warm_up(&mut self, report: &mut ReportC) -> Result<Vec<Sample>, Outcome> {
        let turns = self.turns()?;
        report.describe(turns.warm());
        Ok(turns.warm().warm_up_samples().to_vec())
    }

    /// Takes a turn.
    pub(super) fn turn(
        &mut self,
        request: TurnRequest,
        capacity: u32,
        report: &mut ReportC,
    ) -> Result<Vec<Sample>, Outcome> {
        self.judged.clear();
        let turns = self.turns()?;
        turns.device_mut().clear_rows();
        let samples = turns.take(request, capacity, report)?;
        let judged = samples.iter().filter(|sample| sample.phase == Phase::Measure);
        self.judged = judged.copied().collect();
        Ok(samples)
    }

    /// What the last turn told beside its samples, as JSON.
    pub(super) fn told(&mut self) -> Result<String, Outcome> {
        let reuse = self.chosen.as_ref().map(|chosen| chosen.reuse);
        let enqueue_ns = match self.launch {
            Launch::Eager => self.judged.iter().map(|sample| sample.enqueue_ns as f64).collect(),
            Launch::Graph => Vec::new(),
        };
        let count = self.judged.len();
        let turns = self.turns()?;
        let retaken = turns.warm().retaken();
        let device = turns.device_mut();
        let told = Told {
            enqueue_ns,
            telemetry: columns(device.last_rows(count)),
            kernels: device.witness().map_or(&[], |witness| &witness.kernels),
            reuse,
            telemetry_missing: device.telemetry_missing().map(ToString::to_string),
            retaken,
            exposed_regions: device.exposed_regions(),
        };
        serde_json::to_string(&told)
            .map_err(|error| Outcome::Failed(Status::Panic, error.to_string()))
    }
}

/// A driver call that failed outside a measurement.
pub(super) fn driver(error: &DriverError) -> Outcome {
    Outcome::Failed(Status::Device, error.to_string())
}

/// What cannot be trusted before any turn is told like what cannot in one: by its code.
fn outcome(error: MeasureError) -> Outcome {
    match error {
        MeasureError::Clock { source, .. } => {
            Outcome::Failed(Status::Invalid, format!("{}: {source}", source.code()))
        }
        other => other.into(),
    }
}

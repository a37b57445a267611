//! The measuring machine: calibrate, warm, turn, finish.

use serde::{Deserialize, Serialize};

use crate::device::{Device, DeviceError, LoadedCode, Rotation};
use crate::plan::{Cache, MAX_SAMPLES, Plan, PlanError, RESOLUTION_FACTOR, in_range};
use crate::region::{Core, Region, Stop, Taken, next_rotation};
use crate::sample::{
    Calibration, Invalid, InvalidTurn, Phase, Sample, Totals, TurnOutcome, ValidTurn,
};
use crate::warm_up;

/// The part of the measurement in which something happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Stage {
    /// The clock is measured.
    Calibrate,
    /// Warm-up.
    WarmUp,
    /// A turn.
    Turn,
    /// The end.
    Finish,
}

/// Why a measurement gives nothing.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum MeasureError {
    /// The plan cannot be measured on this device.
    #[error("the plan is refused")]
    Plan(#[from] PlanError),
    /// A device method failed.
    #[error("the device failed in {stage:?}")]
    Device {
        /// When.
        stage: Stage,
        /// What failed.
        source: DeviceError,
    },
    /// The clock, or what it timed, cannot be trusted, before any turn.
    #[error("there is no time to trust in {stage:?}")]
    Clock {
        /// When.
        stage: Stage,
        /// What it did.
        source: Invalid,
    },
    /// The device's clock does not advance.
    #[error("the device clock showed no step in {tries} stamps")]
    ClockStands {
        /// Stamps that were tried.
        tries: u32,
    },
    /// A sample cannot be made long enough for the clock or for the plan's target.
    #[error("a sample of {calls} calls lasts {sample_ns} ns; needed are {needed_ns} ns")]
    SampleTooShort {
        /// Calls of the sample.
        calls: u32,
        /// Median time of the samples.
        sample_ns: f64,
        /// Time that is needed.
        needed_ns: f64,
    },
    /// The warm-up reached its bound before it was over.
    #[error(
        "the warm-up did not settle in {samples} samples and {spent_ns} ns: \
         code still loading: {still_loading}, drift {drift:?}, allowed {limit}"
    )]
    Unsettled {
        /// Samples that were taken.
        samples: u32,
        /// Host time that was spent.
        spent_ns: u64,
        /// True when code was loaded within the last window.
        still_loading: bool,
        /// Last drift, where the window was full.
        drift: Option<f64>,
        /// Largest allowed drift.
        limit: f64,
    },
    /// An earlier turn failed, so the device is in an unknown state.
    #[error("an earlier turn failed; the device is in an unknown state")]
    Poisoned,
    /// Nothing was measured.
    #[error("no turn gave a sample ({invalid_turns} were invalid)")]
    NoSamples {
        /// Turns that were invalid.
        invalid_turns: u32,
    },
}

/// What the calls of a turn work on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TurnInputs {
    /// The plan's rotation through all sets.
    Rotating,
    /// One set again and again: the run that a provider with remembered results speeds up.
    ///
    /// It is comparable with rotating turns only where the cache state is the same: sets that
    /// fit the cache, or one call a sample after an evicting pass.
    Identical(u32),
}

/// One turn as it is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub struct TurnRequest {
    /// What the calls work on.
    pub inputs: TurnInputs,
    /// Judged samples; none for the plan's number.
    pub samples: Option<u32>,
    /// Each region is lengthened by this fraction of itself, from 0 to 1: the planted slowdown of
    /// a control.
    pub slowdown: f64,
}

impl From<TurnInputs> for TurnRequest {
    fn from(inputs: TurnInputs) -> Self {
        Self { inputs, samples: None, slowdown: 0.0 }
    }
}

/// A device and a plan that were checked against each other.
#[derive(Debug)]
pub struct Timer<D: Device> {
    core: Core<D>,
}

impl<D: Device> Timer<D> {
    /// Checks the plan against the device.
    ///
    /// # Errors
    /// [`MeasureError::Plan`].
    pub fn new(device: D, plan: &Plan) -> Result<Self, MeasureError> {
        Ok(Self { core: Core::new(device, plan)? })
    }

    /// Measures the clock.
    ///
    /// # Errors
    /// [`MeasureError::Device`], [`MeasureError::Clock`], [`MeasureError::ClockStands`].
    pub fn calibrate(mut self) -> Result<Calibrated<D>, MeasureError> {
        let calibration =
            self.core.calibrate().map_err(|stop| stop.into_error(Stage::Calibrate))?;
        Ok(Calibrated { core: self.core, calibration })
    }
}

/// A timer that knows its clock.
#[derive(Debug)]
pub struct Calibrated<D: Device> {
    core: Core<D>,
    calibration: Calibration,
}

impl<D: Device> Calibrated<D> {
    /// The clock's numbers.
    #[must_use]
    pub fn calibration(&self) -> Calibration {
        self.calibration
    }

    /// Runs until no code is loaded any more and samples stop drifting.
    ///
    /// # Errors
    /// [`MeasureError::Device`], [`MeasureError::Clock`], [`MeasureError::SampleTooShort`],
    /// [`MeasureError::Unsettled`].
    pub fn warm(mut self) -> Result<Warm<D>, MeasureError> {
        let warmed = warm_up::run(&mut self.core, self.calibration)?;
        Ok(Warm {
            core: self.core,
            calibration: self.calibration,
            calls: warmed.calls,
            warm_up: warmed.samples,
            next_set: warmed.next_set,
            turns: 0,
            invalid_turns: 0,
            samples: 0,
            poisoned: false,
        })
    }
}

/// A timer that is ready for turns.
#[derive(Debug)]
pub struct Warm<D: Device> {
    core: Core<D>,
    calibration: Calibration,
    calls: u32,
    warm_up: Vec<Sample>,
    next_set: u32,
    turns: u32,
    invalid_turns: u32,
    samples: u64,
    poisoned: bool,
}

/// The record of a finished measurement; the turns were given out before.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub struct Finished {
    /// The clock's numbers.
    pub calibration: Calibration,
    /// Calls of each judged sample.
    pub calls: u32,
    /// The warm-up's samples.
    pub warm_up: Vec<Sample>,
    /// Turns that were taken.
    pub turns: u32,
    /// Turns among them that were invalid.
    pub invalid_turns: u32,
    /// Judged samples that were given out.
    pub samples: u64,
}

impl<D: Device> Warm<D> {
    /// The clock's numbers.
    #[must_use]
    pub fn calibration(&self) -> Calibration {
        self.calibration
    }

    /// Calls of each sample.
    #[must_use]
    pub fn calls(&self) -> u32 {
        self.calls
    }

    /// The warm-up's samples.
    #[must_use]
    pub fn warm_up_samples(&self) -> &[Sample] {
        &self.warm_up
    }

    /// Samples, rewarming ones included, that a turn of this request gives.
    #[must_use]
    pub fn samples_of(&self, request: TurnRequest) -> u64 {
        let judged = request.samples.unwrap_or(self.core.plan.samples);
        u64::from(self.core.plan.rewarm_samples) + u64::from(judged)
    }

    /// The device, for what is not timing: reading outputs, witnesses.
    pub fn device_mut(&mut self) -> &mut D {
        &mut self.core.device
    }

    /// Regions of the last turn, or of the warm-up, that were taken again because the host was late.
    #[must_use]
    pub fn retaken(&self) -> u32 {
        self.core.retaken()
    }

    /// Takes the samples of one turn: the plan's, or as many as the request says.
    ///
    /// # Errors
    /// [`MeasureError::Device`] when a device method fails, after which every further turn is
    /// [`MeasureError::Poisoned`]; [`MeasureError::Plan`] when the inputs do not fit the plan.
    pub fn turn(&mut self, request: impl Into<TurnRequest>) -> Result<TurnOutcome, MeasureError> {
        if self.poisoned {
            return Err(MeasureError::Poisoned);
        }
        let request = request.into();
        self.check_request(request)?;
        let turn = self.turns;
        self.turns += 1;
        match self.run_turn(turn, request) {
            Ok(valid) => {
                self.samples += valid.samples.len() as u64;
                Ok(TurnOutcome::Valid(valid))
            }
            Err(Refusal::Invalid(reasons)) => {
                self.invalid_turns += 1;
                Ok(TurnOutcome::Invalid(InvalidTurn { turn, request, reasons }))
            }
            Err(Refusal::Device(source)) => {
                self.poisoned = true;
                Err(MeasureError::Device { stage: Stage::Turn, source })
            }
        }
    }

    /// Ends the measurement.
    ///
    /// # Errors
    /// [`MeasureError::Poisoned`] after a failed turn, [`MeasureError::NoSamples`] when no turn
    /// was valid, [`MeasureError::Device`] when the last wait fails.
    pub fn finish(mut self) -> Result<Finished, MeasureError> {
        if self.poisoned {
            return Err(MeasureError::Poisoned);
        }
        self.core
            .device
            .sync()
            .map_err(|source| MeasureError::Device { stage: Stage::Finish, source })?;
        if self.samples == 0 {
            return Err(MeasureError::NoSamples { invalid_turns: self.invalid_turns });
        }
        Ok(Finished {
            calibration: self.calibration,
            calls: self.calls,
            warm_up: self.warm_up,
            turns: self.turns,
            invalid_turns: self.invalid_turns,
            samples: self.samples,
        })
    }

    fn check_request(&self, request: TurnRequest) -> Result<(), PlanError> {
        if let Some(samples) = request.samples {
            in_range("samples", samples, MAX_SAMPLES)?;
        }
        if !(0.0..=1.0).contains(&request.slowdown) {
            return Err(PlanError::Slowdown { found: request.slowdown.to_string() });
        }
        let TurnInputs::Identical(set) = request.inputs else { return Ok(()) };
        let plan = &self.core.plan;
        if set >= plan.sets {
            return Err(PlanError::NoSuchSet { set, sets: plan.sets });
        }
        let one_call = self.calls == 1;
        let comparable = match plan.cache {
            Cache::Hot => !plan.restore || one_call,
            Cache::Cold { evict_bytes } => {
                let needed =
                    self.core.properties.last_level_cache_bytes.saturating_mul(crate::REUSE_FACTOR);
                one_call && evict_bytes >= needed
            }
        };
        if comparable { Ok(()) } else { Err(PlanError::IdenticalInputs { calls: self.calls }) }
    }

    fn run_turn(&mut self, turn: u32, request: TurnRequest) -> Result<ValidTurn, Refusal> {
        let code_before = self.core.device.loaded_code()?;
        // Reasons since the last question belong to other providers' turns.
        self.core.device.event_reasons()?;
        let taken = self.take_samples(turn, request, code_before);
        let code_after = match &taken {
            Err(Refusal::Device(_)) => return taken,
            _ => self.core.device.loaded_code()?,
        };
        if code_before == code_after {
            return taken;
        }
        let loaded = Invalid::CodeLoaded { before: code_before, after: code_after };
        let mut reasons = vec![loaded];
        if let Err(Refusal::Invalid(others)) = taken {
            reasons.extend(others);
        }
        Err(Refusal::Invalid(reasons))
    }

    fn take_samples(
        &mut self,
        turn: u32,
        request: TurnRequest,
        code: LoadedCode,
    ) -> Result<ValidTurn, Refusal> {
        let start_ns = self.core.host_now()?;
        let (mut rewarm, mut samples) = (Vec::new(), Vec::new());
        let mut totals = Totals::default();
        let rewarming = self.core.plan.rewarm_samples;
        let asked = rewarming + request.samples.unwrap_or(self.core.plan.samples);
        // Work that escapes half of the time is not a host that is late now and then.
        self.core.allow_retakes(asked);
        for position in 0..asked {
            let (phase, index) = match position.checked_sub(rewarming) {
                Some(index) => (Phase::Measure, index),
                None => (Phase::Rewarm, position),
            };
            let rotation = self.rotation(request.inputs);
            let region = Region { rotation, phase, index, slowdown: request.slowdown };
            let taken = self.core.take(region)?;
            self.judge(&taken.sample, position)?;
            totals.add(&taken);
            match phase {
                Phase::Measure => samples.push(taken.sample),
                _ => rewarm.push(taken.sample),
            }
        }
        totals.wall_ns = self.core.host_now()? - start_ns;
        totals.retaken = self.core.retaken();
        Ok(ValidTurn { turn, request, code, rewarm, samples, totals })
    }

    fn rotation(&mut self, inputs: TurnInputs) -> Rotation {
        let sets = self.core.plan.sets;
        match inputs {
            TurnInputs::Identical(set) => {
                Rotation { first_set: set, cycle_start: set, sets: 1, calls: self.calls }
            }
            TurnInputs::Rotating => next_rotation(&self.core.plan, &mut self.next_set, self.calls),
        }
        .within(sets)
    }

    /// The checks that only judged and rewarming samples must pass.
    fn judge(&self, sample: &Sample, position: u32) -> Result<(), Invalid> {
        let floor_ns = self.calibration.empty_region_ns;
        if sample.elapsed_ns < floor_ns {
            return Err(Invalid::BelowFloor { elapsed_ns: sample.elapsed_ns, floor_ns });
        }
        let needed_ns = RESOLUTION_FACTOR * self.calibration.step_ns;
        if sample.elapsed_ns < needed_ns {
            return Err(Invalid::TooShort { elapsed_ns: sample.elapsed_ns, needed_ns });
        }
        let reasons = sample.event_reasons.disqualifying();
        if !reasons.is_empty() {
            return Err(Invalid::ClockEvents { sample: position, reasons });
        }
        Ok(())
    }
}

impl Rotation {
    fn within(self, sets: u32) -> Self {
        debug_assert!(self.cycle_start + self.sets <= sets && self.first_set < sets);
        self
    }
}

/// Why a turn gave nothing.
#[derive(Debug)]
enum Refusal {
    Device(DeviceError),
    Invalid(Vec<Invalid>),
}

impl From<DeviceError> for Refusal {
    fn from(error: DeviceError) -> Self {
        Self::Device(error)
    }
}

impl From<Invalid> for Refusal {
    fn from(invalid: Invalid) -> Self {
        Self::Invalid(vec![invalid])
    }
}

impl From<Stop> for Refusal {
    fn from(stop: Stop) -> Self {
        match stop {
            Stop::Device(error) => Self::Device(error),
            Stop::Invalid(invalid) => invalid.into(),
            Stop::ClockStands { .. } => Invalid::ZeroTime { calls: 0 }.into(),
        }
    }
}

impl Totals {
    fn add(&mut self, taken: &Taken) {
        self.timed_ns += taken.sample.elapsed_ns;
        self.region_ns += taken.sample.region_ns;
        self.untimed_ns += taken.untimed_ns;
    }
}

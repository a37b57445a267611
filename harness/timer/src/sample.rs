//! What a measurement gives: samples, their totals, and reasons why there are none.

use serde::{Deserialize, Serialize};

use crate::device::{EventReasons, LoadedCode};
use crate::measure::TurnRequest;

/// What a sample was taken for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// Before the first turn; kept and not judged.
    WarmUp,
    /// At the start of a turn; kept and not judged.
    Rewarm,
    /// Judged.
    Measure,
}

/// One timed region.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub struct Sample {
    /// Position within its phase, from zero.
    pub index: u32,
    /// What it was taken for.
    pub phase: Phase,
    /// Buffer set of the first call.
    pub first_set: u32,
    /// Calls in the region.
    pub calls: u32,
    /// Time of the whole region by the device's clock, in nanoseconds; above zero and finite.
    pub elapsed_ns: f64,
    /// Host time until the last call was handed over, in nanoseconds; on a synchronous device
    /// this holds the calls themselves.
    pub enqueue_ns: u64,
    /// Host time around the region until its end was reached, in nanoseconds.
    pub region_ns: u64,
    /// Time of the device-wide wait after the region, in nanoseconds.
    pub sync_ns: u64,
    /// Why clocks were held back during the sample.
    pub event_reasons: EventReasons,
}

impl Sample {
    /// Time of one call, in nanoseconds.
    #[must_use]
    pub fn per_call_ns(&self) -> f64 {
        self.elapsed_ns / f64::from(self.calls)
    }
}

/// What the clock can do, measured before anything else.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub struct Calibration {
    /// Typical step above zero from one reading of the clock to the next, in nanoseconds.
    pub step_ns: f64,
    /// Median time of an empty region, in nanoseconds; nothing real is shorter.
    pub empty_region_ns: f64,
    /// Number of empty regions behind these numbers.
    pub regions: u32,
}

/// Where a turn's time went, by the host's clock; the supervisor compares it with its own.
///
/// `region_ns + untimed_ns <= wall_ns` holds by construction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub struct Totals {
    /// Sum of the samples' `elapsed_ns`, warm samples of the turn included.
    pub timed_ns: f64,
    /// Sum of the samples' `region_ns`, warm samples of the turn included.
    pub region_ns: u64,
    /// Time of restoring and evicting, outside the timed regions.
    pub untimed_ns: u64,
    /// Time from the start of the turn to its end.
    pub wall_ns: u64,
    /// Regions that were taken again because the host was late after them.
    pub retaken: u32,
}

/// How a turn ended when no device call failed.
#[derive(Clone, Debug, PartialEq)]
pub enum TurnOutcome {
    /// Every sample can be trusted as far as this crate can see.
    Valid(ValidTurn),
    /// Something makes the turn untrustworthy; there are reasons and no samples.
    Invalid(InvalidTurn),
}

/// A turn that went well.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub struct ValidTurn {
    /// Number of the turn, from zero, invalid ones counted.
    pub turn: u32,
    /// What was asked.
    pub request: TurnRequest,
    /// The code that was loaded, the same before and after.
    pub code: LoadedCode,
    /// Samples at the start of the turn that are not judged.
    pub rewarm: Vec<Sample>,
    /// The judged samples: as many as asked.
    pub samples: Vec<Sample>,
    /// Where the time went.
    pub totals: Totals,
}

/// A turn that gives no numbers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub struct InvalidTurn {
    /// Number of the turn, from zero, invalid ones counted.
    pub turn: u32,
    /// What was asked.
    pub request: TurnRequest,
    /// Why; never empty.
    pub reasons: Vec<Invalid>,
}

/// Why a measurement is untrustworthy.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, thiserror::Error)]
#[serde(rename_all = "snake_case", tag = "reason")]
pub enum Invalid {
    /// The region lasted no time.
    #[error("the region of {calls} calls lasted no time")]
    ZeroTime {
        /// Calls in the region.
        calls: u32,
    },
    /// The device's clock stepped back.
    #[error("the device clock stepped back by {by_ns} ns")]
    ClockWentBack {
        /// By how much, in nanoseconds.
        by_ns: f64,
    },
    /// The host's clock stepped back.
    #[error("the host clock stepped back from {before_ns} to {after_ns} ns")]
    HostClockWentBack {
        /// The later reading, taken first.
        before_ns: u64,
        /// The earlier reading, taken second.
        after_ns: u64,
    },
    /// The time is not a finite number.
    #[error("the elapsed time is {found}, not a finite number")]
    NotFinite {
        /// The value as text.
        found: String,
    },
    /// The region is shorter than an empty one.
    #[error("the region lasted {elapsed_ns} ns; an empty one lasts {floor_ns} ns")]
    BelowFloor {
        /// Time of the region.
        elapsed_ns: f64,
        /// Time of an empty region.
        floor_ns: f64,
    },
    /// The region is too short for the clock.
    #[error("the region lasted {elapsed_ns} ns; the clock's step asks for {needed_ns} ns")]
    TooShort {
        /// Time of the region.
        elapsed_ns: f64,
        /// Time that is needed.
        needed_ns: f64,
    },
    /// The device's clock claims more time than passed on the host.
    #[error("the device clock says {elapsed_ns} ns, the host clock {region_ns} ns around it")]
    LongerThanWall {
        /// Time by the device's clock.
        elapsed_ns: f64,
        /// Time by the host's clock.
        region_ns: u64,
    },
    /// Work went on after the region had ended.
    #[error("the device-wide wait lasted {sync_ns} ns after the region; allowed {allowed_ns} ns")]
    WorkEscaped {
        /// Time of the wait.
        sync_ns: u64,
        /// Time that is allowed.
        allowed_ns: f64,
    },
    /// Clocks were held back.
    #[error("clock event reasons {:#x} during sample {sample}", .reasons.0)]
    ClockEvents {
        /// The sample, counted through the turn.
        sample: u32,
        /// The reasons.
        reasons: EventReasons,
    },
    /// What was captured does less than one kernel a call: an empty graph or remembered results.
    #[error("{kernels} kernels were captured for {calls} calls; accepted: at least one a call")]
    NoKernels {
        /// Kernels in the captured graph.
        kernels: u64,
        /// Calls that were captured.
        calls: u32,
    },
    /// Two captures of one measurement hold different kernels.
    #[error("the kernels changed between two captures: only before {gone:?}, only now {new:?}")]
    KernelsChanged {
        /// Kernels of the first capture alone.
        gone: Vec<String>,
        /// Kernels of the later capture alone.
        new: Vec<String>,
    },
    /// Code was loaded or compiled while it was measured.
    #[error("loaded code changed during the turn: {} to {}", .before.count, .after.count)]
    CodeLoaded {
        /// Before the turn.
        before: LoadedCode,
        /// After the turn.
        after: LoadedCode,
    },
}

impl Invalid {
    /// The reason's stable name in kebab case.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::ZeroTime { .. } => "zero-time",
            Self::ClockWentBack { .. } => "clock-went-back",
            Self::HostClockWentBack { .. } => "host-clock-went-back",
            Self::NotFinite { .. } => "not-finite",
            Self::BelowFloor { .. } => "below-floor",
            Self::TooShort { .. } => "too-short",
            Self::LongerThanWall { .. } => "longer-than-wall",
            Self::WorkEscaped { .. } => "work-escaped",
            Self::ClockEvents { .. } => "clock-events",
            Self::NoKernels { .. } => "no-kernels",
            Self::KernelsChanged { .. } => "kernels-changed",
            Self::CodeLoaded { .. } => "code-loaded",
        }
    }
}

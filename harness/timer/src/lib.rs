//! The one timer: a measuring core over a small [`Device`] trait.
//!
//! Every provider is timed by this code and none times itself.
//! Rust workers link it; Python providers load the same code through the C interface in [`ffi`].
//!
//! The core is a machine of four states, each a type, so that a wrong order does not compile:
//!
//! ```text
//! Timer::calibrate -> Calibrated::warm -> Warm::turn (as often as granted) -> Warm::finish
//! ```
//!
//! - **calibrate** measures the clock: its step and the time of an empty region.
//! - **warm** runs until no code is loaded or compiled any more and samples stop drifting; its
//!   samples are kept and tagged.
//! - **turn** takes a fixed number of samples, each of a fixed number of calls that rotate through
//!   the buffer sets.
//! - **finish** gives the record of the whole.
//!
//! It is fail-closed: a device call that fails, a clock that steps back, a time of zero or one that
//! is not finite, a region below the floor, and code that appears while it measures each give a
//! typed [`MeasureError`] or an [`Invalid`] reason, never a number.
//!
//! Statistics are not here; this crate gives samples.
//!
//! # Example
//! ```
//! use proofhouse_timer::{Plan, Timer, TurnInputs, TurnOutcome, fake::FakeDevice};
//!
//! let plan = Plan::hot(4, 4096, 8, 5);
//! let mut device = FakeDevice::steady(10_000.0);
//! let mut warm = Timer::new(&mut device, &plan)?.calibrate()?.warm()?;
//! match warm.turn(TurnInputs::Rotating)? {
//!     TurnOutcome::Valid(turn) => assert_eq!(turn.samples.len(), 5),
//!     TurnOutcome::Invalid(invalid) => panic!("{:?}", invalid.reasons),
//! }
//! # Ok::<(), proofhouse_timer::MeasureError>(())
//! ```

mod device;
pub mod fake;
pub mod ffi;

pub mod host;
mod measure;
mod plan;
mod region;
mod sample;
mod warm_up;

pub use device::{
    ClockKind, Device, DeviceCall, DeviceError, EscapeLimit, EventReasons, LoadedCode, Properties,
    Rotation,
};
pub use measure::{
    Calibrated, Finished, MeasureError, Stage, Timer, TurnInputs, TurnRequest, Warm,
};
pub use plan::{
    Cache, CallsPerSample, MAX_CALLS, MAX_SAMPLES, MAX_SETS, Plan, PlanError, RESOLUTION_FACTOR,
    REUSE_FACTOR, ValidPlan, WarmUp,
};
pub use sample::{
    Calibration, Invalid, InvalidTurn, Phase, Sample, Totals, TurnOutcome, ValidTurn,
};

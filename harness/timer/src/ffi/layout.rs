//! The structs that cross the boundary, and how they become plans, requests and reports.

use std::fmt::Write;

use crate::device::Device;
use crate::measure::{MeasureError, TurnInputs, TurnRequest, Warm};
use crate::plan::{Cache, CallsPerSample, Plan, WarmUp};
use crate::sample::{Invalid, Phase, Sample, ValidTurn};

/// Bytes of a report's text, the closing zero included.
pub const MESSAGE_BYTES: usize = 1024;
/// The `one_set` of a turn that rotates.
pub const ROTATING: u32 = u32::MAX;

/// How a call of the interface ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub enum Status {
    /// It worked.
    Ok = 0,
    /// The turn is untrustworthy; the text has one `code: detail` line for each reason.
    Invalid = 1,
    /// The plan or the request is refused.
    Plan = 2,
    /// A callback or another device method failed.
    Device = 3,
    /// The clock cannot be trusted or does not advance.
    Clock = 4,
    /// Samples are too short for the clock or the plan's target.
    TooShort = 5,
    /// The warm-up reached its bound.
    Unsettled = 6,
    /// An earlier turn failed.
    Poisoned = 7,
    /// Nothing was measured.
    NoSamples = 8,
    /// The caller's array is too small; nothing was run.
    Capacity = 9,
    /// A null pointer, a wrong size or an unknown value.
    Argument = 10,
    /// The timer panicked; it is a defect of this crate.
    Panic = 11,
}

impl Status {
    pub(super) fn of(error: &MeasureError) -> Self {
        match error {
            MeasureError::Plan(_) => Self::Plan,
            MeasureError::Device { .. } => Self::Device,
            MeasureError::Clock { .. } | MeasureError::ClockStands { .. } => Self::Clock,
            MeasureError::SampleTooShort { .. } => Self::TooShort,
            MeasureError::Unsettled { .. } => Self::Unsettled,
            MeasureError::Poisoned => Self::Poisoned,
            MeasureError::NoSamples { .. } => Self::NoSamples,
        }
    }
}

/// A [`Plan`], with zero for the defaults of the last five.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct PlanC {
    /// Size of this struct in bytes.
    pub size: u32,
    /// Sets that calls go through in turn.
    pub sets: u32,
    /// Judged samples of a turn.
    pub samples: u32,
    /// Samples at the start of a turn that are not judged.
    pub rewarm_samples: u32,
    /// Calls of a sample, or the most of them when `reach_ns` is not zero.
    pub calls: u32,
    /// 1 when every set is restored before each sample, else 0.
    pub restore: u32,
    /// 0 hot, 1 cold.
    pub cache: u32,
    /// Sets in a row that are one buffer set; [`Plan::dwell`]; zero for 1. Who makes the buffers makes `sets / dwell` of them.
    pub dwell: u32,
    /// Time that a sample must reach by growing its calls, in nanoseconds; zero for fixed calls.
    pub reach_ns: u64,
    /// Bytes that one call touches.
    pub footprint_bytes: u64,
    /// Bytes of the evicting pass before each sample; cold only.
    pub evict_bytes: u64,
    /// Bytes of the last-level cache; zero for what the system says.
    pub last_level_cache_bytes: u64,
    /// [`WarmUp::max_ns`]; zero for the default.
    pub warm_up_max_ns: u64,
    /// [`WarmUp::drift`]; zero for the default.
    pub warm_up_drift: f64,
    /// [`WarmUp::max_samples`]; zero for the default.
    pub warm_up_max_samples: u32,
    /// [`WarmUp::window`]; zero for the default.
    pub warm_up_window: u32,
}

impl PlanC {
    pub(super) fn to_plan(self) -> Result<Plan, String> {
        let calls = match self.reach_ns {
            0 => CallsPerSample::Fixed(self.calls),
            at_least_ns => CallsPerSample::Reach { at_least_ns, at_most: self.calls },
        };
        let cache = match (self.cache, self.evict_bytes) {
            (0, 0) => Cache::Hot,
            (0, bytes) => {
                return Err(format!("a hot plan with `evict_bytes` {bytes}; accepted: 0"));
            }
            (1, evict_bytes) => Cache::Cold { evict_bytes },
            (other, _) => return Err(format!("`cache` is {other}; accepted: 0 hot, 1 cold")),
        };
        if self.restore > 1 {
            return Err(format!("`restore` is {}; accepted: 0 and 1", self.restore));
        }
        Ok(Plan {
            sets: self.sets,
            dwell: self.dwell.max(1),
            calls,
            samples: self.samples,
            rewarm_samples: self.rewarm_samples,
            restore: self.restore == 1,
            footprint_bytes: self.footprint_bytes,
            cache,
            warm_up: self.warm_up(),
        })
    }

    /// A plan as this struct.
    #[must_use]
    pub fn of(plan: &Plan, last_level_cache_bytes: u64) -> Self {
        let (calls, reach_ns) = match plan.calls {
            CallsPerSample::Fixed(calls) => (calls, 0),
            CallsPerSample::Reach { at_least_ns, at_most } => (at_most, at_least_ns),
        };
        let (cache, evict_bytes) = match plan.cache {
            Cache::Hot => (0, 0),
            Cache::Cold { evict_bytes } => (1, evict_bytes),
        };
        Self {
            // Far below the type's range.
            size: size_of::<Self>() as u32,
            sets: plan.sets,
            samples: plan.samples,
            rewarm_samples: plan.rewarm_samples,
            calls,
            restore: u32::from(plan.restore),
            cache,
            dwell: plan.dwell,
            reach_ns,
            footprint_bytes: plan.footprint_bytes,
            evict_bytes,
            last_level_cache_bytes,
            warm_up_max_ns: plan.warm_up.max_ns,
            warm_up_drift: plan.warm_up.drift,
            warm_up_max_samples: plan.warm_up.max_samples,
            warm_up_window: plan.warm_up.window,
        }
    }

    fn warm_up(self) -> WarmUp {
        let usual = WarmUp::default();
        let or = |given: u32, usual| if given == 0 { usual } else { given };
        WarmUp {
            window: or(self.warm_up_window, usual.window),
            drift: if self.warm_up_drift == 0.0 { usual.drift } else { self.warm_up_drift },
            max_samples: or(self.warm_up_max_samples, usual.max_samples),
            max_ns: if self.warm_up_max_ns == 0 { usual.max_ns } else { self.warm_up_max_ns },
        }
    }
}

/// A [`TurnRequest`].
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct TurnC {
    /// Size of this struct in bytes.
    pub size: u32,
    /// Judged samples; zero for the plan's.
    pub samples: u32,
    /// The one set of all calls, or [`ROTATING`].
    pub one_set: u32,
    /// Zero.
    pub reserved: u32,
    /// Fraction by which each region is lengthened; zero for none.
    pub slowdown: f64,
}

impl TurnC {
    /// The request that it describes.
    ///
    /// # Errors
    /// A text that names the field, what it holds and what is accepted.
    pub fn to_request(turn: &Self) -> Result<TurnRequest, String> {
        if turn.reserved != 0 {
            return Err(format!("`reserved` is {}; accepted: 0", turn.reserved));
        }
        Ok(TurnRequest {
            inputs: match turn.one_set {
                ROTATING => TurnInputs::Rotating,
                set => TurnInputs::Identical(set),
            },
            samples: (turn.samples > 0).then_some(turn.samples),
            slowdown: turn.slowdown,
        })
    }
}

/// A [`Sample`].
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[repr(C)]
pub struct SampleC {
    /// Position within its phase.
    pub index: u32,
    /// 0 warm-up, 1 start of a turn, 2 judged.
    pub phase: u32,
    /// Buffer set of the first call.
    pub first_set: u32,
    /// Calls in the region.
    pub calls: u32,
    /// Time of the region in nanoseconds.
    pub elapsed_ns: f64,
    /// Host time around the region in nanoseconds.
    pub region_ns: u64,
    /// Why clocks were held back.
    pub event_reasons: u64,
}

impl From<&Sample> for SampleC {
    fn from(sample: &Sample) -> Self {
        Self {
            index: sample.index,
            phase: match sample.phase {
                Phase::WarmUp => 0,
                Phase::Rewarm => 1,
                Phase::Measure => 2,
            },
            first_set: sample.first_set,
            calls: sample.calls,
            elapsed_ns: sample.elapsed_ns,
            region_ns: sample.region_ns,
            event_reasons: sample.event_reasons.0,
        }
    }
}

/// What a call of the interface says beside its samples.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct ReportC {
    /// Size of this struct in bytes, set by the caller.
    pub size: u32,
    /// The [`Status`].
    pub status: i32,
    /// Samples that were written; zero unless the status is [`Status::Ok`].
    pub samples: u32,
    /// Number of the turn.
    pub turn: u32,
    /// Calls of a sample.
    pub calls: u32,
    /// Samples that the warm-up took.
    pub warm_up_samples: u32,
    /// Step of the clock in nanoseconds.
    pub step_ns: f64,
    /// Time of an empty region in nanoseconds.
    pub empty_region_ns: f64,
    /// [`crate::Totals::timed_ns`].
    pub timed_ns: f64,
    /// [`crate::Totals::region_ns`].
    pub region_ns: u64,
    /// [`crate::Totals::untimed_ns`].
    pub untimed_ns: u64,
    /// [`crate::Totals::wall_ns`].
    pub wall_ns: u64,
    /// Pieces of loaded code, the same before and after a valid turn.
    pub loaded_code: u64,
    /// UTF-8 text with a closing zero; empty when all is well.
    pub message: [u8; MESSAGE_BYTES],
}

impl ReportC {
    /// An empty report of the right size.
    #[must_use]
    pub fn empty() -> Self {
        Self {
            // A kilobyte fits.
            size: size_of::<Self>() as u32,
            status: 0,
            samples: 0,
            turn: 0,
            calls: 0,
            warm_up_samples: 0,
            step_ns: 0.0,
            empty_region_ns: 0.0,
            timed_ns: 0.0,
            region_ns: 0,
            untimed_ns: 0,
            wall_ns: 0,
            loaded_code: 0,
            message: [0; MESSAGE_BYTES],
        }
    }

    /// The text.
    #[must_use]
    pub fn text(&self) -> &str {
        let end = self.message.iter().position(|byte| *byte == 0).unwrap_or(MESSAGE_BYTES);
        std::str::from_utf8(&self.message[..end]).unwrap_or_default()
    }
}

impl ReportC {
    /// Forgets everything but the size.
    pub(super) fn reset(&mut self) {
        *self = Self::empty();
    }

    /// Writes what a warm timer knows.
    pub fn describe<D: Device>(&mut self, warm: &Warm<D>) {
        self.calls = warm.calls();
        // Bounded by the plan, far below the type's range.
        self.warm_up_samples = warm.warm_up_samples().len() as u32;
        self.step_ns = warm.calibration().step_ns;
        self.empty_region_ns = warm.calibration().empty_region_ns;
    }

    pub(super) fn describe_turn(&mut self, turn: &ValidTurn) {
        self.turn = turn.turn;
        self.timed_ns = turn.totals.timed_ns;
        self.region_ns = turn.totals.region_ns;
        self.untimed_ns = turn.totals.untimed_ns;
        self.wall_ns = turn.totals.wall_ns;
        self.loaded_code = turn.code.count;
    }

    /// Writes status and text; a text that is too long is cut between characters.
    pub(super) fn close(&mut self, status: Status, text: &str) {
        self.status = status as i32;
        if status != Status::Ok {
            self.samples = 0;
        }
        let mut end = text.len().min(MESSAGE_BYTES - 1);
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        self.message = [0; MESSAGE_BYTES];
        self.message[..end].copy_from_slice(&text.as_bytes()[..end]);
    }
}

/// One `code: detail` line for each reason.
pub(super) fn reasons_text(reasons: &[Invalid]) -> String {
    let mut text = String::new();
    for reason in reasons {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{}: {reason}", reason.code());
    }
    text.trim_end().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_structs_have_the_size_that_other_languages_declare() {
        assert_eq!(size_of::<PlanC>(), 88);
        assert_eq!(size_of::<TurnC>(), 24);
        assert_eq!(size_of::<SampleC>(), 40);
        assert_eq!(size_of::<ReportC>(), 80 + MESSAGE_BYTES);
    }

    #[test]
    fn zeros_in_a_plan_mean_the_default_warm_up() {
        let plan = PlanC { sets: 1, samples: 2, calls: 3, ..PlanC::default() }.to_plan().unwrap();
        assert_eq!(plan.warm_up, WarmUp::default());
        assert_eq!(plan.calls, CallsPerSample::Fixed(3));
        assert_eq!(plan.cache, Cache::Hot);
    }

    #[test]
    fn a_plan_crosses_and_comes_back_the_same() {
        let mut hot = Plan::hot(3, 4096, 8, 5);
        hot.restore = true;
        hot.rewarm_samples = 2;
        let mut cold = Plan::cold(600, 1 << 20, 600, 1).evicting(77);
        cold.calls = CallsPerSample::Reach { at_least_ns: 5_000, at_most: 900 };
        cold.warm_up = WarmUp { window: 6, drift: 0.125, max_samples: 40, max_ns: 1_000 };
        for plan in [hot, cold] {
            assert_eq!(PlanC::of(&plan, 9).to_plan().unwrap(), plan);
        }
    }

    #[test]
    fn unknown_values_are_refused_by_name() {
        let refused = |plan: PlanC| plan.to_plan().unwrap_err();
        assert!(refused(PlanC { cache: 2, ..PlanC::default() }).starts_with("`cache` is 2"));
        assert!(refused(PlanC { restore: 2, ..PlanC::default() }).starts_with("`restore` is 2"));
        assert!(refused(PlanC { evict_bytes: 1, ..PlanC::default() }).starts_with("a hot plan"));
    }

    #[test]
    fn a_long_text_is_cut_between_characters_and_closed() {
        let mut report = ReportC::empty();
        report.close(Status::Plan, &"\u{e9}".repeat(MESSAGE_BYTES));
        assert_eq!(report.message[MESSAGE_BYTES - 1], 0);
        assert_eq!(report.text().chars().count(), (MESSAGE_BYTES - 1) / 2);
    }

    #[test]
    fn only_an_ok_report_has_samples() {
        let mut report = ReportC::empty();
        report.samples = 7;
        report.close(Status::Invalid, "zero-time: no time");
        assert_eq!((report.samples, report.text()), (0, "zero-time: no time"));
    }
}

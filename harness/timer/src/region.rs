//! The device with its plan, and the one function that times a region.

use crate::device::{
    ClockKind, Device, DeviceError, EventReasons, LoadedCode, Properties, Rotation,
};
use crate::measure::{MeasureError, Stage};
use crate::plan::{Cache, Plan, ValidPlan};
use crate::sample::{Calibration, Invalid, Phase, Sample};

/// Empty regions behind a calibration.
const CALIBRATION_REGIONS: u32 = 64;
/// How often a region is taken before a wait that is too long counts as escaped work.
const ESCAPE_TRIES: u32 = 4;
/// Stamps tried for one step of a clock that stands still between two of them.
const STEP_TRIES: u32 = 1 << 20;
/// Slack of the comparison of two different clocks: a floor in nanoseconds and a fraction.
const CLOCK_SLACK: (f64, f64) = (2_000.0, 0.01);

/// Why a step gave nothing: a device method failed, or what it gave is not to be trusted.
#[derive(Debug)]
pub(crate) enum Stop {
    Device(DeviceError),
    Invalid(Invalid),
    ClockStands { tries: u32 },
}

impl Stop {
    pub(crate) fn into_error(self, stage: Stage) -> MeasureError {
        match self {
            Self::Device(source) => MeasureError::Device { stage, source },
            Self::Invalid(source) => MeasureError::Clock { stage, source },
            Self::ClockStands { tries } => MeasureError::ClockStands { tries },
        }
    }
}

impl From<DeviceError> for Stop {
    fn from(error: DeviceError) -> Self {
        Self::Device(error)
    }
}

impl From<Invalid> for Stop {
    fn from(invalid: Invalid) -> Self {
        Self::Invalid(invalid)
    }
}

/// The next sample's calls; restored sets start at zero, others go on where the last sample ended.
pub(crate) fn next_rotation(plan: &Plan, next_set: &mut u32, calls: u32) -> Rotation {
    let first_set = if plan.restore { 0 } else { *next_set };
    let after = (u64::from(first_set) + u64::from(calls)) % u64::from(plan.sets);
    // The remainder is below `sets`, which fits.
    *next_set = after as u32;
    Rotation { first_set, cycle_start: 0, sets: plan.sets, calls }
}

/// One region to be timed.
#[derive(Clone, Copy)]
pub(crate) struct Region {
    pub(crate) rotation: Rotation,
    pub(crate) phase: Phase,
    pub(crate) index: u32,
    pub(crate) slowdown: f64,
}

/// A sample and the time that was spent around it.
pub(crate) struct Taken {
    pub(crate) sample: Sample,
    pub(crate) untimed_ns: u64,
}

impl Taken {
    /// Counts the time of regions that were taken in vain before this one, which began at `from_ns`.
    fn since(mut self, begun_ns: Option<u64>, from_ns: u64) -> Self {
        self.untimed_ns += begun_ns.map_or(0, |begun| from_ns - begun);
        self
    }
}

/// The device with its plan, and the one function that times a region.
#[derive(Debug)]
pub(crate) struct Core<D: Device> {
    pub(crate) device: D,
    pub(crate) plan: ValidPlan,
    pub(crate) properties: Properties,
    last_host_ns: Option<u64>,
    retakes: Retakes,
}

/// Regions that were taken again in this turn or warm-up.
#[derive(Debug, Default)]
struct Retakes {
    taken: u32,
    at_most: u32,
}

impl<D: Device> Core<D> {
    /// Checks the plan against the device.
    pub(crate) fn new(device: D, plan: &Plan) -> Result<Self, MeasureError> {
        let properties = device.properties();
        let plan = plan.validate(properties.last_level_cache_bytes)?;
        Ok(Self { device, plan, properties, last_host_ns: None, retakes: Retakes::default() })
    }

    /// The host's clock, which never steps back unnoticed.
    pub(crate) fn host_now(&mut self) -> Result<u64, Stop> {
        let now = self.device.host_now_ns()?;
        match self.last_host_ns {
            Some(before_ns) if now < before_ns => {
                Err(Invalid::HostClockWentBack { before_ns, after_ns: now }.into())
            }
            _ => {
                self.last_host_ns = Some(now);
                Ok(now)
            }
        }
    }

    pub(crate) fn loaded_code(&mut self) -> Result<LoadedCode, Stop> {
        Ok(self.device.loaded_code()?)
    }

    pub(crate) fn calibrate(&mut self) -> Result<Calibration, Stop> {
        self.device.sync()?;
        let mut regions = Vec::with_capacity(CALIBRATION_REGIONS as usize);
        for _ in 0..CALIBRATION_REGIONS {
            let from = self.device.stamp()?;
            let to = self.device.stamp()?;
            regions.push(self.step_between(from, to)?);
        }
        regions.sort_by(f64::total_cmp);
        // The median and not the least, so that one wild reading cannot loosen every later check.
        let moved = &regions[regions.partition_point(|ns| *ns <= 0.0)..];
        // A clock that counts in fixed ticks may show an empty region that is many ticks long.
        let known = self.device.resolution_ns().filter(|ns| ns.is_finite() && *ns > 0.0);
        let step_ns = match (known, moved.get(moved.len() / 2)) {
            (Some(known), _) => known,
            (None, Some(step)) => *step,
            (None, None) => self.wait_for_a_step()?,
        };
        let empty_region_ns = regions[regions.len() / 2];
        Ok(Calibration { step_ns, empty_region_ns, regions: CALIBRATION_REGIONS })
    }

    fn step_between(&mut self, from: D::Stamp, to: D::Stamp) -> Result<f64, Stop> {
        let elapsed = self.device.elapsed_ns(from, to)?;
        if !elapsed.is_finite() {
            return Err(Invalid::NotFinite { found: elapsed.to_string() }.into());
        }
        if elapsed < 0.0 {
            return Err(Invalid::ClockWentBack { by_ns: -elapsed }.into());
        }
        Ok(elapsed)
    }

    fn wait_for_a_step(&mut self) -> Result<f64, Stop> {
        let from = self.device.stamp()?;
        for _ in 0..STEP_TRIES {
            let to = self.device.stamp()?;
            let elapsed = self.step_between(from, to)?;
            if elapsed > 0.0 {
                return Ok(elapsed);
            }
        }
        Err(Stop::ClockStands { tries: STEP_TRIES })
    }

    /// Begins a turn or warm-up in which so many regions may be taken again.
    pub(crate) fn allow_retakes(&mut self, at_most: u32) {
        self.retakes = Retakes { taken: 0, at_most };
    }

    /// Regions that were taken again since [`Self::allow_retakes`].
    pub(crate) fn retaken(&self) -> u32 {
        self.retakes.taken
    }

    /// Prepares the buffers, times one region and checks that its times can be true. A region after which the device-wide
    /// wait was too long is taken again a few times: a host that was busy elsewhere is not late every time, and work that
    /// escapes the region is.
    pub(crate) fn take(&mut self, region: Region) -> Result<Taken, Stop> {
        let mut begun = None;
        for _ in 1..ESCAPE_TRIES {
            if self.retakes.taken >= self.retakes.at_most {
                break;
            }
            let from_ns = self.host_now()?;
            match self.take_once(region) {
                Err(Stop::Invalid(Invalid::WorkEscaped { .. })) => {
                    begun.get_or_insert(from_ns);
                    self.retakes.taken += 1;
                }
                Ok(taken) => return Ok(taken.since(begun, from_ns)),
                stopped => return stopped,
            }
        }
        let from_ns = self.host_now()?;
        Ok(self.take_once(region)?.since(begun, from_ns))
    }

    fn take_once(&mut self, region: Region) -> Result<Taken, Stop> {
        let Region { rotation, phase, index, slowdown } = region;
        let preparing_ns = self.host_now()?;
        if let Some(invalid) = self.device.prepare(rotation)? {
            return Err(invalid.into());
        }
        self.prepare_buffers()?;
        let before_ns = self.host_now()?;
        self.device.lead_in()?;
        let from = self.device.stamp()?;
        self.device.run_calls(rotation)?;
        if slowdown > 0.0 {
            self.device.slow_down(from, slowdown)?;
        }
        let to = self.device.stamp()?;
        let enqueued_ns = self.host_now()?;
        let elapsed_ns = self.device.elapsed_ns(from, to)?;
        let reached_ns = self.host_now()?;
        self.device.sync()?;
        let synced_ns = self.host_now()?;
        let mut sample = Sample {
            index,
            phase,
            first_set: rotation.first_set,
            calls: rotation.calls,
            elapsed_ns,
            enqueue_ns: enqueued_ns - before_ns,
            region_ns: reached_ns - before_ns,
            sync_ns: synced_ns - reached_ns,
            event_reasons: EventReasons::default(),
        };
        self.check_times(&sample)?;
        // Asked of regions that count, so that what a device keeps beside the answer belongs to its sample.
        sample.event_reasons = self.device.event_reasons()?;
        Ok(Taken { sample, untimed_ns: before_ns - preparing_ns })
    }

    fn prepare_buffers(&mut self) -> Result<(), Stop> {
        if self.plan.restore {
            self.device.restore_all(self.plan.sets)?;
        }
        if let Cache::Cold { evict_bytes: bytes @ 1.. } = self.plan.cache {
            self.device.evict(bytes)?;
        }
        self.device.sync()?;
        Ok(())
    }

    fn check_times(&self, sample: &Sample) -> Result<(), Invalid> {
        let elapsed_ns = sample.elapsed_ns;
        if !elapsed_ns.is_finite() {
            return Err(Invalid::NotFinite { found: elapsed_ns.to_string() });
        }
        if elapsed_ns < 0.0 {
            return Err(Invalid::ClockWentBack { by_ns: -elapsed_ns });
        }
        if elapsed_ns == 0.0 {
            return Err(Invalid::ZeroTime { calls: sample.calls });
        }
        let slack_ns = match self.properties.clock {
            ClockKind::Host => 0.0,
            ClockKind::Device => CLOCK_SLACK.0.max(CLOCK_SLACK.1 * elapsed_ns),
        };
        let region_ns = sample.region_ns;
        if elapsed_ns > region_ns as f64 + slack_ns {
            return Err(Invalid::LongerThanWall { elapsed_ns, region_ns });
        }
        let allowed_ns =
            self.properties.escape_limit.map_or(f64::INFINITY, |l| l.allowed_ns(elapsed_ns));
        if sample.sync_ns as f64 > allowed_ns {
            return Err(Invalid::WorkEscaped { sync_ns: sample.sync_ns, allowed_ns });
        }
        Ok(())
    }
}

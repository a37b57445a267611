//! `measure`: a case under the timer, over private sets of its tensors.

use proofhouse_schema::device::Telemetry;
use proofhouse_schema::evidence::Finding;
use proofhouse_schema::protocol::{Measure, Measured, Phase, Prepare, Reply};
use proofhouse_schema::timing::Cache;
use proofhouse_schema::units::Nanos;
use proofhouse_timer::host::{HostDevice, HostWork as _, last_level_cache_bytes, monotonic_raw_ns};
use proofhouse_timer::{
    CallsPerSample, MAX_CALLS, MAX_SAMPLES, MeasureError, Plan, Timer, TurnInputs, TurnOutcome,
    TurnRequest, WarmUp,
};

use crate::decline::Decline;
use crate::memory::Bound;
use crate::provider::Worker;
use crate::reasons::{check_request, finding, untrusted};
use crate::sets::Sets;

/// The most sets of a rotation.
const MOST_SETS: u64 = 2_048;
/// The most bytes of all sets together.
const MOST_SET_BYTES: u64 = 2 << 30;
/// Calls behind the first guess of a call's duration.
const GUESS_CALLS: u32 = 5;
/// Sets are made for this many times the calls that the guess asks for.
const HEADROOM: f64 = 1.5;

/// A case that is warm.
#[derive(Debug)]
pub(crate) struct Timed {
    warm: proofhouse_timer::Warm<HostDevice<Sets>>,
    sets: u32,
}

/// What one request gave.
struct Taken {
    calls: u32,
    sets: u32,
    elapsed_ns: Vec<f64>,
    untimed_ns: f64,
    invalid: Vec<Finding>,
}

/// Where a request is answered: the case, its file and its timer.
pub(crate) struct Bench<'a> {
    pub(crate) worker: &'a mut dyn Worker,
    pub(crate) case: &'a Prepare,
    pub(crate) mapped: &'a mut Bound,
    pub(crate) timed: &'a mut Option<Timed>,
}

impl Bench<'_> {
    /// Answers the request.
    pub(crate) fn measure(&mut self, request: &Measure) -> Reply {
        match self.measured(request) {
            Ok(measured) => Reply::Measured(measured),
            Err(decline) => decline.into_reply(&request.case),
        }
    }

    fn measured(&mut self, request: &Measure) -> Result<Measured, Decline> {
        check_request(request)?;
        let start_ns = now_ns()?;
        let before = modules()?;
        let taken = match request.phase {
            Phase::Warm => self.warm_up(request)?,
            Phase::Turn => self.turn(request)?,
        };
        let after = modules()?;
        Ok(Measured {
            case: request.case.clone(),
            phase: request.phase,
            block: request.block,
            position: request.position,
            calls: taken.calls,
            sets: taken.sets,
            timed: Nanos(taken.elapsed_ns.iter().sum()),
            elapsed_ns: taken.elapsed_ns,
            untimed: Nanos(taken.untimed_ns),
            wall: Nanos((now_ns()? - start_ns) as f64),
            modules: [before, after],
            invalid: taken.invalid,
            enqueue_ns: Vec::new(),
            telemetry: Telemetry::default(),
            kernels: Vec::new(),
            reuse: None,
            retaken: 0,
        })
    }

    fn warm_up(&mut self, request: &Measure) -> Result<Taken, Decline> {
        *self.timed = None;
        let mut sets = Sets::from_mapped(self.worker, self.case, self.mapped)?;
        let facts = Facts::gather(self.case, guess_call_ns(&mut sets)?);
        let plan = facts.plan(request);
        sets.grow(self.worker, plan.sets)?;
        let count = plan.sets;
        let device = HostDevice::new(sets);
        let warmed = Timer::new(device, &plan).and_then(Timer::calibrate).and_then(|t| t.warm());
        match warmed {
            Ok(warm) => {
                let calls = warm.calls();
                let settled = warm.warm_up_samples().iter().filter(|s| s.calls == calls);
                let elapsed_ns = settled.map(|sample| sample.elapsed_ns).collect();
                *self.timed = Some(Timed { warm, sets: count });
                Ok(Taken { calls, sets: count, elapsed_ns, untimed_ns: 0.0, invalid: vec![] })
            }
            Err(error) => untrustworthy(error, 0, count),
        }
    }

    fn turn(&mut self, request: &Measure) -> Result<Taken, Decline> {
        let Some(timed) = self.timed.as_mut() else {
            return Err(Decline::Failed("a turn was asked for before the warm-up".to_owned()));
        };
        let (calls, sets) = (timed.warm.calls(), timed.sets);
        let work = timed.warm.device_mut().work_mut();
        if request.refresh
            && let Err(decline) = work.refresh(self.worker, self.mapped)
        {
            *self.timed = None;
            return Err(decline);
        }
        if request.publish && !request.refresh {
            work.poison_outputs();
        }
        let slowdown = request.slowdown + self.worker.planted_slowdown();
        let outcome = timed.warm.turn(TurnRequest {
            inputs: TurnInputs::Rotating,
            samples: Some(request.samples),
            slowdown,
        });
        let work = timed.warm.device_mut().work_mut();
        if let Some(decline) = work.take_declined() {
            return Err(decline);
        }
        let turn = match outcome {
            Ok(TurnOutcome::Valid(turn)) => turn,
            Ok(TurnOutcome::Invalid(turn)) => {
                let invalid = turn.reasons.iter().map(finding).collect();
                return Ok(Taken { calls, sets, elapsed_ns: vec![], untimed_ns: 0.0, invalid });
            }
            Err(error) => return untrustworthy(error, calls, sets),
        };
        if request.publish {
            work.publish(self.mapped)?;
        }
        let rewarm_ns: f64 = turn.rewarm.iter().map(|sample| sample.elapsed_ns).sum();
        Ok(Taken {
            calls,
            sets,
            elapsed_ns: turn.samples.iter().map(|sample| sample.elapsed_ns).collect(),
            untimed_ns: turn.totals.untimed_ns as f64 + rewarm_ns,
            invalid: vec![],
        })
    }
}

fn untrustworthy(error: MeasureError, calls: u32, sets: u32) -> Result<Taken, Decline> {
    let invalid = vec![untrusted(&error)?];
    Ok(Taken { calls, sets, elapsed_ns: vec![], untimed_ns: 0.0, invalid })
}

fn now_ns() -> Result<u64, Decline> {
    monotonic_raw_ns().map_err(|error| Decline::Failed(error.to_string()))
}

fn modules() -> Result<u64, Decline> {
    let code = proofhouse_timer::host::loaded_code();
    code.map(|code| code.count).map_err(|error| Decline::Failed(error.to_string()))
}

/// A guess of a call's duration: the least of a few, with inputs restored between them.
fn guess_call_ns(sets: &mut Sets) -> Result<f64, Decline> {
    let mut least = f64::INFINITY;
    for _ in 0..GUESS_CALLS {
        let failed = |failure: proofhouse_timer::host::CallFailure| failure.message;
        sets.restore(0).map_err(|failure| Decline::Failed(failed(failure)))?;
        let from = now_ns()?;
        if let Err(failure) = sets.call(0) {
            let declined = sets.take_declined();
            return Err(declined.unwrap_or_else(|| Decline::Failed(failed(failure))));
        }
        least = least.min((now_ns()? - from) as f64);
    }
    Ok(least.max(1.0))
}

/// What decides how many sets and calls a case gets.
struct Facts {
    call_ns: f64,
    footprint: u64,
    in_place: bool,
    cache_bytes: u64,
}

impl Facts {
    fn gather(case: &Prepare, call_ns: f64) -> Self {
        use proofhouse_schema::catalog::Role;
        Self {
            call_ns,
            footprint: case.tensors.iter().map(|tensor| tensor.span).sum::<u64>().max(1),
            in_place: case.tensors.iter().any(|tensor| tensor.role == Role::InOut),
            cache_bytes: last_level_cache_bytes().unwrap_or(0),
        }
    }

    fn plan(&self, request: &Measure) -> Plan {
        let mut plan = match request.cache {
            Cache::Hot if self.in_place => self.hot_in_place(request),
            Cache::Hot => with_calls(Plan::hot(1, self.footprint, 1, 1), reach(request, MAX_CALLS)),
            Cache::Cold => self.cold(request),
        };
        plan.restore = self.in_place;
        plan.rewarm_samples = u32::from(request.cache == Cache::Hot);
        let warm_up = WarmUp::default();
        let most = if request.phase == Phase::Warm { request.samples } else { MAX_SAMPLES };
        plan.warm_up = WarmUp { max_samples: most.max(warm_up.window), ..warm_up };
        plan
    }

    /// Every set is called once a sample, so there are as many as a sample needs, if the cache holds them.
    fn hot_in_place(&self, request: &Measure) -> Plan {
        let fit = (self.cache_bytes / self.footprint).clamp(1, MOST_SETS);
        let (sets, calls) = self.once_each(request, fit);
        with_calls(Plan::hot(sets, self.footprint, 1, 1), calls)
    }

    fn cold(&self, request: &Measure) -> Plan {
        let cache = self.cache_bytes.saturating_mul(proofhouse_timer::REUSE_FACTOR);
        let needed = cache.max(request.footprint);
        let rotation = needed / self.footprint + 2;
        let bytes = rotation.saturating_mul(self.footprint);
        if !self.in_place && rotation <= MOST_SETS && bytes <= MOST_SET_BYTES {
            // At most MOST_SETS, so it fits.
            let plan = Plan::cold(rotation as u32, self.footprint, 1, 1);
            return with_calls(plan, reach(request, MAX_CALLS));
        }
        let fit = (MOST_SET_BYTES / self.footprint).clamp(1, MOST_SETS);
        let (sets, calls) = self.once_each(request, fit);
        with_calls(Plan::cold(sets, self.footprint, 1, 1).evicting(needed), calls)
    }

    /// Sets and calls where no set may be used twice in a sample and at most `fit` sets can be had.
    fn once_each(&self, request: &Measure, fit: u64) -> (u32, CallsPerSample) {
        let wanted = (HEADROOM * request.min_sample_ns / self.call_ns).ceil().max(1.0);
        // At most MOST_SETS, so both casts are exact.
        if wanted <= fit as f64 {
            (wanted as u32, reach(request, wanted as u32))
        } else {
            (fit as u32, CallsPerSample::Fixed(fit as u32))
        }
    }
}

fn with_calls(plan: Plan, calls: CallsPerSample) -> Plan {
    Plan { calls, ..plan }
}

fn reach(request: &Measure, at_most: u32) -> CallsPerSample {
    // The request was checked: finite and at least 1.
    CallsPerSample::Reach { at_least_ns: request.min_sample_ns.ceil() as u64, at_most }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proofhouse_schema::timing::Launch;

    const MIB: u64 = 1 << 20;

    fn request(cache: Cache) -> Measure {
        Measure {
            case: "c".to_owned(),
            phase: Phase::Warm,
            block: 0,
            position: 0,
            samples: 64,
            min_sample_ns: 100_000.0,
            cache,
            launch: Launch::Eager,
            footprint: 0,
            publish: false,
            slowdown: 0.0,
            refresh: false,
        }
    }

    fn facts(footprint: u64, in_place: bool) -> Facts {
        Facts { call_ns: 1_000.0, footprint, in_place, cache_bytes: 32 * MIB }
    }

    #[test]
    fn every_plan_is_one_that_the_timer_accepts() {
        for cache in [Cache::Hot, Cache::Cold] {
            for in_place in [false, true] {
                for footprint in [1, 4096, MIB, 40 * MIB, 4096 * MIB] {
                    let plan = facts(footprint, in_place).plan(&request(cache));
                    let valid = plan.validate(32 * MIB);
                    assert!(valid.is_ok(), "{cache:?} {in_place} {footprint}: {valid:?}");
                }
            }
        }
    }

    #[test]
    fn a_hot_case_that_is_not_in_place_uses_one_set_and_as_many_calls_as_it_takes() {
        let plan = facts(4096, false).plan(&request(Cache::Hot));
        assert_eq!((plan.sets, plan.restore), (1, false));
        assert_eq!(plan.calls, CallsPerSample::Reach { at_least_ns: 100_000, at_most: MAX_CALLS });
    }

    #[test]
    fn in_place_sets_are_used_once_a_sample_and_stay_in_the_cache() {
        let plan = facts(4096, true).plan(&request(Cache::Hot));
        assert_eq!((plan.sets, plan.calls.most(), plan.restore), (150, 150, true));
        let large = facts(MIB, true).plan(&request(Cache::Hot));
        assert_eq!((large.sets, large.calls), (32, CallsPerSample::Fixed(32)));
    }

    #[test]
    fn cold_cases_rotate_where_sets_suffice_and_evict_where_they_do_not() {
        let plan = facts(MIB, false).plan(&request(Cache::Cold));
        assert_eq!(
            (plan.sets, plan.cache),
            (162, proofhouse_timer::Cache::Cold { evict_bytes: 0 })
        );
        let small = facts(4096, false).plan(&request(Cache::Cold));
        assert_eq!(small.cache, proofhouse_timer::Cache::Cold { evict_bytes: 160 * MIB });
    }

    #[test]
    fn a_request_with_nonsense_numbers_is_refused() {
        let mut bad = request(Cache::Hot);
        bad.samples = 0;
        assert!(check_request(&bad).is_err());
        bad = request(Cache::Hot);
        bad.min_sample_ns = f64::NAN;
        assert!(check_request(&bad).is_err());
        bad.min_sample_ns = 1.0;
        bad.slowdown = -0.1;
        assert!(check_request(&bad).is_err());
        bad.slowdown = 0.05;
        assert!(check_request(&bad).is_ok());
    }
}

//! What a measurement does, checked against the device before anything runs.

use serde::{Deserialize, Serialize};

/// A cold plan touches at least this many times the last-level cache between two uses of a buffer.
pub const REUSE_FACTOR: u64 = 5;
/// A sample lasts at least this many steps of the clock.
pub const RESOLUTION_FACTOR: f64 = 100.0;
/// The most buffer sets of a plan.
pub const MAX_SETS: u32 = 1 << 20;
/// The most calls of a sample.
pub const MAX_CALLS: u32 = 1 << 24;
/// The most samples of a turn or of a warm-up.
pub const MAX_SAMPLES: u32 = 1 << 16;

/// A measurement as it was asked for.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub struct Plan {
    /// Number of sets that the calls rotate through.
    pub sets: u32,
    /// Sets in a row that are one buffer set, so that so many calls stay on it; 1 but for hot plans that restore nothing.
    pub dwell: u32,
    /// Calls in one sample.
    pub calls: CallsPerSample,
    /// Samples in one turn.
    pub samples: u32,
    /// Samples at the start of each turn that are kept, tagged and not judged.
    pub rewarm_samples: u32,
    /// True for operators that work in place: every set is restored before each sample, outside
    /// the timed region, and evicted again.
    pub restore: bool,
    /// Bytes that one call touches.
    pub footprint_bytes: u64,
    /// What the caches hold when a call starts.
    pub cache: Cache,
    /// When the warm-up is over.
    pub warm_up: WarmUp,
}

/// How many calls a sample has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum CallsPerSample {
    /// This many.
    Fixed(u32),
    /// Grown during the warm-up until a sample lasts long enough, then fixed.
    Reach {
        /// The time that a sample must reach, in nanoseconds.
        at_least_ns: u64,
        /// The most calls that may be used for it.
        at_most: u32,
    },
}

impl CallsPerSample {
    /// The most calls that a sample may have.
    #[must_use]
    pub fn most(self) -> u32 {
        match self {
            Self::Fixed(calls) | Self::Reach { at_most: calls, .. } => calls,
        }
    }
}

/// The cache state of the timing contract.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Cache {
    /// Between two uses of a buffer at least [`REUSE_FACTOR`] times the last-level cache is
    /// touched, by the rotation and by an evicting pass before each sample.
    Cold {
        /// Bytes of the evicting pass before each sample; zero for none.
        evict_bytes: u64,
    },
    /// The same buffers, on purpose.
    Hot,
}

/// When a warm-up is over, and when it has failed.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub struct WarmUp {
    /// Number of last samples that must show no new code and no drift; even, at least four.
    pub window: u32,
    /// Largest allowed change between the medians of the window's two halves, as a fraction.
    pub drift: f64,
    /// A warm-up that needs more samples has failed.
    pub max_samples: u32,
    /// A warm-up that needs more time, in nanoseconds, has failed.
    pub max_ns: u64,
}

impl Default for WarmUp {
    fn default() -> Self {
        Self { window: 8, drift: 0.05, max_samples: 256, max_ns: 20_000_000_000 }
    }
}

impl Plan {
    /// A hot plan with the default warm-up.
    #[must_use]
    pub fn hot(sets: u32, footprint_bytes: u64, calls: u32, samples: u32) -> Self {
        Self {
            sets,
            dwell: 1,
            calls: CallsPerSample::Fixed(calls),
            samples,
            rewarm_samples: 0,
            restore: false,
            footprint_bytes,
            cache: Cache::Hot,
            warm_up: WarmUp::default(),
        }
    }

    /// A cold plan with the default warm-up and an evicting pass of `evict_bytes` bytes.
    #[must_use]
    pub fn cold(sets: u32, footprint_bytes: u64, calls: u32, samples: u32) -> Self {
        let cache = Cache::Cold { evict_bytes: 0 };
        Self { cache, ..Self::hot(sets, footprint_bytes, calls, samples) }
    }

    /// The same plan with an evicting pass of `evict_bytes` bytes before each sample (cold only).
    #[must_use]
    pub fn evicting(mut self, evict_bytes: u64) -> Self {
        self.cache = Cache::Cold { evict_bytes };
        self
    }

    /// Bytes touched between two uses of a buffer, never estimated too high.
    ///
    /// Without restoring, the rotation goes on from sample to sample: call `i` and call
    /// `i + sets` use the same buffers, with `sets - 1` other calls between them and at least
    /// `sets / calls` starts of a sample, each with its evicting pass.
    /// With restoring, the restored buffer is touched just before the evicting pass, so that only
    /// the pass counts.
    ///
    /// # Errors
    /// [`PlanError::Overflow`] when the bytes do not fit.
    pub fn reuse_distance_bytes(&self) -> Result<u64, PlanError> {
        let evict = match self.cache {
            Cache::Cold { evict_bytes } => evict_bytes,
            Cache::Hot => 0,
        };
        if self.restore {
            return Ok(evict);
        }
        let overflow = PlanError::Overflow {
            sets: self.sets,
            footprint_bytes: self.footprint_bytes,
            evict_bytes: evict,
        };
        let rotated = u64::from(self.sets.saturating_sub(1)).checked_mul(self.footprint_bytes);
        let passes = u64::from(self.sets.checked_div(self.calls.most()).unwrap_or(0));
        let evicted = passes.checked_mul(evict);
        rotated.zip(evicted).and_then(|(a, b)| a.checked_add(b)).ok_or(overflow)
    }

    /// Checks the plan against a last-level cache of `last_level_cache_bytes` bytes (zero:
    /// unknown).
    ///
    /// # Errors
    /// A [`PlanError`] that names the key, what was found and what is accepted.
    pub fn validate(&self, last_level_cache_bytes: u64) -> Result<ValidPlan, PlanError> {
        self.check_counts()?;
        self.check_warm_up()?;
        self.check_restore()?;
        self.check_cache(last_level_cache_bytes)?;
        Ok(ValidPlan(self.clone()))
    }

    fn check_counts(&self) -> Result<(), PlanError> {
        in_range("sets", self.sets, MAX_SETS)?;
        in_range("calls", self.calls.most(), MAX_CALLS)?;
        in_range("samples", self.samples, MAX_SAMPLES)?;
        if self.rewarm_samples > MAX_SAMPLES {
            in_range("rewarm_samples", self.rewarm_samples, MAX_SAMPLES)?;
        }
        if self.footprint_bytes == 0 {
            return Err(PlanError::NoFootprint);
        }
        if let CallsPerSample::Reach { at_least_ns: 0, .. } = self.calls {
            return Err(PlanError::NoTarget);
        }
        Ok(())
    }

    fn check_warm_up(&self) -> Result<(), PlanError> {
        let warm = self.warm_up;
        in_range("warm_up.max_samples", warm.max_samples, MAX_SAMPLES)?;
        if warm.window < 4 || !warm.window.is_multiple_of(2) || warm.window > warm.max_samples {
            return Err(PlanError::Window { window: warm.window, max_samples: warm.max_samples });
        }
        if !(warm.drift > 0.0 && warm.drift < 1.0) {
            return Err(PlanError::Drift { found: warm.drift.to_string() });
        }
        if warm.max_ns == 0 {
            return Err(PlanError::NoWarmUpTime);
        }
        Ok(())
    }

    fn check_restore(&self) -> Result<(), PlanError> {
        if self.restore && self.calls.most() > self.sets {
            return Err(PlanError::CallsOnUsedSets { calls: self.calls.most(), sets: self.sets });
        }
        Ok(())
    }

    /// Buffer sets that the sets are.
    #[must_use]
    pub fn buffer_sets(&self) -> u32 {
        self.sets / self.dwell.max(1)
    }

    fn check_cache(&self, last_level_cache_bytes: u64) -> Result<(), PlanError> {
        let stays = self.cache == Cache::Hot && !self.restore;
        if self.dwell == 0 || !self.sets.is_multiple_of(self.dwell) || (self.dwell > 1 && !stays) {
            return Err(PlanError::Dwell { dwell: self.dwell, sets: self.sets });
        }
        let total = u64::from(self.buffer_sets()).checked_mul(self.footprint_bytes).ok_or(
            PlanError::Overflow {
                sets: self.sets,
                footprint_bytes: self.footprint_bytes,
                evict_bytes: 0,
            },
        )?;
        match self.cache {
            Cache::Hot if self.buffer_sets() > 1 && total > last_level_cache_bytes => {
                Err(PlanError::NotHot { total_bytes: total, last_level_cache_bytes })
            }
            Cache::Hot => Ok(()),
            Cache::Cold { .. } if last_level_cache_bytes == 0 => Err(PlanError::UnknownCache),
            Cache::Cold { .. } => {
                let found_bytes = self.reuse_distance_bytes()?;
                let needed_bytes = last_level_cache_bytes.saturating_mul(REUSE_FACTOR);
                if found_bytes < needed_bytes {
                    return Err(PlanError::NotCold { found_bytes, needed_bytes });
                }
                Ok(())
            }
        }
    }
}

pub(crate) fn in_range(key: &'static str, found: u32, most: u32) -> Result<(), PlanError> {
    if found == 0 || found > most {
        return Err(PlanError::OutOfRange { key, found, most });
    }
    Ok(())
}

/// A plan that was checked against the device it runs on.
#[derive(Clone, Debug, PartialEq)]
pub struct ValidPlan(Plan);

impl std::ops::Deref for ValidPlan {
    type Target = Plan;

    fn deref(&self) -> &Plan {
        &self.0
    }
}

/// Why a plan cannot be measured.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PlanError {
    /// A count is zero or too large.
    #[error("`{key}` is {found}; accepted: 1 to {most}")]
    OutOfRange {
        /// The plan's key.
        key: &'static str,
        /// What it holds.
        found: u32,
        /// The largest accepted value.
        most: u32,
    },
    /// The footprint is not declared.
    #[error("`footprint_bytes` is 0; accepted: the bytes that one call touches")]
    NoFootprint,
    /// The sample time to reach is zero.
    #[error("`calls.reach.at_least_ns` is 0; accepted: a time in nanoseconds")]
    NoTarget,
    /// The warm-up has no time.
    #[error("`warm_up.max_ns` is 0; accepted: a time in nanoseconds")]
    NoWarmUpTime,
    /// The warm-up's window cannot be split in halves or filled.
    #[error("`warm_up.window` is {window}; accepted: even, 4 to `max_samples` ({max_samples})")]
    Window {
        /// The window.
        window: u32,
        /// The most samples of the warm-up.
        max_samples: u32,
    },
    /// The warm-up's drift is no usable fraction.
    #[error("`warm_up.drift` is {found}; accepted: a fraction above 0 and below 1")]
    Drift {
        /// What it holds, as text because it may be no number.
        found: String,
    },
    /// An operator that works in place would see a set that it already changed.
    #[error("{calls} calls a sample on {sets} restored sets; accepted: at most one call per set")]
    CallsOnUsedSets {
        /// The most calls of a sample.
        calls: u32,
        /// The sets.
        sets: u32,
    },
    /// The rotation is too small for the cold contract.
    #[error(
        "{found_bytes} bytes between two uses of a buffer; cold needs {needed_bytes} \
         (more sets, fewer calls, a larger evicting pass, or declare it hot)"
    )]
    NotCold {
        /// Bytes touched between two uses.
        found_bytes: u64,
        /// Bytes that must be touched.
        needed_bytes: u64,
    },
    /// Calls cannot stay on a buffer set for so long.
    #[error(
        "calls stay on a buffer set for {dwell} of {sets} sets; accepted: 1, and for hot plans that restore nothing what divides the sets"
    )]
    Dwell {
        /// Sets in a row that are one.
        dwell: u32,
        /// All sets.
        sets: u32,
    },
    /// The rotation is too large for the hot contract.
    #[error(
        "the sets hold {total_bytes} bytes and the last-level cache {last_level_cache_bytes}; \
         hot needs sets that fit, or one set"
    )]
    NotHot {
        /// Bytes of all sets.
        total_bytes: u64,
        /// Bytes of the cache.
        last_level_cache_bytes: u64,
    },
    /// A cold plan on a device whose cache is unknown.
    #[error("the size of the last-level cache is unknown; a cold plan cannot be checked")]
    UnknownCache,
    /// The bytes of the plan do not fit 64 bits.
    #[error("{sets} sets of {footprint_bytes} bytes and passes of {evict_bytes} bytes overflow")]
    Overflow {
        /// The sets.
        sets: u32,
        /// Bytes of one set.
        footprint_bytes: u64,
        /// Bytes of one evicting pass.
        evict_bytes: u64,
    },
    /// A planted slowdown is no fraction.
    #[error("a planted slowdown of {found}; accepted: 0 to 1")]
    Slowdown {
        /// What was asked, as text because it may be no number.
        found: String,
    },
    /// A turn on one set alone asks for a set that is not there.
    #[error("set {set} was asked for; accepted: 0 to {}", .sets - 1)]
    NoSuchSet {
        /// The set.
        set: u32,
        /// The sets of the plan.
        sets: u32,
    },
    /// A turn on one set alone cannot have the cache state or the restored inputs of the plan.
    #[error(
        "a turn on one set alone makes {calls} calls a sample; this plan accepts one, \
         after an evicting pass when cold"
    )]
    IdenticalInputs {
        /// Calls of a sample.
        calls: u32,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    const CACHE: u64 = 1 << 20;

    #[test]
    fn rotation_alone_is_cold_from_five_caches_on() {
        let enough = Plan::cold(6, CACHE, 6, 3);
        assert_eq!(enough.reuse_distance_bytes(), Ok(5 * CACHE));
        assert!(enough.validate(CACHE).is_ok());
        let short = Plan::cold(5, CACHE, 5, 3);
        assert_eq!(
            short.validate(CACHE),
            Err(PlanError::NotCold { found_bytes: 4 * CACHE, needed_bytes: 5 * CACHE })
        );
    }

    #[test]
    fn an_evicting_pass_counts_only_when_it_falls_between_two_uses() {
        let between = Plan::cold(4, 1024, 4, 3).evicting(5 * CACHE);
        assert!(between.validate(CACHE).is_ok());
        let inside = Plan::cold(4, 1024, 5, 3).evicting(5 * CACHE);
        assert_eq!(inside.reuse_distance_bytes(), Ok(3 * 1024));
        assert!(matches!(inside.validate(CACHE), Err(PlanError::NotCold { .. })));
    }

    #[test]
    fn restored_sets_count_only_the_pass_after_the_restore() {
        let mut plan = Plan::cold(100, CACHE, 100, 3);
        plan.restore = true;
        assert_eq!(
            plan.validate(CACHE),
            Err(PlanError::NotCold { found_bytes: 0, needed_bytes: 5 * CACHE })
        );
        assert!(plan.evicting(5 * CACHE).validate(CACHE).is_ok());
    }

    #[test]
    fn a_restored_set_is_called_once_a_sample() {
        let mut plan = Plan::hot(4, 64, 5, 3);
        plan.restore = true;
        assert_eq!(plan.validate(CACHE), Err(PlanError::CallsOnUsedSets { calls: 5, sets: 4 }));
    }

    #[test]
    fn hot_sets_fit_the_cache_or_are_one() {
        assert!(Plan::hot(1, 100 * CACHE, 5, 3).validate(CACHE).is_ok());
        assert!(Plan::hot(2, CACHE / 2, 5, 3).validate(CACHE).is_ok());
        assert!(matches!(
            Plan::hot(3, CACHE / 2, 5, 3).validate(CACHE),
            Err(PlanError::NotHot { .. })
        ));
    }

    #[test]
    fn calls_stay_on_a_buffer_set_in_hot_plans_that_restore_nothing() {
        let plan = Plan { dwell: 8, ..Plan::hot(32, CACHE / 4, 5, 3) };
        assert_eq!((plan.validate(CACHE).is_ok(), plan.buffer_sets()), (true, 4));
        let refused = Err(PlanError::Dwell { dwell: 8, sets: 32 });
        assert_eq!(Plan { restore: true, ..plan.clone() }.validate(CACHE), refused);
        assert_eq!(
            Plan { cache: Cache::Cold { evict_bytes: 0 }, ..plan.clone() }.validate(CACHE),
            refused
        );
        for dwell in [0, 5] {
            assert_eq!(
                Plan { dwell, ..plan.clone() }.validate(CACHE),
                Err(PlanError::Dwell { dwell, sets: 32 })
            );
        }
    }

    #[test]
    fn an_unknown_cache_refuses_cold_and_not_hot() {
        assert_eq!(Plan::cold(64, CACHE, 1, 3).validate(0), Err(PlanError::UnknownCache));
        assert!(Plan::hot(1, CACHE, 1, 3).validate(0).is_ok());
    }

    #[test]
    fn zero_counts_and_missing_times_are_refused_by_name() {
        let good = Plan::hot(2, 64, 4, 3);
        let with = |change: fn(&mut Plan)| {
            let mut plan = good.clone();
            change(&mut plan);
            plan.validate(CACHE).expect_err("refused").to_string()
        };
        assert!(with(|p| p.sets = 0).starts_with("`sets` is 0"));
        assert!(with(|p| p.calls = CallsPerSample::Fixed(0)).starts_with("`calls` is 0"));
        assert!(with(|p| p.samples = 0).starts_with("`samples` is 0"));
        assert!(with(|p| p.footprint_bytes = 0).starts_with("`footprint_bytes` is 0"));
        assert!(with(|p| p.warm_up.window = 5).starts_with("`warm_up.window` is 5"));
        assert!(with(|p| p.warm_up.window = 2).starts_with("`warm_up.window` is 2"));
        assert!(with(|p| p.warm_up.drift = f64::NAN).starts_with("`warm_up.drift` is NaN"));
        assert!(with(|p| p.warm_up.max_ns = 0).starts_with("`warm_up.max_ns` is 0"));
        assert!(
            with(|p| p.calls = CallsPerSample::Reach { at_least_ns: 0, at_most: 9 })
                .starts_with("`calls.reach.at_least_ns` is 0")
        );
    }

    #[test]
    fn bytes_that_overflow_are_a_typed_error() {
        let plan = Plan::cold(3, u64::MAX / 2, 1, 1);
        assert!(matches!(plan.validate(CACHE), Err(PlanError::Overflow { .. })));
    }
}

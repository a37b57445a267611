//! Properties of plans and of the accounting of samples, over drawn plans and devices.
#![allow(clippy::unwrap_used, reason = "a test that panics has failed")]

use std::collections::HashMap;

use proofhouse_timer::fake::FakeDevice;
use proofhouse_timer::{
    Cache, CallsPerSample, MeasureError, Phase, Plan, PlanError, REUSE_FACTOR, Timer, TurnInputs,
    TurnOutcome, WarmUp,
};
use proptest::prelude::*;

fn any_plan() -> impl Strategy<Value = Plan> {
    let cache = prop_oneof![
        Just(Cache::Hot),
        (0_u64..8_000_000).prop_map(|evict_bytes| Cache::Cold { evict_bytes }),
    ];
    (0_u32..40, 0_u32..40, 0_u32..6, 0_u32..3, any::<bool>(), 0_u64..400_000, cache).prop_map(
        |(sets, calls, samples, rewarm_samples, restore, footprint_bytes, cache)| Plan {
            dwell: 1,
            sets,
            calls: CallsPerSample::Fixed(calls),
            samples,
            rewarm_samples,
            restore,
            footprint_bytes,
            cache,
            warm_up: WarmUp { window: 4, ..WarmUp::default() },
        },
    )
}

/// Least bytes touched between two uses of one set, by walking through the calls one by one.
fn walked_distance(plan: &Plan, calls: u32, evict_bytes: u64) -> u64 {
    let mut touched = 0;
    let mut last_use: HashMap<u32, u64> = HashMap::new();
    let mut least = u64::MAX;
    let mut set = 0;
    for _ in 0..3 * plan.sets {
        touched += evict_bytes;
        for _ in 0..calls {
            if let Some(before) = last_use.get(&set) {
                least = least.min(touched - before);
            }
            touched += plan.footprint_bytes;
            last_use.insert(set, touched);
            set = (set + 1) % plan.sets;
        }
    }
    least
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_valid_cold_plan_touches_five_caches_between_two_uses(plan in any_plan(), cache in 1_u64..600_000) {
        let Ok(_) = plan.validate(cache) else { return Ok(()) };
        let Cache::Cold { evict_bytes } = plan.cache else { return Ok(()) };
        let distance = if plan.restore {
            evict_bytes
        } else {
            walked_distance(&plan, plan.calls.most(), evict_bytes)
        };
        prop_assert!(distance >= REUSE_FACTOR * cache, "{} < 5 x {}", distance, cache);
    }

    #[test]
    fn the_promised_distance_is_never_more_than_the_walked_one(plan in any_plan()) {
        let Cache::Cold { evict_bytes } = plan.cache else { return Ok(()) };
        prop_assume!(plan.sets > 0 && plan.calls.most() > 0 && !plan.restore);
        let promised = plan.reuse_distance_bytes().unwrap();
        let walked = walked_distance(&plan, plan.calls.most(), evict_bytes);
        prop_assert!(promised <= walked, "{} > {}", promised, walked);
    }

    #[test]
    fn a_plan_is_refused_exactly_when_a_rule_says_so(plan in any_plan(), cache in 0_u64..600_000) {
        let calls = plan.calls.most();
        let total = u64::from(plan.sets) * plan.footprint_bytes;
        let counts = plan.sets > 0 && calls > 0 && plan.samples > 0 && plan.footprint_bytes > 0;
        let restorable = !plan.restore || calls <= plan.sets;
        let cached = match plan.cache {
            Cache::Hot => plan.sets == 1 || total <= cache,
            Cache::Cold { .. } => {
                cache > 0 && plan.reuse_distance_bytes().unwrap() >= REUSE_FACTOR * cache
            }
        };
        prop_assert_eq!(plan.validate(cache).is_ok(), counts && restorable && cached);
    }

    #[test]
    fn every_sample_of_a_turn_is_accounted_for(
        plan in any_plan(),
        call_ns in 3_000.0_f64..50_000.0,
        seed in any::<u64>(),
        turns in 1_u32..4,
    ) {
        let mut device = FakeDevice::steady(call_ns).noisy(seed, 0.02);
        let timer = match Timer::new(&mut device, &plan) {
            Ok(timer) => timer,
            Err(MeasureError::Plan(_)) => return Ok(()),
            Err(error) => return Err(TestCaseError::fail(error.to_string())),
        };
        let mut warm = timer.calibrate().unwrap().warm().unwrap();
        let calls = plan.calls.most();
        let warm_calls = warm.warm_up_samples().len() as u32 * calls;
        for turn in 0..turns {
            let TurnOutcome::Valid(found) = warm.turn(TurnInputs::Rotating).unwrap() else {
                return Err(TestCaseError::fail("invalid"));
            };
            prop_assert_eq!(found.turn, turn);
            prop_assert_eq!(found.samples.len() as u32, plan.samples);
            prop_assert_eq!(found.rewarm.len() as u32, plan.rewarm_samples);
            for (index, sample) in found.samples.iter().enumerate() {
                prop_assert_eq!(sample.index as usize, index);
                prop_assert_eq!(sample.phase, Phase::Measure);
                prop_assert_eq!(sample.calls, calls);
                prop_assert!(sample.per_call_ns() >= call_ns);
                prop_assert!(sample.first_set < plan.sets);
            }
            let all = found.rewarm.iter().chain(&found.samples);
            let timed: f64 = all.map(|sample| sample.elapsed_ns).sum();
            prop_assert!((found.totals.timed_ns - timed).abs() < 1e-3);
            prop_assert!(found.totals.timed_ns <= found.totals.region_ns as f64);
            prop_assert!(found.totals.region_ns + found.totals.untimed_ns <= found.totals.wall_ns);
        }
        let per_turn = (plan.samples + plan.rewarm_samples) * calls;
        let made = warm.device_mut().called_sets().len() as u32;
        prop_assert_eq!(made, warm_calls + turns * per_turn);
        let finished = warm.finish().unwrap();
        prop_assert_eq!(finished.samples, u64::from(turns * plan.samples));
    }

    #[test]
    fn no_noise_makes_a_settled_sample_longer_than_the_wall(seed in any::<u64>(), amplitude in 0.0_f64..0.5) {
        let mut device = FakeDevice::steady(5_000.0).noisy(seed, amplitude);
        let mut plan = Plan::hot(3, 64, 4, 10);
        plan.warm_up.drift = 0.9;
        let mut warm = Timer::new(&mut device, &plan).unwrap().calibrate().unwrap().warm().unwrap();
        let outcome = warm.turn(TurnInputs::Rotating).unwrap();
        prop_assert!(matches!(outcome, TurnOutcome::Valid(_)));
    }

    #[test]
    fn a_refusal_of_the_cache_names_what_is_missing(sets in 1_u32..64, footprint in 1_u64..10_000) {
        let cache = u64::from(sets) * footprint;
        let refused = Plan::cold(sets, footprint, sets, 1).validate(cache);
        let expected = PlanError::NotCold {
            found_bytes: u64::from(sets - 1) * footprint,
            needed_bytes: 5 * cache,
        };
        prop_assert_eq!(refused.err(), Some(expected));
    }
}

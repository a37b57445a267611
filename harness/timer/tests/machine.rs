//! The machine against scripted devices: each defect of a device has one right answer.
#![allow(clippy::unwrap_used, reason = "a test that panics has failed")]

use proofhouse_timer::fake::FakeDevice;
use proofhouse_timer::{
    CallsPerSample, ClockKind, DeviceCall, EscapeLimit, EventReasons, Invalid, MeasureError, Phase,
    Plan, PlanError, Properties, Timer, TurnInputs, TurnOutcome, TurnRequest, ValidTurn, Warm,
};

const CACHE: u64 = 1 << 20;

fn warm<'d>(
    device: &'d mut FakeDevice,
    plan: &Plan,
) -> Result<Warm<&'d mut FakeDevice>, MeasureError> {
    Timer::new(device, plan)?.calibrate()?.warm()
}

fn valid(outcome: TurnOutcome) -> ValidTurn {
    match outcome {
        TurnOutcome::Valid(turn) => turn,
        TurnOutcome::Invalid(invalid) => panic!("{:?}", invalid.reasons),
    }
}

fn reasons(outcome: TurnOutcome) -> Vec<Invalid> {
    match outcome {
        TurnOutcome::Invalid(invalid) => invalid.reasons,
        TurnOutcome::Valid(turn) => panic!("{turn:?}"),
    }
}

#[test]
fn a_steady_device_gives_its_time_per_call() {
    let mut device = FakeDevice::steady(10_000.0);
    let mut warm = warm(&mut device, &Plan::hot(4, 4096, 8, 5)).unwrap();
    let turn = valid(warm.turn(TurnInputs::Rotating).unwrap());
    for sample in &turn.samples {
        // One reading of the clock lies within the region.
        assert_eq!(sample.elapsed_ns, 8.0 * 10_000.0 + 20.0);
        assert_eq!(sample.per_call_ns(), 10_002.5);
        assert_eq!(sample.phase, Phase::Measure);
    }
}

#[test]
fn calls_rotate_through_the_sets_across_samples_and_turns() {
    let mut device = FakeDevice::steady(10_000.0);
    let mut warm = warm(&mut device, &Plan::hot(5, 64, 3, 4)).unwrap();
    warm.turn(TurnInputs::Rotating).unwrap();
    warm.turn(TurnInputs::Rotating).unwrap();
    let sets = warm.device_mut().called_sets().to_vec();
    let expected: Vec<u32> = (0..sets.len() as u32).map(|call| call % 5).collect();
    assert_eq!(sets, expected);
}

#[test]
fn restored_sets_are_restored_then_evicted_before_every_sample() {
    let mut plan = Plan::cold(4, 4096, 3, 2).evicting(5 * CACHE);
    plan.restore = true;
    let mut device = FakeDevice::steady(10_000.0);
    let mut warm = warm(&mut device, &plan).unwrap();
    let before = warm.device_mut().log().len();
    warm.turn(TurnInputs::Rotating).unwrap();
    let log = &warm.device_mut().log()[before..];
    let of_buffers = |call: &&DeviceCall| {
        matches!(
            call,
            DeviceCall::Restore | DeviceCall::Evict | DeviceCall::Call | DeviceCall::Stamp
        )
    };
    let found: Vec<DeviceCall> = log.iter().filter(of_buffers).copied().collect();
    use DeviceCall::{Call, Evict, Restore, Stamp};
    let sample = [Restore, Restore, Restore, Restore, Evict, Stamp, Call, Call, Call, Stamp];
    assert_eq!(found, [sample, sample].concat());
    assert_eq!(warm.device_mut().called_sets()[..6], [0, 1, 2, 0, 1, 2]);
}

#[test]
fn a_call_that_compiles_in_the_middle_of_a_turn_makes_it_invalid() {
    let plan = Plan::hot(4, 64, 10, 5);
    let mut probe = FakeDevice::steady(10_000.0);
    let first_turn_call = warm(&mut probe, &plan).unwrap().device_mut().called_sets().len();
    for call in first_turn_call..first_turn_call + 50 {
        let mut device = FakeDevice::steady(10_000.0).jit_on_call(call, 1e6);
        let mut warm = warm(&mut device, &plan).unwrap();
        let found = reasons(warm.turn(TurnInputs::Rotating).unwrap());
        assert!(matches!(found[..], [Invalid::CodeLoaded { .. }]), "call {call}: {found:?}");
    }
}

#[test]
fn the_warm_up_outlasts_a_slow_start_and_a_late_compilation() {
    let plan = Plan::hot(4, 64, 10, 5);
    let mut device = FakeDevice::steady(10_000.0).slow_start(45, 3.0).jit_on_call(85, 1e6);
    let mut warm = warm(&mut device, &plan).unwrap();
    assert!(warm.warm_up_samples().len() >= 9 + 8);
    assert!(warm.warm_up_samples().iter().all(|sample| sample.phase == Phase::WarmUp));
    let turn = valid(warm.turn(TurnInputs::Rotating).unwrap());
    assert!(turn.samples.iter().all(|sample| sample.elapsed_ns == 100_020.0));
}

#[test]
fn a_device_that_never_stops_drifting_is_unsettled() {
    let mut plan = Plan::hot(4, 64, 100, 5);
    plan.warm_up.max_samples = 40;
    plan.warm_up.drift = 0.01;
    let mut device = FakeDevice::steady(10_000.0).drifting(0.01);
    match warm(&mut device, &plan) {
        Err(MeasureError::Unsettled { samples: 40, still_loading: false, drift, .. }) => {
            assert!(drift.unwrap() > 0.01);
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_warm_up_out_of_time_is_unsettled() {
    let mut plan = Plan::hot(4, 64, 100, 5);
    plan.warm_up.max_ns = 2_500_000;
    let mut device = FakeDevice::steady(10_000.0);
    match warm(&mut device, &plan) {
        Err(MeasureError::Unsettled { samples: 3, spent_ns, drift: None, .. }) => {
            assert!(spent_ns > 2_500_000);
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn calls_grow_until_a_sample_is_long_enough() {
    let mut plan = Plan::hot(4, 64, 1, 5);
    plan.calls = CallsPerSample::Reach { at_least_ns: 1_000_000, at_most: 4096 };
    let mut device = FakeDevice::steady(1_000.0);
    let mut warm = warm(&mut device, &plan).unwrap();
    assert!((1_000..1_100).contains(&warm.calls()), "{}", warm.calls());
    let turn = valid(warm.turn(TurnInputs::Rotating).unwrap());
    assert!(turn.samples.iter().all(|sample| sample.elapsed_ns >= 1_000_000.0));
}

#[test]
fn a_call_that_does_nothing_never_becomes_a_number() {
    let mut plan = Plan::hot(4, 64, 1, 5);
    plan.calls = CallsPerSample::Reach { at_least_ns: 1_000_000, at_most: 4096 };
    let mut device = FakeDevice::steady(0.001);
    match warm(&mut device, &plan) {
        Err(MeasureError::SampleTooShort { calls: 4096, sample_ns, needed_ns }) => {
            assert!(sample_ns < 100.0 && needed_ns == 1_000_000.0);
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_sample_is_a_hundred_steps_of_the_clock_or_an_error() {
    let plan = Plan::hot(4, 64, 10, 5);
    let mut fine = FakeDevice::steady(10_000.0).coarse_clock(1_000.0);
    assert!(warm(&mut fine, &plan).is_ok());
    let mut coarse = FakeDevice::steady(10_000.0).coarse_clock(2_000.0);
    let Err(error) = warm(&mut coarse, &plan) else { panic!("settled") };
    assert!(matches!(error, MeasureError::SampleTooShort { calls: 10, .. }), "{error:?}");
}

#[test]
fn a_known_resolution_is_the_step_and_not_the_length_of_an_empty_region() {
    let plan = Plan::hot(4, 64, 10, 5);
    let mut device = FakeDevice::steady(10_000.0).with_resolution(500.0);
    let warm = warm(&mut device, &plan).unwrap();
    assert_eq!(warm.calibration().step_ns, 500.0);
    assert_eq!(warm.calibration().empty_region_ns, 20.0);
    for nonsense in [0.0, f64::NAN, -1.0] {
        let mut device = FakeDevice::steady(10_000.0).with_resolution(nonsense);
        let calibrated = Timer::new(&mut device, &plan).unwrap().calibrate().unwrap();
        assert_eq!(calibrated.calibration().step_ns, 20.0);
    }
}

#[test]
fn the_device_is_told_how_long_a_settled_sample_lasts() {
    let mut device = FakeDevice::steady(10_000.0).slow_start(45, 3.0);
    let mut warm = warm(&mut device, &Plan::hot(4, 64, 10, 5)).unwrap();
    assert_eq!(warm.device_mut().settled_ns(), Some(100_020.0));
}

#[test]
fn a_clock_that_stands_still_is_an_error() {
    let mut device = FakeDevice::steady(10_000.0).coarse_clock(1e12).free_stamps();
    let Err(error) = warm(&mut device, &Plan::hot(1, 64, 1, 1)) else { panic!("settled") };
    assert!(matches!(error, MeasureError::ClockStands { .. }));
}

#[test]
fn work_that_goes_on_after_the_region_is_invalid() {
    let mut device = FakeDevice::steady(10_000.0).escaping(30_000.0);
    let Err(error) = warm(&mut device, &Plan::hot(4, 64, 10, 5)) else { panic!("settled") };
    let MeasureError::Clock { source, .. } = error else { panic!("{error:?}") };
    assert!(matches!(source, Invalid::WorkEscaped { sync_ns: 30_020, .. }), "{source:?}");
}

#[test]
fn a_host_that_is_late_now_and_then_costs_time_and_no_trust() {
    let mut device = FakeDevice::steady(10_000.0).late_host(3, 400_000.0);
    let mut warm = warm(&mut device, &Plan::hot(4, 64, 10, 5)).unwrap();
    let turn = valid(warm.turn(TurnInputs::Rotating).unwrap());
    assert_eq!(turn.samples.len(), 5);
    assert!(turn.samples.iter().all(|sample| sample.sync_ns < 2_000), "{:?}", turn.samples);
    assert!(turn.totals.untimed_ns >= 400_000, "what was taken in vain is accounted for");
    assert!(turn.totals.wall_ns >= turn.totals.timed_ns as u64 + turn.totals.untimed_ns);
    assert!((1..=5).contains(&turn.totals.retaken), "{}", turn.totals.retaken);
    assert_eq!(warm.retaken(), turn.totals.retaken);
}

#[test]
fn work_that_escapes_more_often_than_not_is_no_late_host() {
    let mut device = FakeDevice::steady(10_000.0);
    let mut warm = warm(&mut device, &Plan::hot(4, 64, 10, 5)).unwrap();
    warm.device_mut().be_punctual_only_each(3, 400_000.0);
    let outcome = warm.turn(TurnInputs::Rotating).unwrap();
    let TurnOutcome::Invalid(turn) = outcome else { panic!("{outcome:?}") };
    assert!(matches!(turn.reasons[..], [Invalid::WorkEscaped { .. }]), "{:?}", turn.reasons);
}

#[test]
fn a_wait_within_the_limit_is_no_escape() {
    let mut device = FakeDevice::steady(10_000.0).escaping(1_900.0);
    let mut warm = warm(&mut device, &Plan::hot(4, 64, 10, 5)).unwrap();
    valid(warm.turn(TurnInputs::Rotating).unwrap());
}

#[test]
fn a_provider_that_remembers_its_last_call_is_faster_on_identical_inputs() {
    let mut device = FakeDevice::steady(10_000.0).memoised(0.5);
    let mut warm = warm(&mut device, &Plan::hot(4, 64, 20, 5)).unwrap();
    let rotating = valid(warm.turn(TurnInputs::Rotating).unwrap());
    let identical = valid(warm.turn(TurnInputs::Identical(2)).unwrap());
    assert!(warm.device_mut().called_sets().ends_with(&[2; 100]));
    let ratio = identical.samples[1].per_call_ns() / rotating.samples[1].per_call_ns();
    assert!(ratio < 0.9, "{ratio}");
}

#[test]
fn an_honest_provider_is_not_faster_on_identical_inputs() {
    let mut device = FakeDevice::steady(10_000.0);
    let mut warm = warm(&mut device, &Plan::hot(4, 64, 20, 5)).unwrap();
    let rotating = valid(warm.turn(TurnInputs::Rotating).unwrap());
    let identical = valid(warm.turn(TurnInputs::Identical(2)).unwrap());
    assert_eq!(identical.samples[0].elapsed_ns, rotating.samples[0].elapsed_ns);
}

#[test]
fn identical_inputs_are_refused_where_the_cache_or_the_input_would_differ() {
    let refused = |plan: &Plan, inputs| {
        let mut device = FakeDevice::steady(10_000.0);
        let mut warm = warm(&mut device, plan).unwrap();
        match warm.turn(inputs) {
            Err(MeasureError::Plan(error)) => Some(error),
            Ok(TurnOutcome::Valid(_)) => None,
            other => panic!("{other:?}"),
        }
    };
    let identical = TurnInputs::Identical(0);
    let rotated = Plan::cold(200, 32 * 1024, 10, 2);
    assert_eq!(refused(&rotated, identical), Some(PlanError::IdenticalInputs { calls: 10 }));
    let evicted = Plan::cold(2, 1024, 1, 2).evicting(5 * CACHE);
    assert_eq!(refused(&evicted, identical), None);
    let rotated_by_one = Plan::cold(200, 32 * 1024, 1, 2).evicting(CACHE);
    assert_eq!(refused(&rotated_by_one, identical), Some(PlanError::IdenticalInputs { calls: 1 }));
    let mut restored = Plan::hot(4, 1024, 2, 2);
    restored.restore = true;
    assert_eq!(refused(&restored, identical), Some(PlanError::IdenticalInputs { calls: 2 }));
    let missing = TurnInputs::Identical(4);
    assert_eq!(
        refused(&Plan::hot(4, 64, 1, 2), missing),
        Some(PlanError::NoSuchSet { set: 4, sets: 4 })
    );
}

#[test]
fn a_first_slot_penalty_shows_in_the_samples_of_the_first_slot() {
    let mut device = FakeDevice::steady(10_000.0).first_slot_penalty(10, 1.24);
    let mut warm = warm(&mut device, &Plan::hot(4, 64, 10, 3)).unwrap();
    warm.device_mut().begin_slot(0);
    let first = valid(warm.turn(TurnInputs::Rotating).unwrap());
    warm.device_mut().begin_slot(1);
    let second = valid(warm.turn(TurnInputs::Rotating).unwrap());
    assert!(first.samples[0].elapsed_ns > 1.2 * second.samples[0].elapsed_ns);
    assert_eq!(first.samples[1].elapsed_ns, second.samples[1].elapsed_ns);
}

#[test]
fn rewarming_samples_are_kept_and_tagged() {
    let mut plan = Plan::hot(4, 64, 10, 3);
    plan.rewarm_samples = 2;
    let mut device = FakeDevice::steady(10_000.0);
    let mut warm = warm(&mut device, &plan).unwrap();
    let turn = valid(warm.turn(TurnInputs::Rotating).unwrap());
    assert!(
        turn.rewarm.iter().map(|s| (s.phase, s.index)).eq([(Phase::Rewarm, 0), (Phase::Rewarm, 1)])
    );
    assert!(turn.samples.iter().map(|s| s.index).eq(0..3));
}

#[test]
fn a_device_clock_may_differ_from_the_wall_within_its_slack() {
    let properties = Properties {
        clock: ClockKind::Device,
        last_level_cache_bytes: CACHE,
        escape_limit: Some(EscapeLimit { floor_ns: 2_000.0, fraction: 0.05 }),
    };
    let mut device = FakeDevice::steady(10_000.0).with_properties(properties);
    let mut warm = warm(&mut device, &Plan::hot(4, 64, 10, 3)).unwrap();
    valid(warm.turn(TurnInputs::Rotating).unwrap());
}

#[test]
fn reasons_say_what_happened() {
    let reason = Invalid::BelowFloor { elapsed_ns: 3.0, floor_ns: 20.0 };
    assert_eq!(reason.to_string(), "the region lasted 3 ns; an empty one lasts 20 ns");
}

#[test]
fn a_planted_slowdown_lengthens_every_sample_by_its_fraction() {
    let mut device = FakeDevice::steady(10_000.0);
    let mut warm = warm(&mut device, &Plan::hot(4, 64, 10, 3)).unwrap();
    let slowed = TurnRequest { slowdown: 0.05, ..TurnInputs::Rotating.into() };
    let turn = valid(warm.turn(slowed).unwrap());
    for sample in &turn.samples {
        assert_eq!(sample.elapsed_ns, 100_000.0 * 1.05 + 20.0);
    }
    for bad in [-0.1, 1.1, f64::NAN] {
        let request = TurnRequest { slowdown: bad, ..TurnInputs::Rotating.into() };
        let Err(MeasureError::Plan(error)) = warm.turn(request) else { panic!("{bad}") };
        assert_eq!(error, PlanError::Slowdown { found: bad.to_string() });
    }
}

#[test]
fn a_request_may_set_the_number_of_samples_but_not_to_zero() {
    let mut device = FakeDevice::steady(10_000.0);
    let mut warm = warm(&mut device, &Plan::hot(4, 64, 10, 3)).unwrap();
    let asked = |samples| TurnRequest { samples: Some(samples), ..TurnInputs::Rotating.into() };
    assert_eq!(valid(warm.turn(asked(7)).unwrap()).samples.len(), 7);
    let refused = warm.turn(asked(0));
    assert!(matches!(refused, Err(MeasureError::Plan(PlanError::OutOfRange { .. }))));
}

#[test]
fn samples_that_become_too_short_after_the_warm_up_are_invalid() {
    // Eighty calls are the whole warm-up; afterwards a sample lasts 500 ns and needs 2,000.
    let mut device = FakeDevice::steady(50.0).slow_start(80, 10.0);
    let mut warm = warm(&mut device, &Plan::hot(4, 64, 10, 3)).unwrap();
    let found = reasons(warm.turn(TurnInputs::Rotating).unwrap());
    assert!(matches!(found[..], [Invalid::TooShort { needed_ns: 2_000.0, .. }]), "{found:?}");
}

#[test]
fn clocks_held_back_in_the_turn_of_another_provider_do_not_count() {
    let mut device = FakeDevice::steady(10_000.0);
    let mut warm = warm(&mut device, &Plan::hot(4, 64, 10, 3)).unwrap();
    warm.device_mut().throttle(EventReasons::POWER_CAP);
    valid(warm.turn(TurnInputs::Rotating).unwrap());
}

#[test]
fn a_reason_has_a_stable_code() {
    let reason = Invalid::HostClockWentBack { before_ns: 2, after_ns: 1 };
    assert_eq!(reason.code(), "host-clock-went-back");
    assert_eq!(Invalid::ZeroTime { calls: 1 }.code(), "zero-time");
    let changed = Invalid::KernelsChanged { gone: vec!["a".into()], new: vec![] };
    assert_eq!(changed.code(), "kernels-changed");
}

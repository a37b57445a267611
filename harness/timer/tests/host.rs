//! The host device on this machine: real clock, real memory map, no claims on speed.
#![allow(clippy::unwrap_used, reason = "a test that panics has failed")]

use std::hint::black_box;

use proofhouse_timer::host::{CallFailure, HostDevice, HostWork, last_level_cache_bytes};
use proofhouse_timer::{
    CallsPerSample, Device, DeviceCall, EscapeLimit, Invalid, MeasureError, Plan, Stage, Timer,
    TurnInputs, TurnOutcome, TurnRequest,
};

/// Times that a call goes over its buffer.
const ROUNDS: usize = 16;

/// Sums a buffer; `sets` buffers of 64 KiB.
struct Sums {
    sets: Vec<Vec<u64>>,
    restored: u32,
    fails_at: Option<u32>,
    calls: u32,
}

impl Sums {
    fn new(sets: usize) -> Self {
        let sets = (0..sets as u64).map(|set| vec![set | 1; 8192]).collect();
        Self { sets, restored: 0, fails_at: None, calls: 0 }
    }
}

impl HostWork for Sums {
    fn call(&mut self, set: u32) -> Result<(), CallFailure> {
        self.calls += 1;
        if Some(self.calls) == self.fails_at {
            return Err(CallFailure { code: 11, message: "planted".into() });
        }
        // Long enough on a fast machine too: all sets together must last longer than the shortest sample.
        for _ in 0..ROUNDS {
            for word in black_box(&mut self.sets[set as usize]) {
                *word = word.wrapping_mul(3);
            }
        }
        Ok(())
    }

    fn restore(&mut self, set: u32) -> Result<(), CallFailure> {
        self.restored += 1;
        self.sets[set as usize].fill(u64::from(set) | 1);
        Ok(())
    }
}

/// A plan without demands on how calm the machine is.
fn patient(mut plan: Plan) -> Plan {
    plan.warm_up.drift = 0.99;
    plan.calls = CallsPerSample::Reach { at_least_ns: 100_000, at_most: plan.sets };
    plan
}

#[test]
fn a_host_turn_accounts_for_its_time() {
    let plan = patient(Plan::hot(64, 65_536, 1, 5));
    let device = HostDevice::new(Sums::new(64)).with_last_level_cache(64 << 20);
    let mut warm = Timer::new(device, &plan).unwrap().calibrate().unwrap().warm().unwrap();
    assert!(warm.calibration().step_ns > 0.0 && warm.calibration().step_ns < 1e6);
    let TurnOutcome::Valid(turn) = warm.turn(TurnInputs::Rotating).unwrap() else {
        panic!("invalid");
    };
    assert_eq!(turn.samples.len(), 5);
    assert!(turn.totals.timed_ns <= turn.totals.region_ns as f64);
    assert!(turn.totals.region_ns + turn.totals.untimed_ns <= turn.totals.wall_ns);
}

#[test]
fn a_cold_in_place_turn_restores_and_evicts() {
    let mut plan = Plan::cold(64, 65_536, 1, 3).evicting(5 << 20);
    plan.restore = true;
    let device = HostDevice::new(Sums::new(64)).with_last_level_cache(1 << 20);
    let mut warm = Timer::new(device, &patient(plan)).unwrap().calibrate().unwrap().warm().unwrap();
    let TurnOutcome::Valid(turn) = warm.turn(TurnInputs::Rotating).unwrap() else {
        panic!("invalid");
    };
    assert!(turn.totals.untimed_ns > 0);
    assert!(warm.device_mut().work_mut().restored >= 3 * 64);
}

#[test]
fn an_error_of_the_callable_keeps_its_code_and_its_set() {
    let mut work = Sums::new(64);
    work.fails_at = Some(1);
    let device = HostDevice::new(work).with_last_level_cache(64 << 20);
    let plan = patient(Plan::hot(64, 65_536, 1, 5));
    match Timer::new(device, &plan).unwrap().calibrate().unwrap().warm().map(|_| ()) {
        Err(MeasureError::Device { stage: Stage::WarmUp, source }) => {
            assert_eq!(
                (source.call, source.set, source.code),
                (DeviceCall::Call, Some(0), Some(11))
            );
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_closure_is_work_that_cannot_restore() {
    let mut device = HostDevice::new(|set: u32| {
        black_box(set);
        Ok(())
    });
    assert_eq!(device.call(0), Ok(()));
    assert_eq!(device.restore(0).unwrap_err().call, DeviceCall::Restore);
}

#[test]
fn a_callable_that_does_nothing_is_too_short() {
    let device = HostDevice::new(|_set: u32| Ok(()));
    let mut plan = patient(Plan::hot(1, 64, 1, 3));
    plan.calls = CallsPerSample::Fixed(1);
    let result = Timer::new(device, &plan).unwrap().calibrate().unwrap().warm().map(|_| ());
    assert!(matches!(result, Err(MeasureError::SampleTooShort { .. })), "{result:?}");
}

/// Returns at once and leaves its work to a thread, as an asynchronous library does.
struct Escapes(Option<std::thread::JoinHandle<()>>);

impl HostWork for Escapes {
    fn call(&mut self, _set: u32) -> Result<(), CallFailure> {
        self.sync()?;
        self.0 = Some(std::thread::spawn(|| {
            for word in 0..40_000_000_u64 {
                black_box(word);
            }
        }));
        Ok(())
    }

    fn sync(&mut self) -> Result<(), CallFailure> {
        match self.0.take().map(std::thread::JoinHandle::join) {
            Some(Err(_)) => Err(CallFailure { code: 1, message: "the thread panicked".into() }),
            _ => Ok(()),
        }
    }
}

#[test]
fn a_callable_that_returns_before_its_work_ends_is_noticed() {
    let limit = EscapeLimit { floor_ns: 200_000.0, fraction: 0.25 };
    let device = HostDevice::new(Escapes(None)).with_escape_limit(limit);
    let mut plan = patient(Plan::hot(1, 64, 1, 3));
    plan.calls = CallsPerSample::Fixed(1);
    match Timer::new(device, &plan).unwrap().calibrate().unwrap().warm().map(|_| ()) {
        Err(MeasureError::Clock { source: Invalid::WorkEscaped { .. }, .. }) => {}
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_last_level_cache_is_found_or_unknown_but_never_zero() {
    assert_ne!(last_level_cache_bytes(), Some(0));
}

#[test]
fn a_planted_slowdown_waits_at_least_its_fraction() {
    let mut device = HostDevice::new(|_set: u32| Ok(()));
    let from = device.stamp().unwrap();
    black_box((0..100_000_u64).map(black_box).sum::<u64>());
    let middle = device.stamp().unwrap();
    device.slow_down(from, 1.0).unwrap();
    let to = device.stamp().unwrap();
    let half = device.elapsed_ns(from, middle).unwrap();
    assert!(device.elapsed_ns(from, to).unwrap() >= 2.0 * half);
    let plan = patient(Plan::hot(64, 65_536, 1, 5));
    let device = HostDevice::new(Sums::new(64)).with_last_level_cache(64 << 20);
    let mut warm = Timer::new(device, &plan).unwrap().calibrate().unwrap().warm().unwrap();
    let request = TurnRequest { slowdown: 1.0, ..TurnInputs::Rotating.into() };
    let outcome = warm.turn(request).unwrap();
    let TurnOutcome::Valid(turn) = outcome else { panic!("{outcome:?}") };
    assert_eq!(turn.request.slowdown, 1.0);
}

#[test]
fn a_clock_that_steps_back_is_handed_on_as_a_negative_time() {
    let mut device = HostDevice::new(|_set: u32| Ok(()));
    assert_eq!(device.elapsed_ns(10, 4), Ok(-6.0));
    assert_eq!(device.elapsed_ns(4, 10), Ok(6.0));
}

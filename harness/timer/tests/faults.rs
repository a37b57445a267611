//! Every device call of a whole measurement is broken once, in every way that applies to it.
#![allow(clippy::unwrap_used, reason = "a test that panics has failed")]

use proofhouse_timer::fake::{FakeDevice, Fault};
use proofhouse_timer::{
    Device, DeviceCall, Finished, Invalid, MeasureError, Plan, Stage, Timer, TurnInputs,
    TurnOutcome, TurnRequest, ValidTurn,
};

const CACHE: u64 = 1 << 20;

/// How a whole measurement ended.
#[derive(Debug)]
enum Ending {
    Measured(ValidTurn, Finished),
    Invalid(Vec<Invalid>),
    Refused(MeasureError),
}

/// Where in the log each stage began.
#[derive(Debug, Default)]
struct Stages {
    warm_up: usize,
    turn: usize,
    finish: usize,
}

impl Stages {
    fn of(&self, index: usize) -> Stage {
        match index {
            _ if index < self.warm_up => Stage::Calibrate,
            _ if index < self.turn => Stage::WarmUp,
            _ if index < self.finish => Stage::Turn,
            _ => Stage::Finish,
        }
    }
}

/// Uses every method: it restores, evicts, rewarms and measures.
fn plan() -> Plan {
    let mut plan = Plan::cold(4, 4096, 3, 5).evicting(5 * CACHE);
    plan.restore = true;
    plan.rewarm_samples = 2;
    plan.warm_up.window = 4;
    plan
}

/// Asks for a planted slowdown, so that this method is broken too.
fn request() -> TurnRequest {
    TurnRequest { slowdown: 0.05, ..TurnInputs::Rotating.into() }
}

fn measure(device: &mut FakeDevice) -> (Stages, Ending) {
    let mut stages = Stages::default();
    let ending = match measure_stages(device, &mut stages) {
        Ok(ending) => ending,
        Err(error) => Ending::Refused(error),
    };
    (stages, ending)
}

fn measure_stages(device: &mut FakeDevice, at: &mut Stages) -> Result<Ending, MeasureError> {
    let calibrated = Timer::new(&mut *device, &plan())?.calibrate()?;
    // The stages of a clean run; a planted fault is only looked up in those.
    let mut warm = calibrated.warm()?;
    at.turn = warm.device_mut().log().len();
    let outcome = warm.turn(request())?;
    at.finish = warm.device_mut().log().len();
    match outcome {
        TurnOutcome::Invalid(invalid) => Ok(Ending::Invalid(invalid.reasons)),
        TurnOutcome::Valid(turn) => Ok(Ending::Measured(turn, warm.finish()?)),
    }
}

fn clean_run() -> (Vec<DeviceCall>, Stages) {
    let mut device = FakeDevice::steady(10_000.0);
    let (mut stages, ending) = measure(&mut device);
    assert!(matches!(ending, Ending::Measured(..)), "{ending:?}");
    let log = device.log().to_vec();
    stages.warm_up = log.iter().position(|call| *call == DeviceCall::HostNow).unwrap();
    (log, stages)
}

fn broken_at(index: usize, fault: Fault) -> Ending {
    measure(&mut FakeDevice::steady(10_000.0).fault_at(index, fault)).1
}

#[test]
fn a_clean_run_uses_every_device_method() {
    let (log, _) = clean_run();
    for call in [
        DeviceCall::Prepare,
        DeviceCall::LeadIn,
        DeviceCall::Settled,
        DeviceCall::Stamp,
        DeviceCall::Elapsed,
        DeviceCall::HostNow,
        DeviceCall::Call,
        DeviceCall::SlowDown,
        DeviceCall::Restore,
        DeviceCall::Evict,
        DeviceCall::Sync,
        DeviceCall::LoadedCode,
        DeviceCall::EventReasons,
    ] {
        assert!(log.contains(&call), "{call}");
    }
}

#[test]
fn a_failure_of_any_device_call_is_a_typed_error_that_names_it_and_never_a_sample() {
    let (log, stages) = clean_run();
    for (index, call) in log.iter().enumerate() {
        match broken_at(index, Fault::Error) {
            Ending::Refused(MeasureError::Device { stage, source }) => {
                assert_eq!(stage, stages.of(index), "device call {index} ({call})");
                assert_eq!(source.call, *call, "device call {index}");
                assert!(source.message.contains(&format!("device call {index}")));
            }
            other => panic!("device call {index} ({call}) gave {other:?}"),
        }
    }
}

#[test]
fn every_other_fault_in_a_turn_is_an_invalid_reason_and_never_a_sample() {
    let (log, stages) = clean_run();
    let mut broken = 0;
    for fault in Fault::ALL.into_iter().filter(|fault| *fault != Fault::Error) {
        for (index, call) in log.iter().enumerate().take(stages.finish).skip(stages.turn) {
            // The first question only clears what other providers' turns left behind.
            let first = !log[stages.turn..index].contains(call);
            if !fault.applies_to(*call) || (fault == Fault::Throttles && first) {
                continue;
            }
            broken += 1;
            let Ending::Invalid(reasons) = broken_at(index, fault) else {
                panic!("{fault:?} at device call {index} ({call}) was not noticed");
            };
            assert!(is_reason_for(fault, &reasons), "{fault:?} at {index}: {reasons:?}");
        }
    }
    assert!(broken > 100, "{broken}");
}

fn is_reason_for(fault: Fault, reasons: &[Invalid]) -> bool {
    let [reason] = reasons else { return false };
    match fault {
        Fault::Error => false,
        Fault::ZeroTime => matches!(reason, Invalid::ZeroTime { .. }),
        Fault::NegativeTime => matches!(reason, Invalid::ClockWentBack { .. }),
        Fault::NanTime | Fault::InfiniteTime => matches!(reason, Invalid::NotFinite { .. }),
        Fault::ImpossiblyFast => matches!(reason, Invalid::BelowFloor { .. }),
        Fault::LongerThanWall => matches!(reason, Invalid::LongerThanWall { .. }),
        Fault::HostClockBack => matches!(reason, Invalid::HostClockWentBack { .. }),
        Fault::LoadsCode => matches!(reason, Invalid::CodeLoaded { .. }),
        Fault::Throttles => matches!(reason, Invalid::ClockEvents { .. }),
        Fault::NoKernels => matches!(reason, Invalid::NoKernels { kernels: 0, calls: 3 }),
    }
}

#[test]
fn an_untrue_time_before_the_turns_is_a_typed_error() {
    let (log, stages) = clean_run();
    let elapsed = |stage: Stage| {
        let found = log.iter().enumerate();
        let mut found =
            found.filter(|(at, c)| **c == DeviceCall::Elapsed && stages.of(*at) == stage);
        found.next().map(|(at, _)| at).unwrap()
    };
    for stage in [Stage::Calibrate, Stage::WarmUp] {
        for fault in [Fault::NegativeTime, Fault::NanTime, Fault::InfiniteTime] {
            match broken_at(elapsed(stage), fault) {
                Ending::Refused(MeasureError::Clock { stage: found, .. }) => {
                    assert_eq!(found, stage);
                }
                other => panic!("{fault:?} in {stage:?} gave {other:?}"),
            }
        }
    }
    for fault in [Fault::ZeroTime, Fault::LongerThanWall] {
        let ending = broken_at(elapsed(Stage::WarmUp), fault);
        assert!(matches!(ending, Ending::Refused(MeasureError::Clock { .. })), "{ending:?}");
    }
}

#[test]
fn an_empty_capture_before_the_turns_is_a_typed_error() {
    let (log, _) = clean_run();
    let first = log.iter().position(|call| *call == DeviceCall::Prepare).unwrap();
    let ending = broken_at(first, Fault::NoKernels);
    let Ending::Refused(MeasureError::Clock { stage, source }) = ending else {
        panic!("{ending:?}")
    };
    assert_eq!((stage, source.code()), (Stage::WarmUp, "no-kernels"));
}

#[test]
fn one_wild_reading_in_the_calibration_does_not_loosen_the_checks() {
    let (log, _) = clean_run();
    let first = log.iter().position(|call| *call == DeviceCall::Elapsed).unwrap();
    for fault in [Fault::ZeroTime, Fault::ImpossiblyFast, Fault::LongerThanWall] {
        let Ending::Measured(_, finished) = broken_at(first, fault) else { panic!("{fault:?}") };
        assert_eq!(finished.calibration.step_ns, 20.0);
        assert_eq!(finished.calibration.empty_region_ns, 20.0);
    }
}

#[test]
fn a_host_clock_that_steps_back_during_the_warm_up_is_a_typed_error() {
    let (log, stages) = clean_run();
    // The first reading of all has nothing to step back from.
    let readings = log.iter().enumerate().take(stages.turn).skip(stages.warm_up + 1);
    for (index, _) in readings.filter(|(_, call)| **call == DeviceCall::HostNow) {
        let ending = broken_at(index, Fault::HostClockBack);
        let Ending::Refused(MeasureError::Clock { source, .. }) = ending else {
            panic!("reading {index} gave {ending:?}");
        };
        assert!(matches!(source, Invalid::HostClockWentBack { .. }));
    }
}

#[test]
fn code_that_loads_during_the_warm_up_only_lengthens_it() {
    let (log, stages) = clean_run();
    let calls = log.iter().enumerate().take(stages.turn);
    for (index, _) in calls.filter(|(_, call)| **call == DeviceCall::Call) {
        let Ending::Measured(turn, finished) = broken_at(index, Fault::LoadsCode) else {
            panic!("device call {index}");
        };
        assert_eq!(turn.samples.len(), 5);
        assert!(finished.warm_up.len() > 4, "{}", finished.warm_up.len());
    }
}

#[test]
fn after_a_failed_turn_the_timer_gives_nothing_more() {
    let (_, stages) = clean_run();
    let mut device = FakeDevice::steady(10_000.0).fault_at(stages.turn + 20, Fault::Error);
    let mut warm = Timer::new(&mut device, &plan()).unwrap().calibrate().unwrap().warm().unwrap();
    assert!(matches!(warm.turn(TurnInputs::Rotating), Err(MeasureError::Device { .. })));
    assert_eq!(warm.turn(TurnInputs::Rotating), Err(MeasureError::Poisoned));
    assert_eq!(warm.finish(), Err(MeasureError::Poisoned));
}

#[test]
fn an_invalid_turn_is_followed_by_a_valid_one() {
    let (log, stages) = clean_run();
    let offset = log[stages.turn..].iter().position(|call| *call == DeviceCall::Call).unwrap();
    let mut device = FakeDevice::steady(10_000.0).fault_at(stages.turn + offset, Fault::LoadsCode);
    let mut warm = Timer::new(&mut device, &plan()).unwrap().calibrate().unwrap().warm().unwrap();
    assert!(matches!(warm.turn(TurnInputs::Rotating), Ok(TurnOutcome::Invalid(_))));
    assert!(matches!(warm.turn(TurnInputs::Rotating), Ok(TurnOutcome::Valid(_))));
    let finished = warm.finish().unwrap();
    assert_eq!((finished.turns, finished.invalid_turns, finished.samples), (2, 1, 5));
}

#[test]
fn a_measurement_without_a_valid_turn_is_an_error() {
    let mut device = FakeDevice::steady(10_000.0);
    let warm = Timer::new(&mut device, &plan()).unwrap().calibrate().unwrap().warm().unwrap();
    assert_eq!(warm.finish(), Err(MeasureError::NoSamples { invalid_turns: 0 }));
}

#[test]
fn the_fake_lists_what_it_did() {
    let mut device = FakeDevice::steady(10.0);
    device.call(3).unwrap();
    device.restore(2).unwrap();
    assert_eq!(device.log(), [DeviceCall::Call, DeviceCall::Restore]);
    assert_eq!((device.called_sets(), device.restored_sets()), (&[3][..], &[2][..]));
}

//! Every fault of a driver gives a typed error or an invalid turn, and never a number.

use proofhouse_schema::timing::Launch;
use proofhouse_timer::{Invalid, MeasureError, Plan, Timer, TurnInputs, TurnOutcome, Warm};

use crate::device::{Chip, CudaDevice, Options};
use crate::driver::DriverError;
use crate::scripted::{Elapsed, Fault, KERNEL_NS, OneKernel, Scripted};
use crate::sensors::SensorError;

type Ready = Warm<CudaDevice<OneKernel, Scripted>>;

/// Calls of a sample.
const CALLS: u32 = 64;

/// How a measurement ended.
#[derive(Debug)]
enum Ended {
    Valid(f64),
    Invalid(Vec<Invalid>),
    Failed(MeasureError),
    NotOpened(DriverError),
}

/// A timer that is ready for turns over a scripted driver, whose work runs so long elsewhere, too.
fn warmed(
    driver: &Scripted,
    launch: Launch,
    plan: &Plan,
    elsewhere_ns: f64,
) -> Result<Ready, Ended> {
    let work = OneKernel { driver: driver.clone(), elsewhere_ns };
    let chip = Chip { multiprocessors: 8, l2_bytes: 1 << 20 };
    let no_sensors = Err(SensorError::NoLibrary { why: "a test".to_owned() });
    let opened = CudaDevice::with_driver(driver, work, Options::new(launch), chip, no_sensors);
    let mut device = opened.map_err(Ended::NotOpened)?;
    device.guess_call_ns(plan.restore).map_err(Ended::Failed)?;
    Timer::new(device, plan)
        .and_then(Timer::calibrate)
        .and_then(|t| t.warm())
        .map_err(Ended::Failed)
}

fn turn(warm: &mut Ready) -> Ended {
    match warm.turn(TurnInputs::Rotating) {
        Ok(TurnOutcome::Valid(turn)) => Ended::Valid(turn.samples[0].per_call_ns()),
        Ok(TurnOutcome::Invalid(turn)) => Ended::Invalid(turn.reasons),
        Err(error) => Ended::Failed(error),
    }
}

/// A measurement over a scripted driver; `before` is called right before the turn.
fn measured(
    driver: &Scripted,
    launch: Launch,
    plan: &Plan,
    before: impl FnOnce(&Scripted),
) -> Ended {
    match warmed(driver, launch, plan, 0.0) {
        Ok(mut warm) => {
            before(driver);
            turn(&mut warm)
        }
        Err(ended) => ended,
    }
}

fn plan() -> Plan {
    Plan::hot(2, 4096, CALLS, 3)
}

/// Restores and evicts, too.
fn full_plan() -> Plan {
    Plan { restore: true, ..Plan::cold(CALLS, 4096, CALLS, 2).evicting(8 << 20) }
}

#[test]
fn an_honest_driver_gives_the_time_of_a_kernel() {
    for (launch, plan) in [(Launch::Graph, plan()), (Launch::Graph, full_plan())] {
        let Ended::Valid(ns) = measured(&Scripted::default(), launch, &plan, |_| {}) else {
            panic!("no turn under {launch:?}")
        };
        assert!((ns / KERNEL_NS - 1.0).abs() < 0.01, "{ns}");
    }
    let ended = measured(&Scripted::default(), Launch::Eager, &plan(), |_| {});
    assert!(matches!(ended, Ended::Valid(_)), "{ended:?}");
}

#[test]
fn whichever_call_fails_there_is_no_number() {
    for (launch, plan) in
        [(Launch::Graph, plan()), (Launch::Graph, full_plan()), (Launch::Eager, plan())]
    {
        let driver = Scripted::default();
        let mut warm = warmed(&driver, launch, &plan, 0.0).unwrap();
        let ended = turn(&mut warm);
        assert!(matches!(ended, Ended::Valid(_)), "{ended:?}");
        let calls = driver.calls();
        // Every one of a turn, and a part of the many before it.
        let every = (0..calls).filter(|at| at % 7 == 0 || *at + 200 > calls);
        for at in every {
            for fault in [Fault::Error, Fault::Sticky] {
                let driver = Scripted::default();
                driver.break_at(at, fault);
                let ended = measured(&driver, launch, &plan, |_| {});
                assert!(driver.was_hit(), "{fault:?} at {at} of {calls}");
                assert!(!matches!(ended, Ended::Valid(_)), "{fault:?} at {at}: {ended:?}");
                assert_named(&ended, fault);
            }
        }
    }
}

/// An error carries the driver's code and name.
fn assert_named(ended: &Ended, fault: Fault) {
    let (code, name) = match fault {
        Fault::Sticky => (700, "CUDA_ERROR_ILLEGAL_ADDRESS"),
        _ => (999, "CUDA_ERROR_UNKNOWN"),
    };
    match ended {
        Ended::NotOpened(error) => {
            // The host's clock fails by its own code through the same door.
            assert!(error.code == code || error.call == "host clock", "{error}");
        }
        Ended::Failed(MeasureError::Device { source, .. }) => {
            assert_eq!(source.code, Some(code), "{source}");
            assert!(source.message.contains(name), "{source}");
        }
        other => panic!("{fault:?} came to {other:?}"),
    }
}

#[test]
fn a_capture_that_holds_nothing_or_changes_is_told_and_not_launched() {
    let driver = Scripted::default();
    driver.break_at(0, Fault::NoNodes);
    let ended = measured(&driver, Launch::Graph, &plan(), |_| {});
    let Ended::Failed(MeasureError::Clock { source, .. }) = ended else { panic!("{ended:?}") };
    assert_eq!(source.code(), "no-kernels");
    // So many sets for so few calls that a turn still captures rotations that the warm-up did not come to.
    let uneven = Plan::hot(40, 4096, 3, 2);
    let ended = measured(&Scripted::default(), Launch::Graph, &uneven, |_| {});
    assert!(matches!(ended, Ended::Valid(_)), "{ended:?}");
    let driver = Scripted::default();
    let arm = |driver: &Scripted| driver.break_at(0, Fault::OtherNodes);
    let ended = measured(&driver, Launch::Graph, &uneven, arm);
    let Ended::Invalid(reasons) = ended else { panic!("{ended:?}") };
    assert_eq!(reasons[0].code(), "kernels-changed");
}

#[test]
fn a_graph_that_allocates_is_instantiated_once() {
    let driver = Scripted::default();
    driver.break_at(0, Fault::Allocations);
    let ended = measured(&driver, Launch::Graph, &plan(), |_| {});
    assert!(driver.was_hit());
    let Ended::Valid(ns) = ended else { panic!("{ended:?}") };
    assert!((ns / KERNEL_NS - 1.0).abs() < 0.01, "{ns}");
}

#[test]
fn a_time_that_is_none_is_no_number() {
    for (time, code) in [
        (Elapsed::Nan, "not-finite"),
        (Elapsed::Infinite, "not-finite"),
        (Elapsed::Negative, "clock-went-back"),
        (Elapsed::Zero, "zero-time"),
        (Elapsed::LongerThanWall, "longer-than-wall"),
    ] {
        let driver = Scripted::default();
        let arm = |driver: &Scripted| driver.break_at(0, Fault::Elapsed(time));
        let ended = measured(&driver, Launch::Graph, &plan(), arm);
        assert!(driver.was_hit());
        let Ended::Invalid(reasons) = ended else { panic!("{time:?}: {ended:?}") };
        assert_eq!(reasons[0].code(), code);
    }
}

#[test]
fn work_that_goes_on_after_the_region_has_escaped_it() {
    let ended = warmed(&Scripted::default(), Launch::Eager, &plan(), 100_000.0).unwrap_err();
    let Ended::Failed(MeasureError::Clock { source, .. }) = ended else { panic!("{ended:?}") };
    assert_eq!(source.code(), "work-escaped");
}

#[test]
fn device_waits_that_last_too_long_make_the_turn_invalid() {
    let driver = Scripted::default();
    let arm = |driver: &Scripted| driver.break_at(0, Fault::LateWait);
    let ended = measured(&driver, Launch::Graph, &plan(), arm);
    assert!(driver.was_hit());
    let Ended::Invalid(reasons) = ended else { panic!("{ended:?}") };
    assert_eq!(reasons[0].code(), "work-escaped");
}

#[test]
fn code_that_is_loaded_in_a_turn_makes_it_invalid() {
    let driver = Scripted::default();
    // The first question of a turn is the one that others are compared with.
    let arm = |driver: &Scripted| driver.break_at(2, Fault::LoadsCode);
    let ended = measured(&driver, Launch::Graph, &plan(), arm);
    assert!(driver.was_hit());
    let Ended::Invalid(reasons) = ended else { panic!("{ended:?}") };
    assert_eq!(reasons[0].code(), "code-loaded");
}

#[test]
fn a_multiprocessor_whose_clock_stands_fails_the_turn() {
    let driver = Scripted::default();
    let arm = |driver: &Scripted| driver.break_at(0, Fault::StoppedClock);
    let ended = measured(&driver, Launch::Graph, &plan(), arm);
    let Ended::Failed(MeasureError::Device { source, .. }) = ended else { panic!("{ended:?}") };
    assert!(source.message.contains("0 cycles"), "{source}");
}

//! The C interface, called as a foreign caller calls it.
#![allow(clippy::unwrap_used, reason = "a test that panics has failed")]
#![allow(unsafe_code, reason = "the C interface is called")]

use std::cell::Cell;
use std::ffi::c_void;
use std::hint::black_box;
use std::ptr::{null, null_mut};

use proofhouse_timer::ffi::{
    ABI_VERSION, CALL_DONE, OpenTimer, PlanC, ROTATING, ReportC, SampleC, Status, TurnC,
    proofhouse_timer_abi_version, proofhouse_timer_close, proofhouse_timer_measure,
    proofhouse_timer_open, proofhouse_timer_turn, proofhouse_timer_warm_up,
};

/// What the callbacks count, and when they fail.
#[derive(Default)]
struct Counts {
    calls: Cell<u32>,
    restores: Cell<u32>,
    fail_at: Cell<u32>,
}

extern "C" fn call(context: *mut c_void, set: u32) -> i32 {
    // SAFETY: every test passes its own counts, which outlive the timer.
    let counts = unsafe { &*context.cast::<Counts>() };
    counts.calls.set(counts.calls.get() + 1);
    black_box((0..20_000_u64).map(|word| black_box(word ^ u64::from(set))).sum::<u64>());
    if counts.calls == counts.fail_at { 0 } else { CALL_DONE }
}

extern "C" fn restore(context: *mut c_void, _set: u32) -> i32 {
    // SAFETY: as above.
    let counts = unsafe { &*context.cast::<Counts>() };
    counts.restores.set(counts.restores.get() + 1);
    CALL_DONE
}

fn plan() -> PlanC {
    PlanC {
        size: size_of::<PlanC>() as u32,
        sets: 4,
        samples: 5,
        rewarm_samples: 1,
        calls: 4,
        footprint_bytes: 64,
        last_level_cache_bytes: 1 << 20,
        warm_up_drift: 0.99,
        ..PlanC::default()
    }
}

fn turn() -> TurnC {
    let size = size_of::<TurnC>() as u32;
    TurnC { size, samples: 0, one_set: ROTATING, reserved: 0, slowdown: 0.0 }
}

fn context_of(counts: &Counts) -> *mut c_void {
    std::ptr::from_ref(counts).cast_mut().cast()
}

/// Opens with the counts as context.
fn open(plan: &PlanC, counts: &Counts, report: &mut ReportC) -> (i32, *mut OpenTimer) {
    let mut timer = null_mut();
    let context = context_of(counts);
    // SAFETY: every pointer is valid for the call, and the counts outlive the timer.
    let status = unsafe {
        proofhouse_timer_open(plan, Some(call), Some(restore), context, &raw mut timer, report)
    };
    (status, timer)
}

fn close(timer: *mut OpenTimer) {
    // SAFETY: the timer came from `open` and is not used again.
    unsafe { proofhouse_timer_close(timer) };
}

fn take(
    timer: *mut OpenTimer,
    turn: *const TurnC,
    out: &mut [SampleC],
    report: &mut ReportC,
) -> i32 {
    // SAFETY: the timer is open, and `out` has the room that is told.
    unsafe { proofhouse_timer_turn(timer, turn, out.as_mut_ptr(), out.len() as u32, report) }
}

#[test]
fn a_foreign_caller_opens_takes_turns_and_closes() {
    let (counts, mut report) = (Counts::default(), ReportC::empty());
    let (status, timer) = open(&plan(), &counts, &mut report);
    assert_eq!((status, report.text()), (0, ""));
    assert!(report.step_ns > 0.0 && report.warm_up_samples >= 8);
    let mut warm_up = vec![SampleC::default(); report.warm_up_samples as usize];
    // SAFETY: the timer is open, and the array has the room that is told.
    let copied = unsafe {
        proofhouse_timer_warm_up(timer, warm_up.as_mut_ptr(), warm_up.len() as u32, &raw mut report)
    };
    assert_eq!(copied, 0);
    assert!(warm_up.iter().all(|sample| sample.phase == 0 && sample.elapsed_ns > 0.0));
    let before = counts.calls.get();
    let mut samples = [SampleC::default(); 6];
    for number in 0..2 {
        assert_eq!(take(timer, &turn(), &mut samples, &mut report), 0, "{}", report.text());
        assert_eq!((report.turn, report.samples, report.calls), (number, 6, 4));
        assert!(report.timed_ns <= report.region_ns as f64);
        assert!(report.region_ns + report.untimed_ns <= report.wall_ns);
    }
    assert_eq!(counts.calls.get() - before, 2 * 6 * 4);
    assert!(samples.iter().map(|sample| sample.phase).eq([1, 2, 2, 2, 2, 2]));
    close(timer);
}

#[test]
fn a_callback_that_fails_gives_no_samples_and_poisons_the_timer() {
    let (counts, mut report) = (Counts::default(), ReportC::empty());
    let (_, timer) = open(&plan(), &counts, &mut report);
    counts.fail_at.set(counts.calls.get() + 10);
    let mut samples = [SampleC::default(); 6];
    assert_eq!(take(timer, null(), &mut samples, &mut report), Status::Device as i32);
    assert!(report.text().contains("the callback returned 0"), "{}", report.text());
    assert_eq!(report.samples, 0);
    assert_eq!(samples, [SampleC::default(); 6]);
    assert_eq!(take(timer, null(), &mut samples, &mut report), Status::Poisoned as i32);
    close(timer);
}

#[test]
fn a_callback_that_fails_while_warming_gives_no_timer() {
    let (counts, mut report) =
        (Counts { fail_at: Cell::new(3), ..Counts::default() }, ReportC::empty());
    let (status, timer) = open(&plan(), &counts, &mut report);
    assert_eq!(status, Status::Device as i32);
    assert!(timer.is_null());
}

#[test]
fn one_call_measures_a_whole_plan_with_restores() {
    let (counts, mut report) = (Counts::default(), ReportC::empty());
    let plan = PlanC { restore: 1, ..plan() };
    let mut samples = [SampleC::default(); 6];
    let context = context_of(&counts);
    let out = samples.as_mut_ptr();
    // SAFETY: every pointer is valid for the call.
    let status = unsafe {
        proofhouse_timer_measure(&plan, Some(call), Some(restore), context, out, 6, &raw mut report)
    };
    assert_eq!((status, report.samples), (0, 6), "{}", report.text());
    assert_eq!(counts.restores.get(), 4 * (report.warm_up_samples + 6));
}

#[test]
fn a_plan_that_restores_needs_the_callback() {
    let (counts, mut report) = (Counts::default(), ReportC::empty());
    let plan = PlanC { restore: 1, ..plan() };
    let mut samples = [SampleC::default(); 6];
    let context = context_of(&counts);
    let out = samples.as_mut_ptr();
    // SAFETY: every pointer is valid for the call.
    let status = unsafe {
        proofhouse_timer_measure(&plan, Some(call), None, context, out, 6, &raw mut report)
    };
    assert_eq!(status, Status::Device as i32);
    assert!(report.text().contains("no restore callback"), "{}", report.text());
}

#[test]
fn too_little_room_runs_nothing() {
    let (counts, mut report) = (Counts::default(), ReportC::empty());
    let (_, timer) = open(&plan(), &counts, &mut report);
    let before = counts.calls.get();
    let mut samples = [SampleC::default(); 5];
    assert_eq!(take(timer, null(), &mut samples, &mut report), Status::Capacity as i32);
    assert_eq!(counts.calls.get(), before);
    close(timer);
}

#[test]
fn wrong_sizes_and_null_pointers_are_refused() {
    let (counts, mut report) = (Counts::default(), ReportC::empty());
    let argument = Status::Argument as i32;
    let other = PlanC { size: 8, ..plan() };
    assert_eq!(open(&other, &counts, &mut report).0, argument);
    assert!(report.text().contains("8 bytes"), "{}", report.text());
    let mut small = ReportC { size: 12, ..ReportC::empty() };
    assert_eq!(open(&plan(), &counts, &mut small).0, argument);
    assert_eq!((small.size, small.status), (12, 0), "another layout is not written to");
    let mut timer = null_mut();
    let context = context_of(&counts);
    // SAFETY: null is one of the allowed values of each pointer.
    unsafe {
        let opened =
            proofhouse_timer_open(&plan(), None, None, context, &raw mut timer, &raw mut report);
        assert_eq!((opened, report.text()), (argument, "`call` is null"));
        let opened = proofhouse_timer_open(
            null(),
            Some(call),
            None,
            context,
            &raw mut timer,
            &raw mut report,
        );
        assert_eq!((opened, report.text()), (argument, "`plan` is null"));
        let opened =
            proofhouse_timer_open(&plan(), Some(call), None, context, null_mut(), &raw mut report);
        assert_eq!((opened, report.text()), (argument, "`timer` is null"));
        let turned = proofhouse_timer_turn(null_mut(), null(), null_mut(), 0, &raw mut report);
        assert_eq!((turned, report.text()), (argument, "`timer` is null"));
        let opened =
            proofhouse_timer_open(&plan(), Some(call), None, context, &raw mut timer, null_mut());
        assert_eq!(opened, argument);
        proofhouse_timer_close(null_mut());
    }
    assert_eq!(counts.calls.get(), 0);
}

#[test]
fn a_plan_that_is_refused_says_what_is_accepted() {
    let (counts, mut report) = (Counts::default(), ReportC::empty());
    let cold = PlanC { cache: 1, ..plan() };
    assert_eq!(open(&cold, &counts, &mut report).0, Status::Plan as i32);
    assert!(report.text().contains("cold needs 5242880"), "{}", report.text());
}

#[test]
fn a_turn_may_name_one_set_and_a_slowdown() {
    let (counts, mut report) = (Counts::default(), ReportC::empty());
    let (_, timer) = open(&plan(), &counts, &mut report);
    let mut samples = [SampleC::default(); 6];
    let request = TurnC { one_set: 3, samples: 2, slowdown: 0.5, ..turn() };
    assert_eq!(take(timer, &request, &mut samples, &mut report), 0, "{}", report.text());
    assert_eq!(report.samples, 3);
    assert!(samples[..3].iter().all(|sample| sample.first_set == 3));
    let missing = TurnC { one_set: 4, ..turn() };
    assert_eq!(take(timer, &missing, &mut samples, &mut report), Status::Plan as i32);
    let wrong = TurnC { size: 1, ..turn() };
    assert_eq!(take(timer, &wrong, &mut samples, &mut report), Status::Argument as i32);
    close(timer);
}

#[test]
fn the_version_is_the_documented_one() {
    assert_eq!(proofhouse_timer_abi_version(), ABI_VERSION);
    assert_eq!(ABI_VERSION, 2);
}

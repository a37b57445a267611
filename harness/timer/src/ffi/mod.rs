//! The C interface, for Python providers through `ctypes` and for any other language.
//!
//! A worker opens a timer for a case (which calibrates and warms), takes a turn whenever one is
//! granted, and closes it.
//! The library is `libproofhouse_timer.so`.
//!
//! ```c
//! uint32_t proofhouse_timer_abi_version(void);                 // this page describes version 2
//!
//! // A callback returns 1 when it did its work. Anything else is a failure, 0 included, because
//! // ctypes gives 0 for a Python callback that raised. Callbacks run on the caller's thread.
//! typedef int32_t (*proofhouse_call)(void *context, uint32_t set);
//!
//! int32_t proofhouse_timer_open(const plan *, proofhouse_call call, proofhouse_call restore,
//!                               void *context, timer **, report *);   // restore may be NULL
//! int32_t proofhouse_timer_warm_up(const timer *, sample *out, uint32_t capacity, report *);
//! int32_t proofhouse_timer_turn(timer *, const turn *, sample *out, uint32_t capacity, report *);
//! void    proofhouse_timer_close(timer *);                     // NULL is allowed
//! // The four together: one plan, one turn.
//! int32_t proofhouse_timer_measure(const plan *, proofhouse_call call, proofhouse_call restore,
//!                                  void *context, sample *out, uint32_t capacity, report *);
//! ```
//!
//! The structs are [`PlanC`], [`TurnC`], [`SampleC`] and [`ReportC`], field by field in that order
//! with C alignment.
//! The caller sets `size` of each to what its own declaration has; another size is
//! [`Status::Argument`], so that a caller with another layout is refused and not misread.
//! Every function returns a [`Status`] and writes the same to the report with a text.
//! Only [`Status::Ok`] comes with samples; with any other the report's count is zero.
//! No panic crosses this boundary: it becomes [`Status::Panic`], after which the timer is refused.
//!
//! # Cost of a callback
//! An empty Python callback costs 0.14 us a call through `ctypes.PyDLL`, which keeps the
//! interpreter's lock over the region, and 0.21 us through `ctypes.CDLL`, which gives it up and
//! takes it back at every call (Xeon at 2.3 GHz, Python 3.11).
//! `cargo build --release -p proofhouse-timer && python3 harness/timer/tests/ctypes_cost.py`
//! measures it with this timer and is the shortest complete caller.
//! The cost lies inside the region and is not subtracted; a call of 14 us sees one percent of it.
#![allow(unsafe_code, reason = "a C interface takes pointers")]

pub mod boundary;
mod layout;

use std::ffi::c_void;

pub use boundary::{CALL_DONE, Callback};
pub use layout::{MESSAGE_BYTES, PlanC, ROTATING, ReportC, SampleC, Status, TurnC};

use crate::host::{CallFailure, HostDevice, HostWork};
use crate::measure::{Timer, TurnInputs, TurnRequest};
use boundary::{Outcome, Turns, deliver, done, guarded, sized, sized_mut};

/// Version of this interface; a caller that knows another one must not go on.
pub const ABI_VERSION: u32 = 2;

/// The callable of a foreign language.
#[derive(Debug)]
struct ForeignWork {
    call: Callback,
    restore: Option<Callback>,
    context: *mut c_void,
}

impl ForeignWork {
    #[inline]
    fn run(&self, callback: Callback, set: u32) -> Result<(), CallFailure> {
        // SAFETY: whoever opened the timer promised that the callback may be called with this
        // context, on the calling thread, until the timer is closed.
        done(unsafe { callback(self.context, set) })
    }
}

impl HostWork for ForeignWork {
    #[inline]
    fn call(&mut self, set: u32) -> Result<(), CallFailure> {
        self.run(self.call, set)
    }

    fn restore(&mut self, set: u32) -> Result<(), CallFailure> {
        match self.restore {
            Some(restore) => self.run(restore, set),
            None => Err(CallFailure { code: 0, message: "no restore callback was given".into() }),
        }
    }
}

/// An open timer; only its pointer crosses the boundary.
#[derive(Debug)]
pub struct OpenTimer(Turns<HostDevice<ForeignWork>>);

/// The version of this interface.
#[unsafe(no_mangle)]
pub extern "C" fn proofhouse_timer_abi_version() -> u32 {
    ABI_VERSION
}

/// Calibrates and warms a timer for a callable; `*timer` is null unless it returns [`Status::Ok`].
///
/// # Safety
/// `plan`, `timer` and `report` are null or point to their types, writable for the last two.
/// `call` and `restore` are callable with `context` on this thread until the timer is closed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn proofhouse_timer_open(
    plan: *const PlanC,
    call: Option<Callback>,
    restore: Option<Callback>,
    context: *mut c_void,
    timer: *mut *mut OpenTimer,
    report: *mut ReportC,
) -> i32 {
    // SAFETY: the caller promises null or valid pointers; null and wrong sizes are refused.
    let (plan, timer, report) = unsafe { (sized(plan), timer.as_mut(), sized_mut(report)) };
    guarded(report, |report| {
        let Some(timer) = timer else { return Outcome::argument("`timer` is null") };
        *timer = std::ptr::null_mut();
        match open(plan, call, restore, context) {
            Ok(open) => {
                report.describe(open.0.warm());
                *timer = Box::into_raw(Box::new(open));
                Outcome::Done
            }
            Err(outcome) => outcome,
        }
    })
}

fn open(
    plan: Result<Option<&PlanC>, String>,
    call: Option<Callback>,
    restore: Option<Callback>,
    context: *mut c_void,
) -> Result<OpenTimer, Outcome> {
    let plan =
        plan.map_err(Outcome::argument)?.ok_or_else(|| Outcome::argument("`plan` is null"))?;
    let call = call.ok_or_else(|| Outcome::argument("`call` is null"))?;
    let asked = plan.to_plan().map_err(Outcome::argument)?;
    let mut device = HostDevice::new(ForeignWork { call, restore, context });
    if plan.last_level_cache_bytes > 0 {
        device = device.with_last_level_cache(plan.last_level_cache_bytes);
    }
    let warm = Timer::new(device, &asked)?.calibrate()?.warm()?;
    Ok(OpenTimer(Turns::new(warm)))
}

/// Copies the warm-up's samples.
///
/// # Safety
/// `timer` is null or open and not in use; `out` is null or has room for `capacity` samples;
/// `report` is null or points to a writable report.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn proofhouse_timer_warm_up(
    timer: *const OpenTimer,
    out: *mut SampleC,
    capacity: u32,
    report: *mut ReportC,
) -> i32 {
    // SAFETY: the caller promises null or valid pointers; null is refused before any use.
    let (timer, report) = unsafe { (timer.as_ref(), sized_mut(report)) };
    guarded(report, |report| {
        let Some(timer) = timer else { return Outcome::argument("`timer` is null") };
        report.describe(timer.0.warm());
        // SAFETY: `out` is null or has room for `capacity` samples, as the caller promises.
        unsafe { deliver(timer.0.warm().warm_up_samples(), out, capacity, report) }
    })
}

/// Takes one turn; its rewarming and judged samples, tagged, are written to `out`.
///
/// # Safety
/// As for [`proofhouse_timer_warm_up`]; `turn` is null, for the plan's rotation, or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn proofhouse_timer_turn(
    timer: *mut OpenTimer,
    turn: *const TurnC,
    out: *mut SampleC,
    capacity: u32,
    report: *mut ReportC,
) -> i32 {
    // SAFETY: the caller promises null or valid pointers; null is refused before any use.
    let (timer, turn, report) = unsafe { (timer.as_mut(), sized(turn), sized_mut(report)) };
    guarded(report, |report| {
        let Some(timer) = timer else { return Outcome::argument("`timer` is null") };
        let request = match turn.and_then(|turn| turn.map_or(Ok(rotating()), TurnC::to_request)) {
            Ok(request) => request,
            Err(text) => return Outcome::argument(text),
        };
        // SAFETY: `out` is null or has room for `capacity` samples, as the caller promises.
        unsafe { take_turn(timer, request, out, capacity, report) }
    })
}

/// Opens, takes one turn of the plan and closes.
///
/// # Safety
/// As for [`proofhouse_timer_open`] and [`proofhouse_timer_turn`].
#[unsafe(no_mangle)]
#[allow(clippy::too_many_arguments, reason = "C has no other way; each is described above")]
pub unsafe extern "C" fn proofhouse_timer_measure(
    plan: *const PlanC,
    call: Option<Callback>,
    restore: Option<Callback>,
    context: *mut c_void,
    out: *mut SampleC,
    capacity: u32,
    report: *mut ReportC,
) -> i32 {
    // SAFETY: the caller promises null or valid pointers; null is refused before any use.
    let (plan, report) = unsafe { (sized(plan), sized_mut(report)) };
    guarded(report, |report| {
        let mut timer = match open(plan, call, restore, context) {
            Ok(timer) => timer,
            Err(outcome) => return outcome,
        };
        // SAFETY: `out` is null or has room for `capacity` samples, as the caller promises.
        unsafe { take_turn(&mut timer, rotating(), out, capacity, report) }
    })
}

/// Closes a timer; null is allowed.
///
/// # Safety
/// `timer` is null or came from [`proofhouse_timer_open`] and is not used again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn proofhouse_timer_close(timer: *mut OpenTimer) {
    if !timer.is_null() {
        // SAFETY: the pointer came from `Box::into_raw` in `proofhouse_timer_open` and the caller
        // gives it up here.
        drop(unsafe { Box::from_raw(timer) });
    }
}

/// Takes a turn and delivers it.
///
/// # Safety
/// `out` is null or has room for `capacity` samples.
unsafe fn take_turn(
    timer: &mut OpenTimer,
    request: TurnRequest,
    out: *mut SampleC,
    capacity: u32,
    report: &mut ReportC,
) -> Outcome {
    match timer.0.take(request, capacity, report) {
        // SAFETY: passed on from this function's own contract.
        Ok(samples) => unsafe { deliver(&samples, out, capacity, report) },
        Err(outcome) => outcome,
    }
}

fn rotating() -> TurnRequest {
    TurnInputs::Rotating.into()
}

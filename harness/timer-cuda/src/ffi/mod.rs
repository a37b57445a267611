//! The C interface, for Python providers through `ctypes` and for any other language.
//!
//! A worker opens a timer on the stream on which it enqueues, asks for a plan, makes as many buffer
//! sets as the plan says, warms, takes a turn whenever one is granted, and closes.
//! The library is `libproofhouse_timer_cuda.so`.
//!
//! ```c
//! uint32_t proofhouse_timer_cuda_abi_version(void);            // this page describes version 2
//!
//! // Callbacks return 1 when they did their work and run on the caller's thread. They enqueue on
//! // the stream of the setup and do not wait. The graph that `capture` gives, and the memory that
//! // it uses, live until the timer is closed.
//! typedef int32_t (*proofhouse_call)(void *context, uint32_t set);
//! typedef int32_t (*proofhouse_capture)(void *context, uint32_t first_set, uint32_t cycle_start,
//!                                       uint32_t sets, uint32_t calls, CUgraph *graph);
//!
//! int32_t proofhouse_timer_cuda_open(const setup *, timer **, report *);
//! int32_t proofhouse_timer_cuda_plan(timer *, const cell *, plan *out, report *);
//! int32_t proofhouse_timer_cuda_warm(timer *, report *);
//! int32_t proofhouse_timer_cuda_warm_up(timer *, sample *out, uint32_t capacity, report *);
//! int32_t proofhouse_timer_cuda_turn(timer *, const turn *, sample *out, uint32_t capacity,
//!                                    report *);
//! int32_t proofhouse_timer_cuda_told(timer *, uint8_t *text, uint64_t capacity, uint64_t *length,
//!                                    report *);
//! void    proofhouse_timer_cuda_close(timer *);                // NULL is allowed
//! ```
//!
//! Plans, turns, samples, reports and statuses are those of [`proofhouse_timer::ffi`], with its
//! rules for sizes, samples and panics; [`SetupC`] and [`CellC`] are of this interface.
//! The context of the device must be current in the thread.
//!
//! `plan` runs calls on set 0 to guess how long one lasts; the timer keeps what it chose and writes
//! it to `out`, which may be null. Before `warm` there must be
//! `sets / dwell` buffer sets, and a call on set `i` is one on buffer set `i / dwell`.
//! `told` gives UTF-8 JSON about the last valid turn with the protocol's names (`enqueue_ns`,
//! `telemetry`, `kernels`, `reuse`, `retaken`), why telemetry is missing, and how many regions hold some launch
//! time; `*length` is its length even when `capacity` is too small for it.
#![allow(unsafe_code, reason = "a C interface takes pointers")]

mod layout;
mod session;
mod work;

use std::cell::RefCell;
use std::ffi::c_void;

use proofhouse_timer::ffi::boundary::{Outcome, deliver, guarded, sized, sized_mut};
use proofhouse_timer::ffi::{PlanC, ReportC, SampleC, Status, TurnC};
use proofhouse_timer::{TurnInputs, TurnRequest};

pub use layout::{Capture, CellC, SetupC};

use crate::cuda::{Cuda, OpenError};
use crate::device::{CudaDevice, Options};
use crate::handle::Stream;
use session::Session;
use work::ForeignWork;

/// Version of this interface; a caller that knows another one must not go on.
pub const ABI_VERSION: u32 = 2;

/// An open timer; only its pointer crosses the boundary.
#[derive(Debug)]
pub struct OpenTimer(Session<ForeignWork, Cuda>);

/// The version of this interface.
#[unsafe(no_mangle)]
pub extern "C" fn proofhouse_timer_cuda_abi_version() -> u32 {
    ABI_VERSION
}

/// Opens a timer on the device whose context is current; `*timer` is null unless it returns
/// [`Status::Ok`].
///
/// # Safety
/// `setup`, `timer` and `report` are null or point to their types, writable for the last two.
/// The callbacks are callable with the context on this thread, and the stream lives, until the
/// timer is closed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn proofhouse_timer_cuda_open(
    setup: *const SetupC,
    timer: *mut *mut OpenTimer,
    report: *mut ReportC,
) -> i32 {
    // SAFETY: the caller promises null or valid pointers; null and wrong sizes are refused.
    let (setup, timer, report) = unsafe { (sized(setup), timer.as_mut(), sized_mut(report)) };
    guarded(report, |_| {
        let Some(timer) = timer else { return Outcome::argument("`timer` is null") };
        *timer = std::ptr::null_mut();
        let setup = match setup {
            Ok(Some(setup)) => setup,
            Ok(None) => return Outcome::argument("`setup` is null"),
            Err(text) => return Outcome::argument(text),
        };
        // SAFETY: passed on from this function's own contract.
        match unsafe { open(setup) } {
            Ok(open) => {
                *timer = Box::into_raw(Box::new(open));
                Outcome::Done
            }
            Err(outcome) => outcome,
        }
    })
}

/// # Safety
/// As for [`proofhouse_timer_cuda_open`].
unsafe fn open(setup: &SetupC) -> Result<OpenTimer, Outcome> {
    let launch = setup.launch().map_err(Outcome::argument)?;
    // SAFETY: passed on from this function's own contract.
    let work = unsafe { ForeignWork::new(setup) }.map_err(Outcome::argument)?;
    if setup.stream.is_null() {
        return Err(Outcome::argument("`stream` is null; accepted: a stream of the caller's own"));
    }
    let cuda = current().map_err(|error| {
        let cause = std::error::Error::source(&error).map(ToString::to_string);
        let text = cause.map_or(error.to_string(), |cause| format!("{error}: {cause}"));
        Outcome::Failed(Status::Device, text)
    })?;
    let options = Options {
        // SAFETY: the caller promises that the stream lives until the timer is closed.
        stream: Some(unsafe { Stream::from_raw(setup.stream as usize) }),
        l2_bytes: (setup.l2_bytes > 0).then_some(setup.l2_bytes),
        ..Options::new(launch)
    };
    let device = CudaDevice::new(&cuda, work, options).map_err(|error| session::driver(&error))?;
    Ok(OpenTimer(Session::new(device)))
}

/// The device whose context is current, the same handle each time, so that the timer's kernels are
/// loaded once.
fn current() -> Result<Cuda, OpenError> {
    thread_local! {
        static KNOWN: RefCell<Vec<Cuda>> = const { RefCell::new(Vec::new()) };
    }
    let found = Cuda::current()?;
    KNOWN.with_borrow_mut(|known| {
        if let Some(same) = known.iter().find(|cuda| cuda.facts() == found.facts()) {
            return Ok(same.clone());
        }
        known.push(found.clone());
        Ok(found)
    })
}

/// Chooses the plan of a cell.
///
/// # Safety
/// `timer` is null or open and not in use; `cell`, `out` and `report` are null or point to their
/// types, writable for the last two.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn proofhouse_timer_cuda_plan(
    timer: *mut OpenTimer,
    cell: *const CellC,
    out: *mut PlanC,
    report: *mut ReportC,
) -> i32 {
    // SAFETY: the caller promises null or valid pointers; null and wrong sizes are refused.
    let (timer, cell, given, report) =
        unsafe { (timer.as_mut(), sized(cell), sized(out.cast_const()), sized_mut(report)) };
    guarded(report, |_| {
        let Some(timer) = timer else { return Outcome::argument("`timer` is null") };
        let cell = match (cell, given) {
            (Ok(Some(cell)), Ok(_)) => cell,
            (Ok(None), _) => return Outcome::argument("`cell` is null"),
            (Err(text), _) | (_, Err(text)) => return Outcome::argument(text),
        };
        match timer.0.plan(cell) {
            Ok(plan) => {
                if !out.is_null() {
                    // SAFETY: not null, of this type's size as was checked, and writable as the
                    // caller promises.
                    unsafe { out.write(plan) };
                }
                Outcome::Done
            }
            Err(outcome) => outcome,
        }
    })
}

/// Calibrates and warms by the plan that was chosen.
///
/// # Safety
/// `timer` is null or open and not in use; `report` is null or points to a writable report.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn proofhouse_timer_cuda_warm(
    timer: *mut OpenTimer,
    report: *mut ReportC,
) -> i32 {
    // SAFETY: the caller promises null or valid pointers; null is refused before any use.
    let (timer, report) = unsafe { (timer.as_mut(), sized_mut(report)) };
    guarded(report, |report| match timer {
        None => Outcome::argument("`timer` is null"),
        Some(timer) => timer.0.warm(report).map_or_else(|outcome| outcome, |()| Outcome::Done),
    })
}

/// Copies the warm-up's samples.
///
/// # Safety
/// `timer` is null or open and not in use; `out` is null or has room for `capacity` samples;
/// `report` is null or points to a writable report.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn proofhouse_timer_cuda_warm_up(
    timer: *mut OpenTimer,
    out: *mut SampleC,
    capacity: u32,
    report: *mut ReportC,
) -> i32 {
    // SAFETY: the caller promises null or valid pointers; null is refused before any use.
    let (timer, report) = unsafe { (timer.as_mut(), sized_mut(report)) };
    guarded(report, |report| {
        let Some(timer) = timer else { return Outcome::argument("`timer` is null") };
        match timer.0.warm_up(report) {
            // SAFETY: `out` is null or has room for `capacity` samples, as the caller promises.
            Ok(samples) => unsafe { deliver(&samples, out, capacity, report) },
            Err(outcome) => outcome,
        }
    })
}

/// Takes one turn; its rewarming and judged samples, tagged, are written to `out`.
///
/// # Safety
/// As for [`proofhouse_timer_cuda_warm_up`]; `turn` is null, for the plan's rotation, or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn proofhouse_timer_cuda_turn(
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
        let rotating = TurnRequest::from(TurnInputs::Rotating);
        let request = match turn.and_then(|turn| turn.map_or(Ok(rotating), TurnC::to_request)) {
            Ok(request) => request,
            Err(text) => return Outcome::argument(text),
        };
        match timer.0.turn(request, capacity, report) {
            // SAFETY: `out` is null or has room for `capacity` samples, as the caller promises.
            Ok(samples) => unsafe { deliver(&samples, out, capacity, report) },
            Err(outcome) => outcome,
        }
    })
}

/// Writes what the last turn told beside its samples, as JSON without a closing zero.
///
/// # Safety
/// `timer` is null or open and not in use; `text` is null or has room for `capacity` bytes;
/// `length` and `report` are null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn proofhouse_timer_cuda_told(
    timer: *mut OpenTimer,
    text: *mut c_void,
    capacity: u64,
    length: *mut u64,
    report: *mut ReportC,
) -> i32 {
    // SAFETY: the caller promises null or valid pointers; null is refused before any use.
    let (timer, length, report) = unsafe { (timer.as_mut(), length.as_mut(), sized_mut(report)) };
    guarded(report, |_| {
        let Some(timer) = timer else { return Outcome::argument("`timer` is null") };
        let Some(length) = length else { return Outcome::argument("`length` is null") };
        let told = match timer.0.told() {
            Ok(told) => told,
            Err(outcome) => return outcome,
        };
        *length = told.len() as u64;
        if *length > capacity {
            let text = format!("room for {capacity} bytes; there are {}", told.len());
            return Outcome::Failed(Status::Capacity, text);
        }
        if text.is_null() {
            return Outcome::argument("`text` is null");
        }
        // SAFETY: `text` is not null and has room for `capacity` bytes, which the text stays
        // within; a fresh string does not overlap it.
        unsafe { text.cast::<u8>().copy_from_nonoverlapping(told.as_ptr(), told.len()) };
        Outcome::Done
    })
}

/// Closes a timer; null is allowed.
///
/// # Safety
/// `timer` is null or came from [`proofhouse_timer_cuda_open`] and is not used again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn proofhouse_timer_cuda_close(timer: *mut OpenTimer) {
    if !timer.is_null() {
        // SAFETY: the pointer came from `Box::into_raw` in `proofhouse_timer_cuda_open` and the
        // caller gives it up here.
        drop(unsafe { Box::from_raw(timer) });
    }
}

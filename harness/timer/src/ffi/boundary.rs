//! What every C interface of a timer needs at its boundary: structs of a stated size, a status for
//! whatever happens, samples written whole or not at all.

use std::ffi::c_void;
use std::panic::{AssertUnwindSafe, catch_unwind};

use super::layout::{self, ReportC, SampleC, Status};
use crate::device::Device;
use crate::host::CallFailure;
use crate::measure::{MeasureError, TurnRequest, Warm};
use crate::sample::{Sample, TurnOutcome};

/// What a callback returns when it did its work.
pub const CALL_DONE: i32 = 1;

/// A callback: does one call on, or restores, buffer set `set`.
pub type Callback = unsafe extern "C" fn(context: *mut c_void, set: u32) -> i32;

/// A callback's result as the timer takes it.
///
/// # Errors
/// A [`CallFailure`] for anything but [`CALL_DONE`].
#[inline]
pub fn done(code: i32) -> Result<(), CallFailure> {
    if code == CALL_DONE { Ok(()) } else { Err(callback_failed(code)) }
}

#[cold]
fn callback_failed(code: i32) -> CallFailure {
    let message = format!("the callback returned {code}; {CALL_DONE} says that it did its work");
    CallFailure { code: i64::from(code), message }
}

/// What happened, before it is written into a report.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It worked.
    Done,
    /// It did not: the status and the text.
    Failed(Status, String),
}

impl Outcome {
    /// A refused argument.
    #[must_use]
    pub fn argument(text: impl Into<String>) -> Self {
        Self::Failed(Status::Argument, text.into())
    }
}

impl From<MeasureError> for Outcome {
    fn from(error: MeasureError) -> Self {
        let mut text = error.to_string();
        let mut cause = std::error::Error::source(&error);
        while let Some(inner) = cause {
            text.push_str(": ");
            text.push_str(&inner.to_string());
            cause = inner.source();
        }
        Self::Failed(Status::of(&error), text)
    }
}

/// A warm timer behind a boundary: refused for good once something panicked in it.
#[derive(Debug)]
pub struct Turns<D: Device> {
    warm: Warm<D>,
    usable: bool,
}

impl<D: Device> Turns<D> {
    /// A timer that is ready for turns.
    pub fn new(warm: Warm<D>) -> Self {
        Self { warm, usable: true }
    }

    /// The timer.
    pub fn warm(&self) -> &Warm<D> {
        &self.warm
    }

    /// The device, for what is not timing.
    pub fn device_mut(&mut self) -> &mut D {
        self.warm.device_mut()
    }

    /// Takes one turn and describes it; gives its rewarming and judged samples, for which the
    /// caller has room for `capacity`.
    ///
    /// # Errors
    /// An [`Outcome`] that is not [`Outcome::Done`].
    pub fn take(
        &mut self,
        request: TurnRequest,
        capacity: u32,
        report: &mut ReportC,
    ) -> Result<Vec<Sample>, Outcome> {
        if !self.usable {
            return Err(Outcome::Failed(Status::Poisoned, "an earlier turn panicked".into()));
        }
        let wanted = self.warm.samples_of(request);
        if u64::from(capacity) < wanted {
            let text = format!("room for {capacity} samples; the turn has {wanted}");
            return Err(Outcome::Failed(Status::Capacity, text));
        }
        self.usable = false;
        let outcome = self.warm.turn(request);
        self.usable = true;
        report.describe(&self.warm);
        match outcome? {
            TurnOutcome::Invalid(invalid) => {
                report.turn = invalid.turn;
                Err(Outcome::Failed(Status::Invalid, layout::reasons_text(&invalid.reasons)))
            }
            TurnOutcome::Valid(turn) => {
                report.describe_turn(&turn);
                Ok(turn.rewarm.into_iter().chain(turn.samples).collect())
            }
        }
    }
}

/// Writes the samples to `out`, all or none.
///
/// # Safety
/// `out` is null or has room for `capacity` samples.
pub unsafe fn deliver(
    samples: &[Sample],
    out: *mut SampleC,
    capacity: u32,
    report: &mut ReportC,
) -> Outcome {
    if out.is_null() {
        return Outcome::argument("`out` is null");
    }
    if samples.len() > capacity as usize {
        let text = format!("room for {capacity} samples; there are {}", samples.len());
        return Outcome::Failed(Status::Capacity, text);
    }
    for (index, sample) in samples.iter().enumerate() {
        // SAFETY: `out` is not null and has room for `capacity` samples, which `index` stays
        // below; `write` needs no initialized target.
        unsafe { out.add(index).write(sample.into()) };
    }
    // Not above `capacity`, so the cast is exact.
    report.samples = samples.len() as u32;
    Outcome::Done
}

/// The struct behind a pointer, none for null, or a text when its own `size` is another.
///
/// # Errors
/// The text.
///
/// # Safety
/// `pointer` is null or points to a struct that begins with its `size` and is that large.
pub unsafe fn sized<'a, T>(pointer: *const T) -> Result<Option<&'a T>, String> {
    if pointer.is_null() {
        return Ok(None);
    }
    // SAFETY: the struct begins with a `u32`, whatever its size.
    let found = unsafe { pointer.cast::<u32>().read() };
    if found as usize != size_of::<T>() {
        return Err(format!("a struct of {found} bytes; accepted: {}", size_of::<T>()));
    }
    // SAFETY: not null, and the caller's struct has the size of this type.
    Ok(unsafe { pointer.as_ref() })
}

/// The report to write to; none for null or for one of another size.
///
/// # Safety
/// As for [`sized`], and writable.
pub unsafe fn sized_mut<'a>(pointer: *mut ReportC) -> Option<&'a mut ReportC> {
    // SAFETY: passed on from this function's own contract.
    unsafe { sized(pointer.cast_const()) }.ok().flatten()?;
    // SAFETY: not null and of the right size, as checked above; writable as promised.
    unsafe { pointer.as_mut() }
}

/// Runs the body, turns a panic into a status and writes the status into the report.
pub fn guarded(report: Option<&mut ReportC>, body: impl FnOnce(&mut ReportC) -> Outcome) -> i32 {
    let Some(report) = report else { return Status::Argument as i32 };
    report.reset();
    // The report is only written to, and a timer that panicked refuses all further turns.
    let outcome = catch_unwind(AssertUnwindSafe(|| body(report)));
    let (status, text) = match outcome {
        Ok(Outcome::Done) => (Status::Ok, String::new()),
        Ok(Outcome::Failed(status, text)) => (status, text),
        Err(_) => (Status::Panic, "the timer panicked".to_owned()),
    };
    report.close(status, &text);
    status as i32
}

//! The host's processor as a device: any callable, timed by the monotonic clock.

mod cache;
mod clock;
mod code;
mod evict;
mod throttle;

pub use cache::last_level_cache_bytes;
pub use clock::monotonic_raw_ns;
pub use code::{code_in_maps, loaded_code};

use crate::device::{
    ClockKind, Device, DeviceCall, DeviceError, EscapeLimit, EventReasons, LoadedCode, Properties,
};
use evict::Evictor;
use throttle::ThrottleCounter;

/// Why a callable failed: its own code and words.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message} (code {code})")]
pub struct CallFailure {
    /// The callable's code.
    pub code: i64,
    /// The callable's words.
    pub message: String,
}

impl CallFailure {
    fn into_device_error(self, call: DeviceCall, set: Option<u32>) -> DeviceError {
        DeviceError { call, set, code: Some(self.code), message: self.message }
    }
}

/// What a host device runs.
pub trait HostWork {
    /// Runs the operator once on buffer set `set` and returns when its outputs are written.
    ///
    /// # Errors
    /// The operator's own.
    fn call(&mut self, set: u32) -> Result<(), CallFailure>;

    /// Gives buffer set `set` its original contents back.
    ///
    /// # Errors
    /// The work's own; by default that it cannot restore, so that a plan which restores fails.
    fn restore(&mut self, _set: u32) -> Result<(), CallFailure> {
        Err(CallFailure { code: 0, message: "this work cannot restore its inputs".into() })
    }

    /// Waits for anything that the calls left running.
    ///
    /// # Errors
    /// The work's own.
    fn sync(&mut self) -> Result<(), CallFailure> {
        Ok(())
    }
}

impl<F: FnMut(u32) -> Result<(), CallFailure>> HostWork for F {
    fn call(&mut self, set: u32) -> Result<(), CallFailure> {
        self(set)
    }
}

/// A callable on this machine's processor.
///
/// Times are `CLOCK_MONOTONIC_RAW`, the cache's size comes from sysfs, and loaded code from the
/// process's own memory map.
/// Work must be synchronous, or wait in [`HostWork::sync`].
#[derive(Debug)]
pub struct HostDevice<W> {
    work: W,
    last_level_cache_bytes: u64,
    escape_limit: Option<EscapeLimit>,
    evictor: Evictor,
    throttle: ThrottleCounter,
}

impl<W: HostWork> HostDevice<W> {
    /// A device for `work`; an unreadable cache size is zero, which refuses cold plans.
    #[must_use]
    pub fn new(work: W) -> Self {
        Self {
            work,
            last_level_cache_bytes: last_level_cache_bytes().unwrap_or(0),
            escape_limit: None,
            evictor: Evictor::default(),
            throttle: ThrottleCounter::of_current_cpu(),
        }
    }

    /// The same device with a cache size that the caller knows better, in bytes.
    #[must_use]
    pub fn with_last_level_cache(mut self, bytes: u64) -> Self {
        self.last_level_cache_bytes = bytes;
        self
    }

    /// The same device for work whose [`HostWork::sync`] sees calls that return too early.
    #[must_use]
    pub fn with_escape_limit(mut self, limit: EscapeLimit) -> Self {
        self.escape_limit = Some(limit);
        self
    }

    /// The work, for what is not timing.
    pub fn work_mut(&mut self) -> &mut W {
        &mut self.work
    }
}

impl<W: HostWork> Device for HostDevice<W> {
    type Stamp = u64;

    fn properties(&self) -> Properties {
        Properties {
            clock: ClockKind::Host,
            last_level_cache_bytes: self.last_level_cache_bytes,
            escape_limit: self.escape_limit,
        }
    }

    #[inline]
    fn stamp(&mut self) -> Result<u64, DeviceError> {
        clock::read(DeviceCall::Stamp)
    }

    fn elapsed_ns(&mut self, from: u64, to: u64) -> Result<f64, DeviceError> {
        Ok(match to.checked_sub(from) {
            Some(forward) => forward as f64,
            None => -((from - to) as f64),
        })
    }

    fn host_now_ns(&mut self) -> Result<u64, DeviceError> {
        clock::read(DeviceCall::HostNow)
    }

    #[inline]
    fn call(&mut self, set: u32) -> Result<(), DeviceError> {
        self.work
            .call(set)
            .map_err(|failure| failure.into_device_error(DeviceCall::Call, Some(set)))
    }

    fn slow_down(&mut self, from: u64, fraction: f64) -> Result<(), DeviceError> {
        let so_far = clock::read(DeviceCall::SlowDown)?.saturating_sub(from);
        // Fractions are at most one, so the product fits; what is cut is below one nanosecond.
        let until = from + so_far + (so_far as f64 * fraction) as u64;
        while clock::read(DeviceCall::SlowDown)? < until {
            std::hint::spin_loop();
        }
        Ok(())
    }

    fn restore(&mut self, set: u32) -> Result<(), DeviceError> {
        self.work
            .restore(set)
            .map_err(|failure| failure.into_device_error(DeviceCall::Restore, Some(set)))
    }

    fn evict(&mut self, bytes: u64) -> Result<(), DeviceError> {
        self.evictor.pass(bytes)
    }

    fn sync(&mut self) -> Result<(), DeviceError> {
        self.work.sync().map_err(|failure| failure.into_device_error(DeviceCall::Sync, None))
    }

    fn loaded_code(&mut self) -> Result<LoadedCode, DeviceError> {
        code::loaded_code()
    }

    fn event_reasons(&mut self) -> Result<EventReasons, DeviceError> {
        self.throttle.since_last()
    }
}

//! What the measuring core asks of a device.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::sample::Invalid;

/// A device that can run calls and tell how long they took.
///
/// Every method may fail, and a failure ends the measurement.
/// Two clocks are kept apart: `stamp` and `elapsed_ns` are the *device's* (events on a GPU), while
/// `host_now_ns` is the host's and is only used for cross-checks and bookkeeping.
pub trait Device {
    /// A point in device time, meaningful only to the device that gave it.
    type Stamp: Copy;

    /// The facts about the device that a plan is checked against.
    fn properties(&self) -> Properties;

    /// The least difference that the device's clock is documented or known to show, in
    /// nanoseconds; none when two readings in a row tell it better.
    fn resolution_ns(&self) -> Option<f64> {
        None
    }

    /// Makes the calls of a sample ready, outside the timed region: a device that replays captured
    /// graphs captures and uploads them here.
    ///
    /// What it gives, if anything, is why those calls are not what is to be timed.
    fn prepare(&mut self, _rotation: Rotation) -> Result<Option<Invalid>, DeviceError> {
        Ok(None)
    }

    /// Comes right before the first stamp of a region: an asynchronous device may enqueue work
    /// that keeps it busy until the region is handed over, so that handing over is not timed.
    fn lead_in(&mut self) -> Result<(), DeviceError> {
        Ok(())
    }

    /// Tells how long a sample of the warm-up lasted in the end, in nanoseconds.
    fn settled(&mut self, _sample_ns: f64) -> Result<(), DeviceError> {
        Ok(())
    }

    /// Marks a point in device time; on an asynchronous device it only enqueues the mark.
    fn stamp(&mut self) -> Result<Self::Stamp, DeviceError>;

    /// Waits until both stamps are reached and gives the time between them in nanoseconds.
    ///
    /// The number is handed on as the device gave it: negative, zero and not finite included.
    fn elapsed_ns(&mut self, from: Self::Stamp, to: Self::Stamp) -> Result<f64, DeviceError>;

    /// The host's monotonic clock in nanoseconds.
    fn host_now_ns(&mut self) -> Result<u64, DeviceError>;

    /// Runs, or enqueues, one call on buffer set `set`.
    fn call(&mut self, set: u32) -> Result<(), DeviceError>;

    /// Runs the calls of one sample; a device that replays captured graphs overrides it.
    fn run_calls(&mut self, rotation: Rotation) -> Result<(), DeviceError> {
        let end = rotation.cycle_start + rotation.sets;
        let mut set = rotation.first_set;
        for _ in 0..rotation.calls {
            self.call(set)?;
            set += 1;
            if set >= end {
                set = rotation.cycle_start;
            }
        }
        Ok(())
    }

    /// Lengthens the region that began at `from` by the fraction `fraction` of its time so far:
    /// the planted slowdown of a control.
    fn slow_down(&mut self, from: Self::Stamp, fraction: f64) -> Result<(), DeviceError>;

    /// Gives buffer set `set` its original contents back (operators that work in place).
    fn restore(&mut self, set: u32) -> Result<(), DeviceError>;

    /// Gives the buffer sets below `sets` their original contents back; a device that can do it in
    /// one go overrides it.
    fn restore_all(&mut self, sets: u32) -> Result<(), DeviceError> {
        (0..sets).try_for_each(|set| self.restore(set))
    }

    /// Touches `bytes` bytes that are no buffer set, so that those leave the caches.
    fn evict(&mut self, bytes: u64) -> Result<(), DeviceError>;

    /// Waits, device-wide, until all work is done.
    fn sync(&mut self) -> Result<(), DeviceError>;

    /// Which code is loaded now: modules, shared objects, memory of run-time compilers.
    fn loaded_code(&mut self) -> Result<LoadedCode, DeviceError>;

    /// Why the device's clocks were held back since the last question.
    fn event_reasons(&mut self) -> Result<EventReasons, DeviceError>;
}

impl<D: Device + ?Sized> Device for &mut D {
    type Stamp = D::Stamp;

    fn properties(&self) -> Properties {
        (**self).properties()
    }

    fn resolution_ns(&self) -> Option<f64> {
        (**self).resolution_ns()
    }

    fn prepare(&mut self, rotation: Rotation) -> Result<Option<Invalid>, DeviceError> {
        (**self).prepare(rotation)
    }

    fn lead_in(&mut self) -> Result<(), DeviceError> {
        (**self).lead_in()
    }

    fn settled(&mut self, sample_ns: f64) -> Result<(), DeviceError> {
        (**self).settled(sample_ns)
    }

    fn stamp(&mut self) -> Result<Self::Stamp, DeviceError> {
        (**self).stamp()
    }

    fn elapsed_ns(&mut self, from: Self::Stamp, to: Self::Stamp) -> Result<f64, DeviceError> {
        (**self).elapsed_ns(from, to)
    }

    fn host_now_ns(&mut self) -> Result<u64, DeviceError> {
        (**self).host_now_ns()
    }

    fn call(&mut self, set: u32) -> Result<(), DeviceError> {
        (**self).call(set)
    }

    fn run_calls(&mut self, rotation: Rotation) -> Result<(), DeviceError> {
        (**self).run_calls(rotation)
    }

    fn slow_down(&mut self, from: Self::Stamp, fraction: f64) -> Result<(), DeviceError> {
        (**self).slow_down(from, fraction)
    }

    fn restore(&mut self, set: u32) -> Result<(), DeviceError> {
        (**self).restore(set)
    }

    fn restore_all(&mut self, sets: u32) -> Result<(), DeviceError> {
        (**self).restore_all(sets)
    }

    fn evict(&mut self, bytes: u64) -> Result<(), DeviceError> {
        (**self).evict(bytes)
    }

    fn sync(&mut self) -> Result<(), DeviceError> {
        (**self).sync()
    }

    fn loaded_code(&mut self) -> Result<LoadedCode, DeviceError> {
        (**self).loaded_code()
    }

    fn event_reasons(&mut self) -> Result<EventReasons, DeviceError> {
        (**self).event_reasons()
    }
}

/// The calls of one sample: which sets, in which order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rotation {
    /// The set of the first call.
    pub first_set: u32,
    /// The lowest set of the cycle.
    pub cycle_start: u32,
    /// How many sets the cycle has.
    pub sets: u32,
    /// How many calls are made.
    pub calls: u32,
}

/// Facts about a device that do not change during a measurement.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Properties {
    /// Whose clock `stamp` reads.
    pub clock: ClockKind,
    /// Size of the last-level cache in bytes; zero when unknown, which refuses cold plans.
    pub last_level_cache_bytes: u64,
    /// When set, a device-wide wait after the timed region that lasts longer says that work
    /// escaped the region.
    pub escape_limit: Option<EscapeLimit>,
}

/// How long a device-wide wait may last once the timed region is over.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct EscapeLimit {
    /// Always allowed, in nanoseconds.
    pub floor_ns: f64,
    /// Allowed as a fraction of the region, when that is more.
    pub fraction: f64,
}

impl EscapeLimit {
    /// The allowed wait after a region of `elapsed_ns` nanoseconds.
    #[must_use]
    pub fn allowed_ns(&self, elapsed_ns: f64) -> f64 {
        self.floor_ns.max(self.fraction * elapsed_ns)
    }
}

/// Whose clock the samples are in; part of the timing contract.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ClockKind {
    /// Events of the device.
    Device,
    /// The monotonic clock of the host.
    Host,
}

/// What is loaded: how many pieces of code, and a fingerprint of which.
///
/// Equal values mean that nothing was loaded, unloaded or compiled in between.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LoadedCode {
    /// Number of modules, shared objects, or pages of compiled code.
    pub count: u64,
    /// A digest of their names and sizes; it tells a swap from no change.
    pub fingerprint: u64,
}

/// Why clocks were held back: a bit set with NVML's values, and the host's own above bit 40.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct EventReasons(pub u64);

impl EventReasons {
    /// The device idles; harmless.
    pub const IDLE: Self = Self(0x1);
    /// The power limit holds the clock back.
    pub const POWER_CAP: Self = Self(0x4);
    /// Hardware slows the clock down.
    pub const HARDWARE_SLOWDOWN: Self = Self(0x8);
    /// Software slows the clock down for temperature.
    pub const SOFTWARE_THERMAL: Self = Self(0x20);
    /// Hardware slows the clock down for temperature.
    pub const HARDWARE_THERMAL: Self = Self(0x40);
    /// An outside power brake is on.
    pub const POWER_BRAKE: Self = Self(0x80);
    /// The host's processor throttled for temperature.
    pub const HOST_THERMAL: Self = Self(1 << 40);

    const DISQUALIFYING: u64 = Self::POWER_CAP.0
        | Self::HARDWARE_SLOWDOWN.0
        | Self::SOFTWARE_THERMAL.0
        | Self::HARDWARE_THERMAL.0
        | Self::POWER_BRAKE.0
        | Self::HOST_THERMAL.0;

    /// The reasons that make a sample untrustworthy.
    #[must_use]
    pub fn disqualifying(self) -> Self {
        Self(self.0 & Self::DISQUALIFYING)
    }

    /// True when no reason is set.
    #[must_use]
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Both sets of reasons together.
    #[must_use]
    pub fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

/// The methods of [`Device`] that can fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DeviceCall {
    /// [`Device::prepare`].
    Prepare,
    /// [`Device::lead_in`].
    LeadIn,
    /// [`Device::settled`].
    Settled,
    /// [`Device::stamp`].
    Stamp,
    /// [`Device::elapsed_ns`].
    Elapsed,
    /// [`Device::host_now_ns`].
    HostNow,
    /// [`Device::call`] or [`Device::run_calls`].
    Call,
    /// [`Device::slow_down`].
    SlowDown,
    /// [`Device::restore`] or [`Device::restore_all`].
    Restore,
    /// [`Device::evict`].
    Evict,
    /// [`Device::sync`].
    Sync,
    /// [`Device::loaded_code`].
    LoadedCode,
    /// [`Device::event_reasons`].
    EventReasons,
}

impl fmt::Display for DeviceCall {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::Prepare => "preparation",
            Self::LeadIn => "lead-in",
            Self::Settled => "preparation for turns",
            Self::Stamp => "stamp",
            Self::Elapsed => "elapsed time",
            Self::HostNow => "host clock",
            Self::Call => "call",
            Self::SlowDown => "slow-down",
            Self::Restore => "restore",
            Self::Evict => "evict",
            Self::Sync => "sync",
            Self::LoadedCode => "loaded code",
            Self::EventReasons => "event reasons",
        })
    }
}

/// A device method that failed: which, on which set, with what code and why.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("device {call}{} failed: {message}{}", SetText(*.set), CodeText(*.code))]
pub struct DeviceError {
    /// The method that failed.
    pub call: DeviceCall,
    /// The buffer set, where one was given.
    pub set: Option<u32>,
    /// The device's or the operating system's own error code.
    pub code: Option<i64>,
    /// What the device said.
    pub message: String,
}

impl DeviceError {
    /// An error of `call` with a message and neither set nor code.
    #[must_use]
    pub fn new(call: DeviceCall, message: impl Into<String>) -> Self {
        Self { call, set: None, code: None, message: message.into() }
    }

    /// The same error on buffer set `set`.
    #[must_use]
    pub fn on_set(mut self, set: u32) -> Self {
        self.set = Some(set);
        self
    }

    /// The same error with the device's code.
    #[must_use]
    pub fn with_code(mut self, code: i64) -> Self {
        self.code = Some(code);
        self
    }
}

struct SetText(Option<u32>);

impl fmt::Display for SetText {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.map_or(Ok(()), |set| write!(out, " on set {set}"))
    }
}

struct CodeText(Option<i64>);

impl fmt::Display for CodeText {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.map_or(Ok(()), |code| write!(out, " (code {code})"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn idle_is_not_a_disqualifying_reason_and_each_throttle_is() {
        assert!(EventReasons::IDLE.disqualifying().is_empty());
        for reason in [
            EventReasons::POWER_CAP,
            EventReasons::HARDWARE_SLOWDOWN,
            EventReasons::SOFTWARE_THERMAL,
            EventReasons::HARDWARE_THERMAL,
            EventReasons::POWER_BRAKE,
            EventReasons::HOST_THERMAL,
        ] {
            assert_eq!(reason.union(EventReasons::IDLE).disqualifying(), reason);
        }
    }

    #[test]
    fn error_text_carries_the_call_the_set_and_the_code() {
        let error = DeviceError::new(DeviceCall::Call, "refused").on_set(3).with_code(-7);
        assert_eq!(error.to_string(), "device call on set 3 failed: refused (code -7)");
        let bare = DeviceError::new(DeviceCall::Sync, "lost");
        assert_eq!(bare.to_string(), "device sync failed: lost");
    }

    #[test]
    fn the_escape_limit_is_the_larger_of_floor_and_fraction() {
        let limit = EscapeLimit { floor_ns: 2_000.0, fraction: 0.05 };
        assert_eq!(limit.allowed_ns(10_000.0), 2_000.0);
        assert_eq!(limit.allowed_ns(100_000.0), 5_000.0);
    }
}

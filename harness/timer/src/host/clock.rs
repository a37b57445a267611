//! The raw monotonic clock, which no time daemon slews.
#![allow(unsafe_code, reason = "clock_gettime has no safe form in libc")]

use crate::device::{DeviceCall, DeviceError};

/// `CLOCK_MONOTONIC_RAW` in nanoseconds.
///
/// # Errors
/// A [`DeviceError`] with the system's error number when the clock cannot be read.
pub fn monotonic_raw_ns() -> Result<u64, DeviceError> {
    read(DeviceCall::HostNow)
}

#[inline]
pub(super) fn read(call: DeviceCall) -> Result<u64, DeviceError> {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is a valid, writable timespec for the length of the call, which keeps no
    // pointer to it.
    let status = unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC_RAW, &raw mut time) };
    if status != 0 {
        return Err(failed(call));
    }
    // Both parts of a monotonic clock are positive, and nanoseconds of 64 bits last 584 years.
    Ok(time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64)
}

#[cold]
fn failed(call: DeviceCall) -> DeviceError {
    let error = std::io::Error::last_os_error();
    let code = error.raw_os_error().map_or(-1, i64::from);
    DeviceError::new(call, error.to_string()).with_code(code)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_clock_never_steps_back_and_advances() {
        let first = monotonic_raw_ns().unwrap();
        let mut last = first;
        for _ in 0..10_000 {
            let now = monotonic_raw_ns().unwrap();
            assert!(now >= last);
            last = now;
        }
        assert!(last > first);
    }
}

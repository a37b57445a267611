//! Thermal throttling of the processor, where the kernel counts it.
#![allow(unsafe_code, reason = "sched_getcpu has no safe form in libc")]

use std::path::PathBuf;

use crate::device::{DeviceCall, DeviceError, EventReasons};

/// The throttle counter of the processor the worker is pinned to; absent on most virtual machines.
#[derive(Debug)]
pub(super) struct ThrottleCounter {
    path: Option<PathBuf>,
    last: u64,
}

impl ThrottleCounter {
    pub(super) fn of_current_cpu() -> Self {
        let cpu = current_cpu();
        Self::at(format!(
            "/sys/devices/system/cpu/cpu{cpu}/thermal_throttle/package_throttle_count"
        ))
    }

    fn at(path: impl Into<PathBuf>) -> Self {
        let path = path.into();
        match read(&path) {
            Some(last) => Self { path: Some(path), last },
            None => Self { path: None, last: 0 },
        }
    }

    pub(super) fn since_last(&mut self) -> Result<EventReasons, DeviceError> {
        let Some(path) = &self.path else { return Ok(EventReasons::default()) };
        let now = read(path).ok_or_else(|| {
            let message = format!("{} is no longer readable", path.display());
            DeviceError::new(DeviceCall::EventReasons, message)
        })?;
        let throttled = now != self.last;
        self.last = now;
        Ok(if throttled { EventReasons::HOST_THERMAL } else { EventReasons::default() })
    }
}

fn current_cpu() -> i32 {
    // SAFETY: the function takes no argument and only returns a number; a failure is -1, which
    // names no processor and so leaves the counter absent.
    unsafe { libc::sched_getcpu() }
}

fn read(path: &PathBuf) -> Option<u64> {
    std::fs::read_to_string(path).ok()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_counter_that_moved_is_a_reason_once_and_one_that_vanished_an_error() {
        let path = std::env::temp_dir().join(format!("proofhouse-throttle-{}", std::process::id()));
        std::fs::write(&path, "7\n").unwrap();
        let mut counter = ThrottleCounter::at(&path);
        assert_eq!(counter.since_last().unwrap(), EventReasons::default());
        std::fs::write(&path, "8\n").unwrap();
        assert_eq!(counter.since_last().unwrap(), EventReasons::HOST_THERMAL);
        assert_eq!(counter.since_last().unwrap(), EventReasons::default());
        std::fs::remove_file(&path).unwrap();
        assert_eq!(counter.since_last().unwrap_err().call, DeviceCall::EventReasons);
    }

    #[test]
    fn a_machine_without_counters_has_no_reasons() {
        let mut counter = ThrottleCounter::at("/nowhere/at/all");
        assert_eq!(counter.since_last().unwrap(), EventReasons::default());
    }
}

//! How long a call takes, roughly: what a plan needs before there is one.

use proofhouse_schema::timing::Launch;
use proofhouse_timer::{Device, DeviceError, Invalid, MeasureError, Rotation, Stage};

use crate::device::CudaDevice;
use crate::driver::Driver;
use crate::work::CudaWork;

/// Calls of the first try, growth from one to the next, and the most calls.
const CALLS: (u32, u32, u32) = (8, 8, 4_096);
/// A try that lasts so long is long enough, in nanoseconds.
const ENOUGH_NS: f64 = 300_000.0;
/// Tries of each number of calls; the least counts.
const TRIES: u32 = 3;

enum Stop {
    Device(DeviceError),
    Invalid(Invalid),
}

impl From<DeviceError> for Stop {
    fn from(error: DeviceError) -> Self {
        Self::Device(error)
    }
}

impl<W: CudaWork, D: Driver> CudaDevice<W, D> {
    /// Nanoseconds of one call on buffer set 0, found by running a growing number of them as the
    /// plan will launch them; `restore` gives the set its contents back before each try.
    ///
    /// Graphs that were captured for it are forgotten.
    ///
    /// # Errors
    /// [`MeasureError::Device`] and, for a graph that does not hold the calls,
    /// [`MeasureError::Clock`].
    pub fn guess_call_ns(&mut self, restore: bool) -> Result<f64, MeasureError> {
        let stage = Stage::Calibrate;
        let guessed = self.guess(restore);
        self.graphs.clear();
        guessed.map_err(|stop| match stop {
            Stop::Device(source) => MeasureError::Device { stage, source },
            Stop::Invalid(source) => MeasureError::Clock { stage, source },
        })
    }

    fn guess(&mut self, restore: bool) -> Result<f64, Stop> {
        // Loads and tunes what is loaded and tuned at the first call.
        self.call(0)?;
        self.sync()?;
        let mut calls = CALLS.0;
        loop {
            let rotation = Rotation { first_set: 0, cycle_start: 0, sets: 1, calls };
            if let Some(invalid) = self.prepare(rotation)? {
                return Err(Stop::Invalid(invalid));
            }
            let mut least_ns = f64::INFINITY;
            for _ in 0..TRIES {
                if restore {
                    self.restore(0)?;
                }
                self.sync()?;
                least_ns = least_ns.min(self.try_once(rotation)?);
            }
            if least_ns >= ENOUGH_NS || calls >= CALLS.2 {
                // A time of zero is for the measurement to refuse; a plan needs a positive one.
                return Ok((least_ns / f64::from(calls)).max(1.0));
            }
            calls = calls.saturating_mul(CALLS.1).min(CALLS.2);
        }
    }

    fn try_once(&mut self, rotation: Rotation) -> Result<f64, DeviceError> {
        if self.launch == Launch::Eager {
            // What the host needs counts where it is slower than the device.
            let begun_ns = self.host_now_ns()?;
            self.run_calls(rotation)?;
            self.sync()?;
            return Ok(self.host_now_ns()?.saturating_sub(begun_ns) as f64);
        }
        self.lead_in()?;
        let from = self.stamp()?;
        self.run_calls(rotation)?;
        let to = self.stamp()?;
        self.elapsed_ns(from, to)
    }
}

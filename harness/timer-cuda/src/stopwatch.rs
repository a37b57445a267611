//! Timing what this crate itself enqueues: calibrations and ceilings.

use crate::driver::{Driven, Driver};
use crate::handle::{Event, Stream};
use crate::kernels::Kernels;

/// Spins ahead of what is timed, so that handing it over is not timed, in nanoseconds.
const LEAD_IN_NS: u64 = 100_000;

/// Two events around something enqueued.
#[derive(Debug)]
pub(crate) struct Stopwatch<D: Driver> {
    driver: D,
    kernels: Kernels<D>,
    stream: Stream,
    from: Event,
    to: Event,
}

impl<D: Driver> Stopwatch<D> {
    pub(crate) fn new(driver: &D, kernels: &Kernels<D>, stream: Stream) -> Driven<Self> {
        let from = driver.event_create()?;
        let to = match driver.event_create() {
            Ok(to) => to,
            Err(error) => {
                // The failed creation is what is told.
                let _ = driver.event_destroy(from);
                return Err(error);
            }
        };
        Ok(Self { driver: driver.clone(), kernels: kernels.clone(), stream, from, to })
    }

    /// Nanoseconds of what `enqueue` enqueues, once.
    pub(crate) fn once(&self, enqueue: &mut dyn FnMut(Stream) -> Driven<()>) -> Driven<f64> {
        self.kernels.spin(LEAD_IN_NS, self.stream)?;
        self.driver.event_record(self.from, self.stream)?;
        enqueue(self.stream)?;
        self.driver.event_record(self.to, self.stream)?;
        self.driver.event_wait(self.to)?;
        Ok(f64::from(self.driver.event_elapsed_ms(self.from, self.to)?) * 1e6)
    }

    /// The times of so many repetitions, sorted.
    pub(crate) fn repeat(
        &self,
        count: usize,
        enqueue: &mut dyn FnMut(Stream) -> Driven<()>,
    ) -> Driven<Vec<f64>> {
        let mut times = Vec::with_capacity(count);
        for _ in 0..count {
            times.push(self.once(enqueue)?);
        }
        times.sort_by(f64::total_cmp);
        Ok(times)
    }

    /// The median time of so many repetitions.
    pub(crate) fn median(
        &self,
        count: usize,
        enqueue: &mut dyn FnMut(Stream) -> Driven<()>,
    ) -> Driven<f64> {
        let times = self.repeat(count.max(1), enqueue)?;
        Ok(times[times.len() / 2])
    }
}

impl<D: Driver> Drop for Stopwatch<D> {
    fn drop(&mut self) {
        for event in [self.from, self.to] {
            // A failure here has no one to tell; the context ends what is left.
            let _ = self.driver.event_destroy(event);
        }
    }
}

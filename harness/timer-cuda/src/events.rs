//! A pool of events, used in turn; a stamp that was overtaken is refused and not misread.

use proofhouse_timer::{DeviceCall, DeviceError};

use crate::driver::{Driven, Driver};
use crate::handle::{Event, Stream};

/// Events of the pool; a region needs two.
const EVENTS: usize = 64;

/// A recorded event, by its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp(u64);

#[derive(Debug)]
pub(crate) struct EventPool<D: Driver> {
    driver: D,
    stream: Stream,
    events: Vec<Event>,
    recorded: std::cell::Cell<u64>,
}

impl<D: Driver> EventPool<D> {
    pub(crate) fn new(driver: &D, stream: Stream) -> Driven<Self> {
        let recorded = std::cell::Cell::new(0);
        let mut pool = Self { driver: driver.clone(), stream, events: Vec::new(), recorded };
        for _ in 0..EVENTS {
            pool.events.push(driver.event_create()?);
        }
        Ok(pool)
    }

    pub(crate) fn record(&self) -> Driven<Stamp> {
        let stamp = Stamp(self.recorded.get());
        self.driver.event_record(self.event(stamp), self.stream)?;
        self.recorded.set(stamp.0 + 1);
        Ok(stamp)
    }

    pub(crate) fn wait(&self, stamp: Stamp) -> Driven<()> {
        self.driver.event_wait(self.event(stamp))
    }

    /// Whether the event recorded last was reached; true when there is none.
    pub(crate) fn reached_last(&self) -> Driven<bool> {
        match self.recorded.get().checked_sub(1) {
            Some(last) => self.driver.event_reached(self.event(Stamp(last))),
            None => Ok(true),
        }
    }

    /// Waits for the later one and gives the time between them.
    pub(crate) fn elapsed_ns(&self, from: Stamp, to: Stamp) -> Result<f64, DeviceError> {
        for stamp in [from, to] {
            if self.recorded.get() - stamp.0 > EVENTS as u64 {
                let text = format!("stamp {} was overtaken by {EVENTS} later ones", stamp.0);
                return Err(DeviceError::new(DeviceCall::Elapsed, text));
            }
        }
        let elapsed = self
            .wait(to)
            .and_then(|()| self.driver.event_elapsed_ms(self.event(from), self.event(to)));
        elapsed.map(|ms| f64::from(ms) * 1e6).map_err(|error| error.in_call(DeviceCall::Elapsed))
    }

    fn event(&self, stamp: Stamp) -> Event {
        // The remainder is below the number of events.
        self.events[(stamp.0 % EVENTS as u64) as usize]
    }
}

impl<D: Driver> Drop for EventPool<D> {
    fn drop(&mut self) {
        for event in &self.events {
            // A failure here has no one to tell; the context ends what is left.
            let _ = self.driver.event_destroy(*event);
        }
    }
}

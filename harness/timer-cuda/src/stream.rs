//! A stream with an owner.

use crate::cuda::Cuda;
use crate::driver::{Driver, DriverError};
use crate::handle::Stream;

/// A stream that does not wait for the default stream; it is ended when it is dropped.
#[derive(Debug)]
pub struct OwnedStream<D: Driver = Cuda> {
    driver: D,
    stream: Stream,
}

impl<D: Driver> OwnedStream<D> {
    /// A new stream.
    ///
    /// # Errors
    /// A [`DriverError`].
    pub fn new(driver: &D) -> Result<Self, DriverError> {
        Ok(Self { driver: driver.clone(), stream: driver.stream_create()? })
    }

    /// Its handle, which lives as long as this.
    #[must_use]
    pub fn handle(&self) -> Stream {
        self.stream
    }
}

impl<D: Driver> Drop for OwnedStream<D> {
    fn drop(&mut self) {
        // A failure here has no one to tell; the context ends what is left.
        let _ = self.driver.stream_destroy(self.stream);
    }
}

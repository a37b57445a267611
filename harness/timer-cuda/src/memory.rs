//! Device memory: allocations with an owner, and private copies that lie alike in every process.
//!
//! Where operands lie decides which memory channels and cache slices they share, and that can move
//! a time between two processes of one program. So pieces are cut, in a fixed order and at fixed
//! distances, from chunks that begin at a multiple of two MiB, as on the host (decision 0009).

use std::ops::Range;
use std::rc::Rc;

use crate::cuda::Cuda;
use crate::driver::{Driven, Driver, DriverError};
use crate::handle::Stream;

/// Alignment of a chunk in bytes: a page of device memory.
const PAGE: u64 = 2 << 20;
/// Size that chunks are a multiple of, in bytes.
const CHUNK: u64 = 16 * PAGE;
/// Alignment of a piece in bytes, that of the driver's own allocations for every vector type.
pub const ALIGNMENT: u64 = 256;
/// Bytes between pieces: an odd number of alignments, so that pieces of a power of two do not fall
/// on the same places of the cache.
const GAP: u64 = 17 * ALIGNMENT;

/// Device memory that is given back when its owner is gone.
#[derive(Debug)]
pub struct Allocation<D: Driver = Cuda> {
    driver: D,
    address: u64,
    bytes: u64,
}

impl<D: Driver> Allocation<D> {
    pub(crate) fn new(driver: &D, bytes: u64) -> Driven<Self> {
        let address = driver.allocate(bytes)?;
        Ok(Self { driver: driver.clone(), address, bytes })
    }

    pub(crate) fn address(&self) -> u64 {
        self.address
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }
}

impl<D: Driver> Drop for Allocation<D> {
    fn drop(&mut self) {
        // A failure here has no one to tell; the context takes the memory when it ends.
        let _ = self.driver.free(self.address);
    }
}

/// A piece of device memory that nobody else has; it keeps its chunk.
#[derive(Clone, Debug)]
pub struct DeviceBuffer<D: Driver = Cuda> {
    chunk: Rc<Allocation<D>>,
    /// Addresses of the device.
    range: Range<u64>,
}

impl<D: Driver> DeviceBuffer<D> {
    /// The device address of its first byte.
    #[must_use]
    pub fn address(&self) -> u64 {
        self.range.start
    }

    /// Its bytes.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.range.end - self.range.start
    }

    /// Whether it has none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.range.is_empty()
    }

    /// Copies from the host and waits.
    ///
    /// # Errors
    /// A [`DriverError`], also when the lengths differ.
    pub fn upload(&mut self, bytes: &[u8]) -> Result<(), DriverError> {
        self.same_length("upload", bytes.len() as u64)?;
        if bytes.is_empty() { Ok(()) } else { self.chunk.driver.upload(self.address(), bytes) }
    }

    /// Copies to the host and waits.
    ///
    /// # Errors
    /// A [`DriverError`], also when the lengths differ.
    pub fn download(&self, bytes: &mut [u8]) -> Result<(), DriverError> {
        self.same_length("download", bytes.len() as u64)?;
        if bytes.is_empty() { Ok(()) } else { self.chunk.driver.download(self.address(), bytes) }
    }

    /// Enqueues a copy of another buffer's contents.
    ///
    /// # Errors
    /// A [`DriverError`], also when the lengths differ.
    pub fn copy_from(&mut self, from: &Self, stream: Stream) -> Result<(), DriverError> {
        self.same_length("copy", from.len())?;
        if self.is_empty() {
            return Ok(());
        }
        self.chunk.driver.copy(self.address(), from.address(), self.len(), stream)
    }

    /// Enqueues a fill with one byte, e.g. a poison.
    ///
    /// # Errors
    /// A [`DriverError`].
    pub fn fill(&mut self, byte: u8, stream: Stream) -> Result<(), DriverError> {
        if self.is_empty() {
            return Ok(());
        }
        self.chunk.driver.fill(self.address(), byte, self.len(), stream)
    }

    fn same_length(&self, call: &'static str, found: u64) -> Result<(), DriverError> {
        if found == self.len() {
            return Ok(());
        }
        Err(DriverError {
            call,
            code: -1,
            name: "other-length".to_owned(),
            text: format!("{found} bytes; accepted: the buffer's {}", self.len()),
        })
    }
}

/// Cuts pieces from chunks.
#[derive(Debug)]
pub struct Arena<D: Driver = Cuda> {
    driver: D,
    /// The last chunk and its addresses that are still free.
    chunk: Option<(Rc<Allocation<D>>, Range<u64>)>,
}

impl<D: Driver> Arena<D> {
    /// An arena without memory.
    #[must_use]
    pub fn new(driver: &D) -> Self {
        Self { driver: driver.clone(), chunk: None }
    }

    /// Bytes of device memory that are free.
    ///
    /// # Errors
    /// A [`DriverError`].
    pub fn free_bytes(&self) -> Result<u64, DriverError> {
        self.driver.free_bytes()
    }

    /// A piece of so many bytes, `skew` bytes (below [`ALIGNMENT`]) past an aligned address.
    ///
    /// # Errors
    /// A [`DriverError`] when there is no memory.
    pub fn cut(&mut self, bytes: u64, skew: u64) -> Result<DeviceBuffer<D>, DriverError> {
        let skew = skew % ALIGNMENT;
        let (chunk, free) = match self.chunk.take() {
            Some((chunk, free)) if start(&free, skew) + bytes <= free.end => (chunk, free),
            _ => self.chunk_for(bytes + ALIGNMENT)?,
        };
        let from = start(&free, skew);
        let rest = (from + bytes + GAP).min(free.end)..free.end;
        self.chunk = Some((Rc::clone(&chunk), rest));
        Ok(DeviceBuffer { chunk, range: from..from + bytes })
    }

    fn chunk_for(&self, bytes: u64) -> Driven<(Rc<Allocation<D>>, Range<u64>)> {
        let bytes = bytes.next_multiple_of(CHUNK);
        let chunk = Allocation::new(&self.driver, bytes + PAGE)?;
        let from = chunk.address().next_multiple_of(PAGE);
        Ok((Rc::new(chunk), from..from + bytes))
    }
}

/// Where a piece begins.
fn start(free: &Range<u64>, skew: u64) -> u64 {
    free.start.next_multiple_of(ALIGNMENT) + skew
}

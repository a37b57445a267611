//! The middle floor: device memory with a length, tensors in it, and streams.

use std::marker::PhantomData;
use std::sync::Arc;

use proofhouse_contract::TensorLayout;

use crate::error::CudaError;
use crate::sys::driver::{self, Context};

/// A stream of work on the device: a raw handle, which somebody else owns or [`OwnedStream`] does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stream {
    raw: usize,
}

impl Stream {
    /// Borrows a stream by its raw handle (`CUstream`, which is what torch calls `cuda_stream`).
    ///
    /// # Safety
    /// The stream belongs to the primary context of the device it is used with, and outlives every use.
    #[must_use]
    pub const unsafe fn from_raw(raw: usize) -> Self {
        Self { raw }
    }

    /// The context's default stream.
    #[must_use]
    pub const fn default_stream() -> Self {
        Self { raw: 0 }
    }

    /// The raw handle.
    #[must_use]
    pub const fn raw(self) -> usize {
        self.raw
    }
}

/// A stream of this process, which does not wait for the default stream.
#[derive(Debug)]
pub struct OwnedStream {
    context: Arc<Context>,
    raw: usize,
}

impl OwnedStream {
    pub(crate) fn create(context: &Arc<Context>) -> Result<Self, CudaError> {
        context.make_current()?;
        Ok(Self { context: Arc::clone(context), raw: driver::create_stream()? })
    }

    /// The stream's handle, for as long as this value lives.
    #[must_use]
    pub const fn handle(&self) -> Stream {
        Stream { raw: self.raw }
    }

    /// Waits for the stream's work.
    ///
    /// # Errors
    /// What the driver says, also of work that failed earlier.
    pub fn synchronize(&self) -> Result<(), CudaError> {
        self.context.make_current()?;
        driver::synchronize(self.raw)
    }
}

impl Drop for OwnedStream {
    fn drop(&mut self) {
        if self.context.make_current().is_ok() {
            // SAFETY: the stream is this value's own. There is nothing to do about a failure.
            let _ = unsafe { driver::destroy_stream(self.raw) };
        }
    }
}

/// The context that was current on this thread; it is so again once this value is dropped.
///
/// Every call of this library makes its device's context current. Who lends it a thread of a program that works with
/// contexts of its own holds this value meanwhile. Where the driver was never loaded there is nothing to keep.
#[derive(Debug)]
pub struct CallersContext {
    raw: Option<usize>,
    /// The context is a thread's own.
    thread: PhantomData<*const ()>,
}

impl CallersContext {
    /// Keeps what is current now; a failure to learn it keeps nothing.
    #[must_use]
    pub fn keep() -> Self {
        let raw = if driver::is_loaded() { driver::current_context().ok() } else { None };
        Self { raw, thread: PhantomData }
    }
}

impl Drop for CallersContext {
    fn drop(&mut self) {
        if let Some(raw) = self.raw {
            // SAFETY: the context was current on this thread when the value was made, and only its owner, who called
            // us, can destroy it. There is nothing to do about a failure.
            let _ = unsafe { driver::set_current_context(raw) };
        }
    }
}

/// Device memory of this process.
#[derive(Debug)]
pub struct DeviceBuffer {
    context: Arc<Context>,
    address: u64,
    bytes: usize,
}

impl DeviceBuffer {
    pub(crate) fn allocate(context: &Arc<Context>, bytes: usize) -> Result<Self, CudaError> {
        context.make_current()?;
        // Nothing is not a region that the driver gives.
        let address = if bytes == 0 { 0 } else { driver::allocate(bytes)? };
        Ok(Self { context: Arc::clone(context), address, bytes })
    }

    /// Address of the first byte; 0 for an empty buffer.
    #[must_use]
    pub const fn address(&self) -> u64 {
        self.address
    }

    /// Length in bytes.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.bytes
    }

    /// Whether there are no bytes.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    /// Copies host bytes to the front of the buffer, after the stream's work, and waits.
    ///
    /// # Errors
    /// `TooLarge` when they do not fit; what the driver says.
    pub fn upload(&mut self, bytes: &[u8], stream: Stream) -> Result<(), CudaError> {
        self.check("bytes to upload", bytes.len())?;
        self.context.make_current()?;
        // SAFETY: the length was checked.
        unsafe { driver::upload(self.address, bytes, stream.raw) }
    }

    /// Copies the front of the buffer to host bytes, after the stream's work, and waits.
    ///
    /// # Errors
    /// `TooLarge` when it has fewer bytes; what the driver says.
    pub fn download(&self, bytes: &mut [u8], stream: Stream) -> Result<(), CudaError> {
        self.check("bytes to download", bytes.len())?;
        self.context.make_current()?;
        // SAFETY: the length was checked.
        unsafe { driver::download(self.address, bytes, stream.raw) }
    }

    /// Puts a fill of the whole buffer into a stream.
    ///
    /// # Errors
    /// What the driver says.
    pub fn fill(&mut self, value: u8, stream: Stream) -> Result<(), CudaError> {
        self.fill_shared(value, stream)
    }

    /// As [`DeviceBuffer::fill`], for words that kernels share with the host through an owner of their own.
    pub(crate) fn fill_shared(&self, value: u8, stream: Stream) -> Result<(), CudaError> {
        if self.bytes == 0 {
            return Ok(());
        }
        self.context.make_current()?;
        // SAFETY: the buffer has this many bytes.
        unsafe { driver::fill(self.address, self.bytes, value, stream.raw) }
    }

    fn check(&self, what: &'static str, bytes: usize) -> Result<(), CudaError> {
        if bytes <= self.bytes {
            return Ok(());
        }
        Err(CudaError::TooLarge {
            operator: "device buffer",
            what,
            found: bytes as u64,
            accepted: self.bytes as u64,
        })
    }

    /// A tensor whose storage is the whole buffer.
    #[must_use]
    pub fn tensor(&self, layout: TensorLayout) -> DeviceTensor<'_> {
        DeviceTensor {
            address: self.address,
            bytes: self.bytes as u64,
            layout,
            memory: PhantomData,
        }
    }
}

impl Drop for DeviceBuffer {
    fn drop(&mut self) {
        if self.address != 0 && self.context.make_current().is_ok() {
            // SAFETY: the memory is this value's own, and views of it do not outlive it; work under way is
            // waited for by the driver. There is nothing to do about a failure.
            let _ = unsafe { driver::free(self.address) };
        }
    }
}

/// A tensor in device memory that is borrowed: storage, and where the elements lie in it.
#[derive(Clone, Debug)]
pub struct DeviceTensor<'a> {
    address: u64,
    bytes: u64,
    layout: TensorLayout,
    memory: PhantomData<&'a DeviceBuffer>,
}

impl DeviceTensor<'_> {
    /// Borrows device memory by its raw address.
    ///
    /// # Safety
    /// `address` has `bytes` bytes of memory that the device can read and write for as long as this value and
    /// every launch made of it are in use, work under way and graphs included.
    #[must_use]
    pub const unsafe fn from_raw(address: u64, bytes: u64, layout: TensorLayout) -> Self {
        Self { address, bytes, layout, memory: PhantomData }
    }

    /// Address of the first byte of the storage.
    #[must_use]
    pub const fn address(&self) -> u64 {
        self.address
    }

    /// Length of the storage in bytes.
    #[must_use]
    pub const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Where the elements lie.
    #[must_use]
    pub const fn layout(&self) -> &TensorLayout {
        &self.layout
    }
}

/// Reads integers of one word out of a tensor that lies in device memory, after the stream's work.
pub(crate) fn read_word(context: &Context, address: u64, stream: Stream) -> Result<i64, CudaError> {
    let mut word = [0u8; 8];
    context.make_current()?;
    // SAFETY: the caller's address comes from a tensor that the contract has accepted, within its storage.
    unsafe { driver::download(address, &mut word, stream.raw)? };
    Ok(i64::from_le_bytes(word))
}

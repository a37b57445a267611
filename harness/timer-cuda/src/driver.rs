//! The seam: every call that the timer makes of the driver and of the host.
//!
//! The module is private, so only this crate makes calls, and a scripted driver can stand in for
//! the real one in tests.

use std::ffi::CStr;
use std::fmt;

use proofhouse_timer::{DeviceCall, DeviceError, LoadedCode};

use crate::handle::{Event, Function, Graph, GraphExec, Stream};

/// A driver call that failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{call} gave {name} ({code}){}", Because(.text))]
pub struct DriverError {
    /// The driver's function.
    pub call: &'static str,
    /// Its result.
    pub code: i64,
    /// The result's name.
    pub name: String,
    /// What the driver or this crate says about it; empty for nothing.
    pub text: String,
}

struct Because<'a>(&'a str);

impl fmt::Display for Because<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() { Ok(()) } else { write!(out, ": {}", self.0) }
    }
}

impl DriverError {
    /// The same failure as one of the timer's device calls.
    #[must_use]
    pub fn in_call(self, call: DeviceCall) -> DeviceError {
        let code = self.code;
        DeviceError::new(call, self.to_string()).with_code(code)
    }
}

/// What a driver call gives.
pub type Driven<T> = Result<T, DriverError>;

/// A node of a captured graph.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// The kind, in the driver's words: `kernel`, `memcpy`, `memset`, ...
    pub kind: &'static str,
    /// The kernel's name, grid and block; none for other kinds.
    pub kernel: Option<Kernel>,
}

/// A kernel node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kernel {
    /// Its name as the driver has it (mangled).
    pub name: String,
    /// Blocks in x, y and z.
    pub grid: [u32; 3],
    /// Threads of a block in x, y and z.
    pub block: [u32; 3],
}

/// The calls. A clone is another handle of the same driver.
pub trait Driver: Clone {
    /// A stream that does not wait for the default stream.
    fn stream_create(&self) -> Driven<Stream>;
    /// Ends a stream; its work goes on.
    fn stream_destroy(&self, stream: Stream) -> Driven<()>;

    /// An event with a time.
    fn event_create(&self) -> Driven<Event>;
    /// Ends an event.
    fn event_destroy(&self, event: Event) -> Driven<()>;
    /// Enqueues the event.
    fn event_record(&self, event: Event, stream: Stream) -> Driven<()>;
    /// Whether it was reached.
    fn event_reached(&self, event: Event) -> Driven<bool>;
    /// Waits until it is reached.
    fn event_wait(&self, event: Event) -> Driven<()>;
    /// Milliseconds from one event to another.
    fn event_elapsed_ms(&self, from: Event, to: Event) -> Driven<f32>;
    /// Waits until everything in the context is done.
    fn device_wait(&self) -> Driven<()>;

    /// Begins to capture what this thread enqueues on the stream.
    fn capture_begin(&self, stream: Stream) -> Driven<()>;
    /// Ends the capture.
    fn capture_end(&self, stream: Stream) -> Driven<Graph>;
    /// The graph's nodes, those of child graphs included.
    fn graph_nodes(&self, graph: Graph) -> Driven<Vec<Node>>;
    /// Makes the graph ready to launch.
    fn graph_instantiate(&self, graph: Graph) -> Driven<GraphExec>;
    /// Ends a graph.
    fn graph_destroy(&self, graph: Graph) -> Driven<()>;
    /// Puts the graph on the device ahead of its first launch.
    fn exec_upload(&self, exec: GraphExec, stream: Stream) -> Driven<()>;
    /// Enqueues a replay.
    fn exec_launch(&self, exec: GraphExec, stream: Stream) -> Driven<()>;
    /// Ends an instantiated graph.
    fn exec_destroy(&self, exec: GraphExec) -> Driven<()>;

    /// Device memory.
    fn allocate(&self, bytes: u64) -> Driven<u64>;
    /// Gives device memory back.
    fn free(&self, address: u64) -> Driven<()>;
    /// Bytes of device memory that are free.
    fn free_bytes(&self) -> Driven<u64>;
    /// Copies from the host and waits.
    fn upload(&self, to: u64, bytes: &[u8]) -> Driven<()>;
    /// Copies to the host and waits.
    fn download(&self, from: u64, bytes: &mut [u8]) -> Driven<()>;
    /// Enqueues a copy within the device.
    fn copy(&self, to: u64, from: u64, bytes: u64, stream: Stream) -> Driven<()>;
    /// Enqueues a fill with one byte.
    fn fill(&self, to: u64, byte: u8, bytes: u64, stream: Stream) -> Driven<()>;
    /// Takes lines that were marked persisting in the L2 back to normal.
    fn reset_persisting_cache(&self) -> Driven<()>;

    /// Loads PTX, once, and looks its kernels up, in the order of the names.
    fn load(&self, ptx: &'static CStr, names: &[&CStr]) -> Driven<Vec<Function>>;
    /// Enqueues a kernel on `blocks` blocks of `threads` threads; every parameter is 64 bits.
    fn launch(
        &self,
        kernel: Function,
        blocks: u32,
        threads: u32,
        parameters: &[u64],
        stream: Stream,
    ) -> Driven<()>;

    /// Which code the process and the driver have loaded.
    fn loaded_code(&self) -> Result<LoadedCode, DeviceError>;
    /// The host's monotonic clock in nanoseconds.
    fn host_now_ns(&self) -> Result<u64, DeviceError>;
}

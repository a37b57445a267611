//! What the device can do at most, measured: bandwidths, an empty graph node, an empty region.

use serde::Serialize;

use crate::cuda::Cuda;
use crate::driver::{Driven, Driver, DriverError};
use crate::handle::Stream;
use crate::kernels::Kernels;
use crate::memory::Allocation;
use crate::stopwatch::Stopwatch;
use crate::stream::OwnedStream;

/// Each buffer is at least so many times the L2 cache, and at least so many bytes.
const BUFFER: (u64, u64) = (8, 512 << 20);
/// Passes of each kind; the fastest is the ceiling.
const PASSES: usize = 20;
/// Nodes of the graph behind the cost of one.
const NODES: u32 = 512;

/// The ceilings of a session. A record compares with them, so each is the fastest pass.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Ceilings {
    /// Bytes of the buffers that were moved.
    pub buffer_bytes: u64,
    /// Bytes read in a second.
    pub read_bytes_per_s: f64,
    /// Bytes written in a second.
    pub write_bytes_per_s: f64,
    /// Bytes read and bytes written in a second of copying, added.
    pub copy_bytes_per_s: f64,
    /// Median time of an empty kernel in a graph, in nanoseconds.
    pub empty_node_ns: f64,
    /// Median time between two events with nothing between them, in nanoseconds.
    pub empty_pair_ns: f64,
}

impl Ceilings {
    /// Measures the ceilings of a device.
    ///
    /// # Errors
    /// A [`DriverError`], also when there is no memory for the buffers.
    pub fn measure(cuda: &Cuda) -> Result<Self, DriverError> {
        Self::of(cuda, cuda.facts().multiprocessors, cuda.facts().l2_bytes)
    }

    pub(crate) fn of<D: Driver>(driver: &D, multiprocessors: u32, l2_bytes: u64) -> Driven<Self> {
        let kernels = Kernels::load(driver, multiprocessors)?;
        let stream = OwnedStream::new(driver)?;
        let watch = Stopwatch::new(driver, &kernels, stream.handle())?;
        let bytes = l2_bytes.saturating_mul(BUFFER.0).max(BUFFER.1).next_multiple_of(2 << 20);
        let (from, to) = (Allocation::new(driver, bytes)?, Allocation::new(driver, bytes)?);
        let sink = Allocation::new(driver, 256)?;
        for buffer in [&from, &to] {
            driver.fill(buffer.address(), 0x3c, bytes, stream.handle())?;
        }
        let (from, to, sink) = (from.address(), to.address(), sink.address());
        let fastest = |enqueue: &mut dyn FnMut(Stream) -> Driven<()>| -> Driven<f64> {
            Ok(watch.repeat(PASSES, enqueue)?[0])
        };
        let read = fastest(&mut |s| kernels.read(from, bytes, sink, s))?;
        let write = fastest(&mut |s| kernels.write(to, bytes, 0x1234_5678, s))?
            .min(fastest(&mut |s| driver.fill(to, 0x11, bytes, s))?);
        let copy = fastest(&mut |s| kernels.copy(to, from, bytes, s))?
            .min(fastest(&mut |s| driver.copy(to, from, bytes, s))?);
        let rate = |moved: u64, ns: f64| moved as f64 / (ns * 1e-9);
        Ok(Self {
            buffer_bytes: bytes,
            read_bytes_per_s: rate(bytes, read),
            write_bytes_per_s: rate(bytes, write),
            copy_bytes_per_s: rate(2 * bytes, copy),
            empty_node_ns: empty_node_ns(driver, &kernels, &watch, stream.handle())?,
            empty_pair_ns: watch.median(PASSES, &mut |_| Ok(()))?,
        })
    }
}

fn empty_node_ns<D: Driver>(
    driver: &D,
    kernels: &Kernels<D>,
    watch: &Stopwatch<D>,
    stream: Stream,
) -> Driven<f64> {
    driver.capture_begin(stream)?;
    let enqueued = (0..NODES).try_for_each(|_| kernels.empty(stream));
    let graph = driver.capture_end(stream);
    enqueued?;
    let graph = graph?;
    let exec = driver.graph_instantiate(graph);
    driver.graph_destroy(graph)?;
    let exec = exec?;
    let replayed = driver
        .exec_upload(exec, stream)
        .and_then(|()| watch.median(PASSES, &mut |s| driver.exec_launch(exec, s)));
    driver.exec_destroy(exec)?;
    Ok(replayed? / f64::from(NODES))
}

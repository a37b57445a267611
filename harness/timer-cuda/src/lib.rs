//! The timer's CUDA device: graph replay, eager enqueue, rotation, clocks; a C library for other languages.
//!
//! [`CudaDevice`] is a [`proofhouse_timer::Device`] over some [`CudaWork`]: the calls of a sample
//! are captured once into a graph, which is replayed between two events, or they are enqueued one
//! by one.
//!
//! - The driver is found at run time; a machine without it gets an [`OpenError`].
//! - Events are the clock. A spin ahead of each region keeps the device busy until the region is
//!   handed over, so that launching a graph is not timed.
//! - The witness is read from the graph: fewer kernels than calls, or other kernels than in the
//!   capture before, give no number.
//! - After each sample a kernel counts a multiprocessor's clock against the global timer, and NVML
//!   tells why clocks were held back. NVML is optional, and its absence is told.
//! - Nothing of the device is ever set or reset.
//!
//! What loads or compiles code inside the region is seen by the code that the process has mapped;
//! the driver tells no number of loaded modules. A replay loads nothing by its nature.

mod ceilings;
mod controls;
mod cuda;
mod device;
mod driver;
mod events;
#[cfg(test)]
mod faults;
pub mod ffi;
mod graphs;
mod guess;
mod handle;
mod kernels;
mod memory;
mod plan;
#[cfg(test)]
mod scripted;
mod sensors;
mod stopwatch;
mod stream;
mod telemetry;
mod witness;
mod work;

pub use ceilings::Ceilings;
pub use controls::{CacheControl, ControlError, CopyWork, LEAST_COLD_OVER_HOT, Spinner, TimedCopy};
pub use cuda::{Cuda, DeviceFacts, OpenError};
pub use device::{Chip, CudaDevice, EVENT_RESOLUTION_NS, Options};
pub use driver::{Driven, DriverError, Kernel, Node};
pub use events::Stamp;
pub use handle::{Graph, Stream};
pub use memory::{ALIGNMENT, Allocation, Arena, DeviceBuffer};
pub use plan::{Cell, DevicePlan, MOST_GRAPH_CALLS, MOST_SET_BYTES, MOST_SETS, device_plan};
pub use sensors::{ComputeProcess, NvmlSensors, Reading, SensorError, Sensors, Snapshot};
pub use stream::OwnedStream;
pub use telemetry::{Row, columns};
pub use witness::Witness;
pub use work::{CudaWork, sets_of};

//! What a provider implements.

use std::collections::BTreeMap;

use proofhouse_schema::device::OpenedDevice;
use proofhouse_schema::dtype::Dtype;
use proofhouse_schema::ids::{OperatorName, ProviderId};
use proofhouse_schema::protocol::{Capabilities, Prepare, Reply, Request};

use crate::decline::Decline;
use crate::tensor::Tensor;

/// Who a worker is and what it can do; it becomes the hello.
#[derive(Debug, Clone, PartialEq)]
pub struct Description {
    /// The provider.
    pub provider: ProviderId,
    /// Its version.
    pub version: String,
    /// Packages and versions.
    pub packages: BTreeMap<String, String>,
    /// Operators and the activation dtypes of each.
    pub operators: BTreeMap<OperatorName, Vec<Dtype>>,
    /// What it can do.
    pub capabilities: Capabilities,
    /// The device that it opened; none: the host's processor.
    pub device: Option<OpenedDevice>,
}

/// Whether values that live on the device (ids, logits) are checked before they are used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// A bad value is a typed error that names argument and row.
    Checked,
    /// A bad value is skipped, in bounds.
    Unchecked,
}

/// Where a tensor lies, before there is any reference to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Region {
    /// The address of element 0; 0 for a null pointer.
    pub address: u64,
    /// Bytes from there to the end of the last element.
    pub bytes: u64,
    /// Elements between the first elements of two neighboring rows.
    pub row_stride: u64,
}

/// A provider inside its process.
pub trait Worker {
    /// Who it is; called once, before the hello, so it must be quick.
    fn describe(&self) -> Description;

    /// Refuses what is wrong with a case before any of its memory is touched: shapes, dtypes, parameters, null,
    /// misaligned and overlapping regions. `regions` are in the order of the case's tensors.
    ///
    /// A null or overlapping region that passes here is refused by the loop itself, because no safe slice has it.
    ///
    /// # Errors
    /// A [`Decline`].
    fn examine(&mut self, case: &Prepare, regions: &[Region]) -> Result<(), Decline> {
        let _ = (case, regions);
        Ok(())
    }

    /// Binds a case to its memory: checks it, makes what a run needs, and gives the runnable call.
    ///
    /// The same case is bound more than once: to the mapped file, and to private copies that are timed.
    ///
    /// # Errors
    /// A [`Decline`]; a typed refusal may come from here or from the first run.
    fn bind<'a>(
        &mut self,
        case: &Prepare,
        tensors: Vec<Tensor<'a>>,
    ) -> Result<Box<dyn Call + 'a>, Decline>;

    /// The instruction set or path that was chosen, e.g. `avx512`.
    fn dispatch(&self) -> String {
        String::new()
    }

    /// How much longer than its work every timed sample is made, as a fraction: a worker that plays the slower of two
    /// equal providers, for calibrating comparisons. 0 for every other worker.
    fn planted_slowdown(&self) -> f64 {
        0.0
    }

    /// Answers a request that only some workers know (the checker's verbs), or nothing.
    fn answer(&mut self, request: &Request) -> Option<Reply> {
        let _ = request;
        None
    }
}

/// An operator bound to memory.
pub trait Call {
    /// Runs the operator once. Nothing is to be allocated here: this is the timed region.
    ///
    /// # Errors
    /// A [`Decline`].
    fn run(&mut self, mode: Mode) -> Result<(), Decline>;

    /// The memory of the tensor at `index` in the case's order.
    ///
    /// # Panics
    /// May panic when the case has no such tensor.
    fn bytes(&self, index: usize) -> &[u8];

    /// The same memory, writable; none for an input.
    ///
    /// # Panics
    /// May panic when the case has no such tensor.
    fn bytes_mut(&mut self, index: usize) -> Option<&mut [u8]>;
}

//! The worker that runs our CPU operators: `kernels/cpu` behind the protocol, provider id `cpu`.

use std::collections::BTreeMap;
use std::num::NonZeroUsize;

use proofhouse_contract::{Call, TensorLayout, TensorMut, TensorView};
use proofhouse_cpu::Cpu;
use proofhouse_schema::dtype::Dtype;
use proofhouse_schema::ids::{OperatorName, ProviderId};
use proofhouse_schema::protocol::{Capabilities, Prepare};
use proofhouse_worker::{Decline, Description, Mode, Region, Storage, Tensor, Worker};
use proofhouse_worker_contract::{from_dtype, refused, to_call, to_dtype, to_plan};

/// The environment variable with the number of threads.
pub const THREADS_VARIABLE: &str = "PROOFHOUSE_THREADS";

/// The CPU operators as a provider.
#[derive(Debug, Clone)]
pub struct CpuWorker {
    cpu: Cpu,
    threads: Option<NonZeroUsize>,
    provider: ProviderId,
    slowdown: f64,
}

impl CpuWorker {
    /// The operators on the fastest path of this machine, on that many threads (none: one per core).
    #[must_use]
    pub fn new(threads: Option<NonZeroUsize>) -> Self {
        let provider = ProviderId::new("cpu").expect("a valid id");
        Self { cpu: Cpu::default(), threads, provider, slowdown: 0.0 }
    }

    /// The same operators under another id, and slower by a fraction: a twin for calibrating comparisons.
    #[must_use]
    pub fn twin(self, provider: ProviderId, slowdown: f64) -> Self {
        Self { provider, slowdown, ..self }
    }

    /// Makes the pool on first need, so that the hello does not wait for it.
    fn make_pool(&self) {
        if let Some(threads) = self.threads {
            proofhouse_cpu::use_threads(threads);
        }
    }
}

impl Worker for CpuWorker {
    fn planted_slowdown(&self) -> f64 {
        self.slowdown
    }

    fn describe(&self) -> Description {
        let known = proofhouse_contract::catalog()
            .iter()
            .filter(|spec| Cpu::OPERATORS.contains(&spec.name));
        let operators = known.filter_map(|spec| {
            let dtypes: Vec<Dtype> = spec.dtypes.iter().map(|dtype| from_dtype(*dtype)).collect();
            Some((OperatorName::new(spec.name).ok()?, dtypes))
        });
        Description {
            provider: self.provider.clone(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            packages: BTreeMap::new(),
            operators: operators.collect(),
            capabilities: Capabilities {
                measure: true,
                refusals: true,
                strided: true,
                checker: false,
                refresh: true,
                graph: false,
            },
            device: None,
        }
    }

    fn examine(&mut self, case: &Prepare, regions: &[Region]) -> Result<(), Decline> {
        let plan = to_plan(case, regions)?;
        self.cpu.refuse(&plan).map_err(|error| refused(&error))
    }

    fn bind<'a>(
        &mut self,
        case: &Prepare,
        tensors: Vec<Tensor<'a>>,
    ) -> Result<Box<dyn proofhouse_worker::Call + 'a>, Decline> {
        self.make_pool();
        let mut bound = CpuCall {
            cpu: self.cpu,
            call: to_call(case)?,
            inputs: Vec::new(),
            outputs: Vec::new(),
            places: Vec::new(),
        };
        for tensor in tensors {
            let layout = TensorLayout {
                dtype: to_dtype(tensor.dtype),
                shape: tensor.shape,
                row_stride: tensor.row_stride,
                offset: 0,
            };
            match tensor.storage {
                Storage::Read(bytes) => {
                    bound.places.push(Place::Input(bound.inputs.len()));
                    bound.inputs.push(TensorView { layout, bytes });
                }
                Storage::Write(bytes) => {
                    bound.places.push(Place::Output(bound.outputs.len()));
                    bound.outputs.push(TensorMut { layout, bytes });
                }
            }
        }
        Ok(Box::new(bound))
    }

    fn dispatch(&self) -> String {
        self.cpu.path().name().to_owned()
    }
}

/// Where a tensor of the case is among the operands.
#[derive(Debug, Clone, Copy)]
enum Place {
    Input(usize),
    Output(usize),
}

/// A call with its operands.
#[derive(Debug)]
struct CpuCall<'a> {
    cpu: Cpu,
    call: Call,
    inputs: Vec<TensorView<'a>>,
    outputs: Vec<TensorMut<'a>>,
    places: Vec<Place>,
}

impl proofhouse_worker::Call for CpuCall<'_> {
    #[inline]
    fn run(&mut self, mode: Mode) -> Result<(), Decline> {
        let mode = match mode {
            Mode::Checked => proofhouse_contract::Mode::Checked,
            Mode::Unchecked => proofhouse_contract::Mode::Unchecked,
        };
        self.cpu
            .run(&self.call, mode, &self.inputs, &mut self.outputs)
            .map_err(|error| refused(&error))
    }

    fn bytes(&self, index: usize) -> &[u8] {
        match self.places[index] {
            Place::Input(place) => self.inputs[place].bytes,
            Place::Output(place) => self.outputs[place].bytes,
        }
    }

    fn bytes_mut(&mut self, index: usize) -> Option<&mut [u8]> {
        match self.places[index] {
            Place::Input(_) => None,
            Place::Output(place) => Some(self.outputs[place].bytes),
        }
    }
}

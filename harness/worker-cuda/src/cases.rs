//! The requests of the protocol, on the device.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use proofhouse_contract::CallPlan;
use proofhouse_cuda::{OPERATORS, Prepared};
use proofhouse_schema::device::{DeviceKind, OpenedDevice};
use proofhouse_schema::ids::{OperatorName, ProviderId};
use proofhouse_schema::protocol::{Capabilities, Measure, Prepare, Reply};
use proofhouse_schema::timing::Launch;
use proofhouse_timer::host::CallFailure;
use proofhouse_timer::{Device as _, Rotation};
use proofhouse_timer_cuda::{
    Arena, CacheControl, Ceilings, CudaDevice, CudaWork, Options, Stream as TimerStream,
};
use proofhouse_worker::cases::unknown_case;
use proofhouse_worker::{Cases, Decline, Description, Mode};
use proofhouse_worker_contract::{from_dtype, refused, to_plan};

use crate::bound::{Bound, declined};
use crate::image::{Images, driver};
use crate::measure::{Timed, measure};
use crate::open::OpenedCuda;
use crate::sets::Sets;

/// One call, as the captured graph's only work.
const ONE_CALL: Rotation = Rotation { first_set: 0, cycle_start: 0, sets: 1, calls: 1 };
/// Pieces of device memory that are allocated and freed before each replay, in bytes (P8).
const CHURN: [u64; 3] = [4 << 10, 1 << 20, 48 << 20];

/// Our CUDA operators as a provider.
#[derive(Debug)]
pub struct CudaCases {
    // Declared first, so dropped first: cases hold memory of the device.
    cases: BTreeMap<String, Case>,
    opened: OpenedCuda,
    provider: ProviderId,
    slowdown: f64,
    kernels: BTreeSet<String>,
    broken: Option<String>,
}

#[derive(Debug)]
struct Case {
    prepare: Prepare,
    plan: CallPlan,
    prepared: Rc<Prepared>,
    timed: Option<Timed>,
    graph: Option<CudaDevice<OneCall>>,
    call: Rc<Bound<()>>,
    // After the calls that point into it.
    images: Images,
}

/// The call over the case's own tensors, as the timer captures it.
#[derive(Debug)]
struct OneCall(Rc<Bound<()>>);

impl CudaWork for OneCall {
    fn enqueue(&mut self, _set: u32, stream: TimerStream) -> Result<(), CallFailure> {
        self.0.enqueue(stream).map_err(|error| CallFailure { code: 1, message: error.to_string() })
    }
}

impl CudaCases {
    /// The operators on an open device.
    ///
    /// # Panics
    /// Never: the id follows its grammar.
    #[must_use]
    pub fn new(opened: OpenedCuda) -> Self {
        Self {
            cases: BTreeMap::new(),
            opened,
            provider: ProviderId::new("cuda").expect("a valid id"),
            slowdown: 0.0,
            kernels: BTreeSet::new(),
            broken: None,
        }
    }

    /// The same operators under another id, and slower by a fraction: a twin for calibrating comparisons.
    #[must_use]
    pub fn twin(self, provider: ProviderId, slowdown: f64) -> Self {
        Self { provider, slowdown, ..self }
    }

    fn bind(&self, prepare: &Prepare) -> Result<Case, Decline> {
        let images = Images::open(&self.opened, prepare)?;
        let plan = to_plan(prepare, &images.regions(prepare))?;
        plan.validate().map_err(|error| refused(&error))?;
        images.refuse(prepare)?;
        let prepared = self.opened.runtime.prepare(&plan).map_err(|error| declined(&error))?;
        let prepared = Rc::new(prepared);
        let call = Rc::new(Bound::new(&prepared, &plan, ())?);
        let prepare = prepare.clone();
        Ok(Case { prepare, plan, prepared, timed: None, graph: None, call, images })
    }

    fn run(&mut self, name: &str, mode: Mode) -> Result<Reply, Decline> {
        let Some(case) = self.cases.get_mut(name) else { return Ok(unknown_case(name)) };
        case.images.load()?;
        let stream = self.opened.stream.handle();
        let ran = match mode {
            Mode::Checked => case.call.check(stream),
            Mode::Unchecked => {
                case.call.launch(stream).and_then(|()| self.opened.stream.synchronize())
            }
        };
        ran.map_err(|error| declined(&error))?;
        case.images.store()?;
        Ok(Reply::Checked { case: name.to_owned() })
    }

    fn captured(&mut self, name: &str) -> Result<Reply, Decline> {
        let Some(case) = self.cases.get_mut(name) else { return Ok(unknown_case(name)) };
        case.graph = None;
        let options = Options::new(Launch::Graph);
        let work = OneCall(Rc::clone(&case.call));
        let mut device =
            CudaDevice::new(&self.opened.cuda, work, options).map_err(|error| driver(&error))?;
        if let Some(invalid) = device.prepare(ONE_CALL).map_err(|error| driver(&error))? {
            return Err(Decline::Failed(invalid.to_string()));
        }
        let Some(witness) = device.witness() else {
            return Err(Decline::Failed("the capture left no graph".to_owned()));
        };
        let nodes = witness.nodes.values().sum();
        let kernels = witness.kernels.clone();
        self.kernels.extend(kernels.iter().cloned());
        case.graph = Some(device);
        Ok(Reply::Captured { case: name.to_owned(), nodes, kernels })
    }

    fn replayed(&mut self, name: &str) -> Result<Reply, Decline> {
        let Some(case) = self.cases.get_mut(name) else { return Ok(unknown_case(name)) };
        let Some(device) = case.graph.as_mut() else {
            return Err(Decline::Failed("a replay was asked for before a capture".to_owned()));
        };
        case.images.load()?;
        // Memory comes and goes between capture and replay, as in a program.
        for bytes in CHURN {
            let mut piece = Arena::new(&self.opened.cuda).cut(bytes, 0).map_err(|e| driver(&e))?;
            piece.fill(0x5a, device.stream()).map_err(|error| driver(&error))?;
            device.sync().map_err(|error| driver(&error))?;
        }
        device.run_calls(ONE_CALL).map_err(|error| driver(&error))?;
        device.sync().map_err(|error| driver(&error))?;
        case.images.store()?;
        Ok(Reply::Replayed { case: name.to_owned() })
    }

    /// The reply, or the decline as one; a failure of the driver that stays ends the process.
    fn reply(&mut self, name: &str, reply: Result<Reply, Decline>) -> Reply {
        match reply {
            Ok(reply) => reply,
            Err(decline) => {
                if let Decline::Failed(detail) = &decline
                    && self.is_lost()
                {
                    self.broken = Some(detail.clone());
                }
                decline.into_reply(name)
            }
        }
    }

    /// Whether the context is beyond use: a wait fails, though nothing was asked of it.
    fn is_lost(&self) -> bool {
        self.opened.stream.synchronize().is_err()
    }

    fn measured_ceilings(&self) -> Result<Reply, Decline> {
        let ceilings = Ceilings::measure(&self.opened.cuda).map_err(|error| driver(&error))?;
        let cold = CacheControl::measure(&self.opened.cuda).map_err(|error| driver(&error))?;
        let named = [
            ("read_bytes_per_s", ceilings.read_bytes_per_s),
            ("write_bytes_per_s", ceilings.write_bytes_per_s),
            ("copy_bytes_per_s", ceilings.copy_bytes_per_s),
            ("empty_node_ns", ceilings.empty_node_ns),
            ("empty_pair_ns", ceilings.empty_pair_ns),
            ("cold_over_hot", cold.ratio()),
        ];
        let measured = named.map(|(name, value)| (name.to_owned(), value)).into();
        Ok(Reply::Ceilings { measured })
    }
}

impl Cases for CudaCases {
    fn describe(&self) -> Description {
        let known = proofhouse_contract::catalog().iter().filter(|s| OPERATORS.contains(&s.name));
        let operators = known.filter_map(|spec| {
            let dtypes = spec.dtypes.iter().map(|dtype| from_dtype(*dtype)).collect();
            Some((OperatorName::new(spec.name).ok()?, dtypes))
        });
        let device = self.opened.runtime.device();
        let packages = [
            ("nvrtc".to_owned(), self.opened.runtime.compiler().to_owned()),
            ("cuda-driver".to_owned(), device.driver_cuda.clone()),
        ];
        Description {
            provider: self.provider.clone(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            packages: packages.into(),
            operators: operators.collect(),
            capabilities: Capabilities {
                measure: true,
                refusals: true,
                strided: true,
                checker: false,
                refresh: true,
                graph: true,
            },
            device: Some(OpenedDevice {
                kind: DeviceKind::Cuda,
                uuid: device.uuid.clone(),
                name: device.name.clone(),
            }),
        }
    }

    fn prepare(&mut self, prepare: &Prepare) -> Reply {
        self.cases.remove(&prepare.case);
        let bound = self.bind(prepare).map(|case| {
            self.cases.insert(prepare.case.clone(), case);
            Reply::Prepared { case: prepare.case.clone() }
        });
        self.reply(&prepare.case, bound)
    }

    fn check(&mut self, name: &str, mode: Mode) -> Reply {
        let ran = self.run(name, mode);
        self.reply(name, ran)
    }

    fn measure(&mut self, request: &Measure) -> Reply {
        let (opened, planted) = (&self.opened, self.slowdown);
        let measured = match self.cases.get_mut(&request.case) {
            None => Ok(unknown_case(&request.case)),
            Some(Case { prepare, plan, prepared, timed, images, .. }) => {
                let fresh = || Sets::new(opened, prepare, plan, prepared, images);
                measure(opened, timed, images, request, planted, fresh).map(Reply::Measured)
            }
        };
        if let Ok(Reply::Measured(measured)) = &measured {
            self.kernels.extend(measured.kernels.iter().cloned());
        }
        self.reply(&request.case, measured)
    }

    fn capture(&mut self, name: &str) -> Reply {
        let captured = self.captured(name);
        self.reply(name, captured)
    }

    fn replay(&mut self, name: &str) -> Reply {
        let replayed = self.replayed(name);
        self.reply(name, replayed)
    }

    fn ceilings(&mut self) -> Reply {
        let measured = self.measured_ceilings();
        self.reply("ceilings", measured)
    }

    fn forget(&mut self, name: &str) -> bool {
        self.cases.remove(name).is_some()
    }

    fn broken(&self) -> Option<String> {
        self.broken.clone()
    }

    fn dispatch(&self) -> String {
        self.opened.runtime.device().arch.to_string()
    }

    fn kernels(&self) -> Vec<String> {
        self.kernels.iter().cloned().collect()
    }
}

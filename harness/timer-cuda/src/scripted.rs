//! A driver made of numbers, for tests: its clock is counted, and it breaks at any call that one likes.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::CStr;
use std::rc::Rc;

use proofhouse_timer::host::CallFailure;
use proofhouse_timer::{DeviceError, LoadedCode};

use crate::driver::{Driven, Driver, DriverError, Kernel, Node};
use crate::handle::{Event, Function, Graph, GraphExec, Stream};
use crate::work::CudaWork;

/// The kind of a node that allocates.
const ALLOCATION: &str = "memory-allocation";
/// What every call costs the host, in nanoseconds.
const CALL_NS: f64 = 100.0;
/// What a kernel takes that does not say how long, in nanoseconds.
pub(crate) const KERNEL_NS: f64 = 20_000.0;
/// The kernel of the work that is timed; the timer's own have lower numbers.
const WORK: usize = 99;
/// The timer's kernels that spin, and that count a clock.
const SPIN: usize = 2;
const SM_CLOCK: usize = 3;

/// What goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// One call fails, and the next ones do not.
    Error,
    /// An illegal address: this call fails, and everything after it.
    Sticky,
    /// The time between two events is this.
    Elapsed(Elapsed),
    /// Every wait for the whole device takes a second longer from there on.
    LateWait,
    /// Code was loaded.
    LoadsCode,
    /// The clock of a multiprocessor stands.
    StoppedClock,
    /// Graphs hold no node.
    NoNodes,
    /// Graphs hold other kernels than before.
    OtherNodes,
    /// Graphs hold allocations, so that they can be instantiated once only.
    Allocations,
}

/// Times that are none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Elapsed {
    Nan,
    Infinite,
    Negative,
    Zero,
    LongerThanWall,
}

#[derive(Debug, Default)]
struct State {
    now_ns: f64,
    /// When the work on the timed stream, and on any other, ends.
    busy_ns: f64,
    elsewhere_ns: f64,
    calls: usize,
    fault: Option<(usize, Fault)>,
    hit: bool,
    sticky: bool,
    made: usize,
    events: BTreeMap<usize, f64>,
    capturing: Option<Vec<Node>>,
    graphs: BTreeMap<usize, Vec<Node>>,
    execs: BTreeMap<usize, f64>,
    /// Graphs of which there is an instance.
    instantiated: BTreeSet<usize>,
    code: u64,
}

/// The driver; a clone is another handle of it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Scripted(Rc<RefCell<State>>);

impl Scripted {
    /// Breaks the call that comes after `after` others, of those that the fault can break.
    pub(crate) fn break_at(&self, after: usize, fault: Fault) {
        let mut state = self.0.borrow_mut();
        let at = state.calls + after;
        state.fault = Some((at, fault));
        state.hit = false;
    }

    /// Whether the fault was reached.
    pub(crate) fn was_hit(&self) -> bool {
        self.0.borrow().hit
    }

    /// Calls so far.
    pub(crate) fn calls(&self) -> usize {
        self.0.borrow().calls
    }

    /// Work on a stream that is not the timed one.
    pub(crate) fn run_elsewhere(&self, ns: f64) {
        let mut state = self.0.borrow_mut();
        state.elsewhere_ns = state.elsewhere_ns.max(state.now_ns) + ns;
    }

    /// One call; gives a fault that is no error and is due, where it is one of those that this call can have.
    fn call(&self, name: &'static str, can: fn(Fault) -> bool) -> Driven<Option<Fault>> {
        let mut state = self.0.borrow_mut();
        state.calls += 1;
        state.now_ns += CALL_NS;
        if state.sticky {
            return Err(illegal(name));
        }
        let Some((at, fault)) = state.fault else { return Ok(None) };
        let every = matches!(
            fault,
            Fault::NoNodes | Fault::OtherNodes | Fault::Allocations | Fault::LateWait
        );
        if state.calls <= at || (state.hit && !every) {
            return Ok(None);
        }
        match fault {
            Fault::Error => {
                state.hit = true;
                Err(DriverError {
                    code: 999,
                    name: "CUDA_ERROR_UNKNOWN".to_owned(),
                    ..illegal(name)
                })
            }
            Fault::Sticky => {
                (state.hit, state.sticky) = (true, true);
                Err(illegal(name))
            }
            fault if can(fault) => {
                state.hit = true;
                Ok(Some(fault))
            }
            _ => Ok(None),
        }
    }

    fn plain(&self, name: &'static str) -> Driven<()> {
        self.call(name, |_| false).map(|_| ())
    }

    /// A call that ends something. Its failure has no one to tell, so that only what was broken before breaks it.
    fn end(&self, name: &'static str) -> Driven<()> {
        if self.0.borrow().sticky { Err(illegal(name)) } else { Ok(()) }
    }

    fn make(&self, name: &'static str) -> Driven<usize> {
        self.plain(name)?;
        let mut state = self.0.borrow_mut();
        state.made += 1;
        Ok(state.made)
    }

    fn enqueue(&self, ns: f64) {
        let mut state = self.0.borrow_mut();
        state.busy_ns = state.busy_ns.max(state.now_ns) + ns;
    }
}

fn illegal(call: &'static str) -> DriverError {
    let name = "CUDA_ERROR_ILLEGAL_ADDRESS".to_owned();
    DriverError { call, code: 700, name, text: String::new() }
}

impl Driver for Scripted {
    fn stream_create(&self) -> Driven<Stream> {
        self.make("stream_create").map(Stream::new)
    }

    fn stream_destroy(&self, _stream: Stream) -> Driven<()> {
        self.end("stream_destroy")
    }

    fn event_create(&self) -> Driven<Event> {
        self.make("event_create").map(Event::new)
    }

    fn event_destroy(&self, _event: Event) -> Driven<()> {
        self.end("event_destroy")
    }

    fn event_record(&self, event: Event, _stream: Stream) -> Driven<()> {
        self.plain("event_record")?;
        let mut state = self.0.borrow_mut();
        let reached = state.busy_ns.max(state.now_ns);
        state.events.insert(event.raw(), reached);
        Ok(())
    }

    fn event_reached(&self, event: Event) -> Driven<bool> {
        self.plain("event_reached")?;
        let state = self.0.borrow();
        Ok(state.events[&event.raw()] <= state.now_ns)
    }

    fn event_wait(&self, event: Event) -> Driven<()> {
        self.plain("event_wait")?;
        let mut state = self.0.borrow_mut();
        state.now_ns = state.now_ns.max(state.events[&event.raw()]);
        Ok(())
    }

    fn event_elapsed_ms(&self, from: Event, to: Event) -> Driven<f32> {
        let fault = self.call("event_elapsed_ms", |f| matches!(f, Fault::Elapsed(_)))?;
        let state = self.0.borrow();
        let ns = match fault {
            Some(Fault::Elapsed(Elapsed::Nan)) => f64::NAN,
            Some(Fault::Elapsed(Elapsed::Infinite)) => f64::INFINITY,
            Some(Fault::Elapsed(Elapsed::Negative)) => -1e6,
            Some(Fault::Elapsed(Elapsed::Zero)) => 0.0,
            Some(Fault::Elapsed(Elapsed::LongerThanWall)) => 1e12,
            _ => state.events[&to.raw()] - state.events[&from.raw()],
        };
        Ok((ns / 1e6) as f32)
    }

    fn device_wait(&self) -> Driven<()> {
        let late = self.call("device_wait", |fault| fault == Fault::LateWait)?;
        let mut state = self.0.borrow_mut();
        state.now_ns = state.now_ns.max(state.busy_ns).max(state.elsewhere_ns);
        state.now_ns += if late.is_some() { 1e9 } else { 0.0 };
        Ok(())
    }

    fn capture_begin(&self, _stream: Stream) -> Driven<()> {
        self.plain("capture_begin")?;
        self.0.borrow_mut().capturing = Some(Vec::new());
        Ok(())
    }

    fn capture_end(&self, _stream: Stream) -> Driven<Graph> {
        let mut nodes = self.0.borrow_mut().capturing.take().unwrap_or_default();
        let can = |fault| matches!(fault, Fault::NoNodes | Fault::Allocations);
        match self.call("capture_end", can)? {
            Some(Fault::NoNodes) => nodes.clear(),
            Some(_) => nodes.push(Node { kind: ALLOCATION, kernel: None }),
            None => {}
        }
        let made = self.make("capture_end")?;
        self.0.borrow_mut().graphs.insert(made, nodes);
        Ok(Graph::new(made))
    }

    fn graph_nodes(&self, graph: Graph) -> Driven<Vec<Node>> {
        let renamed = self.call("graph_nodes", |fault| fault == Fault::OtherNodes)?;
        let mut nodes = self.0.borrow().graphs[&graph.raw()].clone();
        if renamed.is_some() {
            rename(&mut nodes);
        }
        Ok(nodes)
    }

    fn graph_instantiate(&self, graph: Graph) -> Driven<GraphExec> {
        let made = self.make("graph_instantiate")?;
        let mut state = self.0.borrow_mut();
        if state.graphs[&graph.raw()].is_empty() {
            let name = "CUDA_ERROR_INVALID_VALUE".to_owned();
            return Err(DriverError { code: 1, name, ..illegal("graph_instantiate") });
        }
        let nodes = &state.graphs[&graph.raw()];
        let allocates = nodes.iter().any(|node| node.kind == ALLOCATION);
        let kernels = nodes.iter().filter(|node| node.kind != ALLOCATION).count();
        let ns = KERNEL_NS * kernels as f64;
        if !state.instantiated.insert(graph.raw()) && allocates {
            let name = "CUDA_ERROR_NOT_SUPPORTED".to_owned();
            return Err(DriverError { code: 801, name, ..illegal("graph_instantiate") });
        }
        state.execs.insert(made, ns);
        Ok(GraphExec::new(made))
    }

    fn graph_destroy(&self, _graph: Graph) -> Driven<()> {
        self.plain("graph_destroy")
    }

    fn exec_upload(&self, _exec: GraphExec, _stream: Stream) -> Driven<()> {
        self.plain("exec_upload")
    }

    fn exec_launch(&self, exec: GraphExec, _stream: Stream) -> Driven<()> {
        self.plain("exec_launch")?;
        let ns = self.0.borrow().execs[&exec.raw()];
        self.enqueue(ns);
        Ok(())
    }

    fn exec_destroy(&self, _exec: GraphExec) -> Driven<()> {
        self.end("exec_destroy")
    }

    fn allocate(&self, _bytes: u64) -> Driven<u64> {
        self.make("allocate").map(|made| made as u64 * 256)
    }

    fn free(&self, _address: u64) -> Driven<()> {
        self.end("free")
    }

    fn free_bytes(&self) -> Driven<u64> {
        self.plain("free_bytes").map(|()| 1 << 30)
    }

    fn upload(&self, _to: u64, _bytes: &[u8]) -> Driven<()> {
        self.plain("upload")
    }

    /// What the kernel that counts a clock left: cycles, nanoseconds, a step.
    fn download(&self, _from: u64, bytes: &mut [u8]) -> Driven<()> {
        let stopped = self.call("download", |fault| fault == Fault::StoppedClock)?;
        let cycles: u64 = if stopped.is_some() { 0 } else { 39_600 };
        for (word, value) in bytes.chunks_exact_mut(8).zip([cycles, 20_000, 32]) {
            word.copy_from_slice(&value.to_le_bytes());
        }
        Ok(())
    }

    fn copy(&self, _to: u64, _from: u64, _bytes: u64, _stream: Stream) -> Driven<()> {
        self.plain("copy")?;
        self.enqueue(KERNEL_NS);
        Ok(())
    }

    fn fill(&self, _to: u64, _byte: u8, _bytes: u64, _stream: Stream) -> Driven<()> {
        self.plain("fill")?;
        self.enqueue(KERNEL_NS);
        Ok(())
    }

    fn reset_persisting_cache(&self) -> Driven<()> {
        self.plain("reset_persisting_cache")
    }

    fn load(&self, _ptx: &'static CStr, names: &[&CStr]) -> Driven<Vec<Function>> {
        self.plain("load")?;
        Ok((1..=names.len()).map(Function::new).collect())
    }

    fn launch(
        &self,
        kernel: Function,
        _blocks: u32,
        _threads: u32,
        parameters: &[u64],
        _stream: Stream,
    ) -> Driven<()> {
        self.plain("launch")?;
        if let Some(nodes) = &mut self.0.borrow_mut().capturing {
            let name = format!("kernel_{}", kernel.raw());
            let kernel = Kernel { name, grid: [8, 1, 1], block: [256, 1, 1] };
            nodes.push(Node { kind: "kernel", kernel: Some(kernel) });
            return Ok(());
        }
        self.enqueue(match kernel.raw() {
            SPIN => parameters[0] as f64 + 500.0,
            SM_CLOCK => parameters[1] as f64,
            _ => KERNEL_NS,
        });
        Ok(())
    }

    fn loaded_code(&self) -> Result<LoadedCode, DeviceError> {
        let loads = self
            .call("loaded_code", |fault| fault == Fault::LoadsCode)
            .map_err(|error| error.in_call(proofhouse_timer::DeviceCall::LoadedCode))?;
        let mut state = self.0.borrow_mut();
        state.code += u64::from(loads.is_some());
        Ok(LoadedCode { count: state.code, fingerprint: state.code })
    }

    fn host_now_ns(&self) -> Result<u64, DeviceError> {
        self.plain("host_now_ns")
            .map_err(|error| error.in_call(proofhouse_timer::DeviceCall::HostNow))?;
        // Positive and far below 2^53.
        Ok(self.0.borrow().now_ns as u64)
    }
}

fn rename(nodes: &mut [Node]) {
    for kernel in nodes.iter_mut().filter_map(|node| node.kernel.as_mut()) {
        kernel.name.push_str("_anew");
    }
}

/// A call that is one kernel, and what else it does on a stream of its own.
#[derive(Debug)]
pub(crate) struct OneKernel {
    pub(crate) driver: Scripted,
    pub(crate) elsewhere_ns: f64,
}

impl CudaWork for OneKernel {
    fn enqueue(&mut self, _set: u32, stream: Stream) -> Result<(), CallFailure> {
        if self.elsewhere_ns > 0.0 {
            self.driver.run_elsewhere(self.elsewhere_ns);
        }
        let launched = self.driver.launch(Function::new(WORK), 8, 256, &[], stream);
        launched.map_err(|error| CallFailure { code: error.code, message: error.to_string() })
    }

    fn restore(&mut self, set: u32, stream: Stream) -> Result<(), CallFailure> {
        self.enqueue(set, stream)
    }
}

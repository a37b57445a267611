//! Captured graphs: each rotation is captured once, witnessed, uploaded, and replayed.

use std::cell::Cell;

use proofhouse_timer::host::CallFailure;
use proofhouse_timer::{DeviceCall, DeviceError, Invalid, Rotation};

use crate::driver::{Driven, Driver};
use crate::handle::{Graph, GraphExec, Stream};
use crate::witness::Witness;
use crate::work::{CudaWork, sets_of};

/// The most graphs that are kept; a plan of [`crate::device_plan`] needs one.
const MOST_GRAPHS: usize = 64;

/// A graph that is ready to be launched, instantiated several times; it is ended when it is dropped.
#[derive(Debug)]
struct Replay<D: Driver> {
    driver: D,
    execs: Vec<GraphExec>,
    /// Launches so far.
    launches: Cell<usize>,
}

impl<D: Driver> Replay<D> {
    /// Instantiates a graph so often and uploads it.
    fn new(driver: &D, stream: Stream, graph: Graph, times: usize) -> Driven<Self> {
        let mut replay = Self {
            driver: driver.clone(),
            execs: Vec::with_capacity(times),
            launches: Cell::new(0),
        };
        for _ in 0..times {
            replay.execs.push(driver.graph_instantiate(graph)?);
        }
        replay.execs.iter().try_for_each(|exec| driver.exec_upload(*exec, stream))?;
        Ok(replay)
    }

    /// Enqueues one of the instances, each in its turn.
    fn launch(&self, stream: Stream) -> Driven<()> {
        let launches = self.launches.replace(self.launches.get().wrapping_add(1));
        self.driver.exec_launch(self.execs[launches % self.execs.len()], stream)
    }
}

impl<D: Driver> Drop for Replay<D> {
    fn drop(&mut self) {
        for exec in self.execs.drain(..) {
            // A failure here has no one to tell; the context ends what is left.
            let _ = self.driver.exec_destroy(exec);
        }
    }
}

/// The graphs of a measurement.
#[derive(Debug)]
pub(crate) struct Graphs<D: Driver> {
    driver: D,
    stream: Stream,
    instances: usize,
    calls: Vec<(Rotation, Replay<D>)>,
    restore: Option<(u32, Replay<D>)>,
    witness: Option<Witness>,
}

impl<D: Driver> Graphs<D> {
    /// No graphs; each that comes is instantiated `instances` times.
    pub(crate) fn new(driver: &D, stream: Stream, instances: u32) -> Self {
        let driver = driver.clone();
        let instances = instances.max(1) as usize;
        Self { driver, stream, instances, calls: Vec::new(), restore: None, witness: None }
    }

    /// What the first graph of the calls holds.
    pub(crate) fn witness(&self) -> Option<&Witness> {
        self.witness.as_ref()
    }

    /// Forgets every graph and what they held.
    pub(crate) fn clear(&mut self) {
        self.calls.clear();
        self.restore = None;
        self.witness = None;
    }

    /// Captures the rotation where that is not done yet; gives why it is not what is to be timed.
    pub(crate) fn prepare(
        &mut self,
        rotation: Rotation,
        work: &mut dyn CudaWork,
    ) -> Result<Option<Invalid>, DeviceError> {
        if self.find(rotation).is_some() {
            return Ok(None);
        }
        if self.calls.len() == MOST_GRAPHS {
            self.calls.clear();
        }
        let given =
            work.capture(rotation, self.stream).map_err(|failure| refused(failure, None))?;
        let graph = match given {
            Some(graph) => graph,
            None => self.capture(DeviceCall::Prepare, |stream| {
                sets_of(rotation).try_for_each(|set| {
                    work.enqueue(set, stream).map_err(|failure| refused(failure, Some(set)))
                })
            })?,
        };
        let made = self.replay_of(graph, rotation.calls);
        if given.is_none() {
            self.driver.graph_destroy(graph).map_err(|e| e.in_call(DeviceCall::Prepare))?;
        }
        match made? {
            Ok((replay, witness)) => {
                self.calls.push((rotation, replay));
                self.witness.get_or_insert(witness);
                Ok(None)
            }
            Err(fault) => Ok(Some(fault)),
        }
    }

    /// Enqueues a replay of a rotation that was prepared.
    pub(crate) fn launch(&self, rotation: Rotation) -> Result<(), DeviceError> {
        let Some(replay) = self.find(rotation) else {
            return Err(DeviceError::new(DeviceCall::Call, "the rotation was not prepared"));
        };
        replay.launch(self.stream).map_err(|error| error.in_call(DeviceCall::Call))
    }

    /// Enqueues a replay of what restores the sets below `sets`.
    pub(crate) fn restore(
        &mut self,
        sets: u32,
        work: &mut dyn CudaWork,
    ) -> Result<(), DeviceError> {
        if self.restore.as_ref().is_none_or(|(captured, _)| *captured != sets) {
            let graph = self.capture(DeviceCall::Restore, |stream| {
                (0..sets).try_for_each(|set| {
                    let restored = work.restore(set, stream);
                    restored.map_err(|failure| failure_in(DeviceCall::Restore, failure).on_set(set))
                })
            })?;
            let replay = Replay::new(&self.driver, self.stream, graph, 1);
            let destroyed = self.driver.graph_destroy(graph);
            let replay = replay.map_err(|error| error.in_call(DeviceCall::Restore))?;
            self.restore = Some((sets, replay));
            destroyed.map_err(|error| error.in_call(DeviceCall::Restore))?;
        }
        let Some((_, replay)) = &self.restore else { return Ok(()) };
        replay.launch(self.stream).map_err(|error| error.in_call(DeviceCall::Restore))
    }

    fn find(&self, rotation: Rotation) -> Option<&Replay<D>> {
        self.calls.iter().find(|(known, _)| *known == rotation).map(|(_, replay)| replay)
    }

    /// Captures what `enqueue` enqueues; a capture that failed is ended, too.
    fn capture(
        &self,
        call: DeviceCall,
        mut enqueue: impl FnMut(Stream) -> Result<(), DeviceError>,
    ) -> Result<Graph, DeviceError> {
        self.driver.capture_begin(self.stream).map_err(|error| error.in_call(call))?;
        let enqueued = enqueue(self.stream);
        let ended = self.driver.capture_end(self.stream).map_err(|error| error.in_call(call));
        match (enqueued, ended) {
            (Ok(()), ended) => ended,
            (Err(error), Err(_)) => Err(error),
            (Err(error), Ok(graph)) => {
                // What the work said comes first; the graph is of no use.
                let _ = self.driver.graph_destroy(graph);
                Err(error)
            }
        }
    }

    /// A graph made ready, or why it is not what is to be timed: then nothing is made of it, for it may not even be one
    /// that can be launched.
    fn replay_of(
        &self,
        graph: Graph,
        calls: u32,
    ) -> Result<Result<(Replay<D>, Witness), Invalid>, DeviceError> {
        let failed = |error: crate::driver::DriverError| error.in_call(DeviceCall::Prepare);
        let witness = Witness::of(&self.driver.graph_nodes(graph).map_err(failed)?, calls);
        if let Some(fault) = witness.fault(self.witness.as_ref()) {
            return Ok(Err(fault));
        }
        let times = if witness.allocates() { 1 } else { self.instances };
        let replay = Replay::new(&self.driver, self.stream, graph, times).map_err(failed)?;
        Ok(Ok((replay, witness)))
    }
}

fn refused(failure: CallFailure, set: Option<u32>) -> DeviceError {
    let error = failure_in(DeviceCall::Prepare, failure);
    match set {
        Some(set) => error.on_set(set),
        None => error,
    }
}

/// A work's failure as one of the timer's device calls.
pub(crate) fn failure_in(call: DeviceCall, failure: CallFailure) -> DeviceError {
    DeviceError::new(call, failure.message).with_code(failure.code)
}

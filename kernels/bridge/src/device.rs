//! An open device: what it has prepared, and what was counted on it.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, PoisonError};

use proofhouse_contract::{Call, Layout};
use proofhouse_cuda::{CudaError, DeviceInfo, DeviceTensor, Stream, plan_of_operands};

use crate::backend::{Backend, Ready};
use crate::cache::{Cache, Key, Put};
use crate::counters::{Counters, Event};
use crate::descriptor::{self, Asked};
use crate::failure::Failure;
use crate::ffi::ForeignTensor;
use crate::layout::CountersC;
use crate::status::Status;

/// Operators that are kept prepared where the caller does not say how many.
pub const DEFAULT_CACHED: u32 = 256;
/// The most that a caller may ask for.
pub const MOST_CACHED: u32 = 4096;

/// A device behind the interface.
pub(crate) struct Device {
    backend: Box<dyn Backend>,
    counters: Counters,
    cache: Mutex<Cache>,
}

impl fmt::Debug for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Device").field("info", self.backend.info()).finish_non_exhaustive()
    }
}

/// A prepared operator behind the interface.
pub(crate) struct Operator {
    device: Arc<Device>,
    ready: Arc<dyn Ready>,
}

impl fmt::Debug for Operator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Operator").field("call", self.ready.call()).finish_non_exhaustive()
    }
}

/// Refuses a number of operators to keep that is too large; 0 is the default.
pub(crate) fn most_cached(wanted: u32) -> Result<u32, Failure> {
    match wanted {
        0 => Ok(DEFAULT_CACHED),
        1..=MOST_CACHED => Ok(wanted),
        _ => {
            let accepted = format_args!("at most {MOST_CACHED}, or 0 for {DEFAULT_CACHED}");
            Err(Failure::new(Status::OutOfRange, "most_cached", wanted, accepted))
        }
    }
}

impl Device {
    pub(crate) fn new(backend: Box<dyn Backend>, most_cached: u32) -> Self {
        let cache = Mutex::new(Cache::new(most_cached as usize));
        Self { backend, counters: Counters::new(), cache }
    }

    pub(crate) fn info(&self) -> &DeviceInfo {
        self.backend.info()
    }

    /// What was counted of an operator, or of all calls.
    pub(crate) fn counted(&self, operator: Option<&str>) -> Result<CountersC, Failure> {
        let Some(operator) = operator else { return Ok(self.counters.read(None)) };
        let known = proofhouse_contract::find_operator(operator)?;
        Ok(self.counters.read(Counters::place(known.name)))
    }

    pub(crate) fn reset_counters(&self) {
        self.counters.reset();
    }

    /// Runs one call of the interface for an operator and counts how it ended.
    fn counting<T>(
        &self,
        operator: &str,
        body: impl FnOnce() -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        // What is shared, counters and cache, is changed in single steps.
        let ended = catch_unwind(AssertUnwindSafe(body))
            .unwrap_or_else(|payload| Err(Failure::panicked(&*payload)))
            .map_err(|failure| failure.of(operator));
        if let Err(failure) = &ended {
            let refused = failure.status.is_refusal();
            let event = if refused { Event::Refusal } else { Event::Failure };
            self.counters.count(&failure.operator, event);
        }
        ended
    }

    /// Prepares a call for a handle; without tensors, for contiguous ones at aligned addresses.
    pub(crate) fn prepare(
        self: &Arc<Self>,
        asked: Result<Asked, Failure>,
    ) -> Result<Operator, Failure> {
        let (operator, asked) = named(asked);
        self.counting(&operator, || {
            let asked = asked?;
            let call = asked.call()?;
            let ready = if asked.tensors.is_empty() {
                let plan = call.plan(Layout::Contiguous)?;
                self.backend.prepare(&plan)?
            } else {
                self.make_ready(&call, &descriptor::operands(&call, &asked.tensors)?)?
            };
            self.counters.count(&operator, Event::Preparation);
            Ok(Operator { device: Arc::clone(self), ready })
        })
    }

    fn make_ready(
        &self,
        call: &Call,
        operands: &[DeviceTensor<'_>],
    ) -> Result<Arc<dyn Ready>, Failure> {
        let plan = plan_of_operands(call, operands)?;
        plan.validate()?;
        Ok(self.backend.prepare(&plan)?)
    }

    /// Launches a call with the operator that is kept for it, which is prepared where there is none.
    pub(crate) fn enqueue(
        &self,
        asked: Result<Asked, Failure>,
        stream: Stream,
    ) -> Result<(), Failure> {
        let (operator, asked) = named(asked);
        self.counting(&operator, || {
            let asked = asked?;
            let call = asked.call()?;
            let operands = descriptor::operands(&call, &asked.tensors)?;
            let ready = if self.backend.is_capturing(stream)? {
                self.kept_for_graph(&call, stream)?
            } else {
                self.kept(&call, &operands, stream)?
            };
            self.launched(&*ready, ready.enqueue(&operands, stream))
        })
    }

    fn cache(&self) -> std::sync::MutexGuard<'_, Cache> {
        // Who panicked while holding the lock left a whole cache behind.
        self.cache.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn kept_for_graph(&self, call: &Call, stream: Stream) -> Result<Arc<dyn Ready>, Failure> {
        let found = self.cache().find_for_graph(&Key::new(call, stream.raw(), false));
        let ready = found.ok_or_else(|| {
            Failure::new(
                Status::NotPrepared,
                "stream",
                "being captured, and nothing can be prepared meanwhile",
                "a call that was made in this stream before, or one that proofhouse_operator_prepare prepared",
            )
        })?;
        self.counters.count(call.operator.name, Event::CacheHit);
        Ok(ready)
    }

    fn kept(
        &self,
        call: &Call,
        operands: &[DeviceTensor<'_>],
        stream: Stream,
    ) -> Result<Arc<dyn Ready>, Failure> {
        let (operator, key) = (call.operator.name, Key::new(call, stream.raw(), false));
        let (found, full) = {
            let mut cache = self.cache();
            (cache.find(&key), cache.is_full_of_graphs())
        };
        if let Some(ready) = found {
            self.counters.count(operator, Event::CacheHit);
            return Ok(ready);
        }
        if full {
            return Err(cache_full());
        }
        // Other calls go on while this one compiles.
        let ready = self.make_ready(call, operands)?;
        self.counters.count(operator, Event::Preparation);
        let put = self.cache().put(key, ready);
        match put {
            Put::Kept(ready, left) => {
                if let Some(left) = left {
                    self.counters.count(left.call().operator.name, Event::Eviction);
                }
                Ok(ready)
            }
            Put::Full => Err(cache_full()),
        }
    }

    /// Forgets all operators that are kept, also those that graphs were captured with.
    pub(crate) fn clear_cache(&self) {
        let left = self.cache().clear();
        // Only now, outside the lock: freeing memory waits for the device.
        drop(left);
    }

    /// Counts a launch that was tried.
    fn launched(&self, ready: &dyn Ready, tried: Result<(), CudaError>) -> Result<(), Failure> {
        let tried = tried.map_err(Failure::from);
        // A bad value in memory is found by a launch.
        let ran = tried.as_ref().map_or_else(|failure| failure.row.is_some(), |()| true);
        if ran {
            for _ in ready.kernels() {
                self.counters.count(ready.call().operator.name, Event::Launch);
            }
        }
        tried
    }
}

fn cache_full() -> Failure {
    let found = "as many as graphs were captured with";
    let accepted = "a larger most_cached, or proofhouse_cache_clear once those graphs are gone";
    Failure::new(Status::CacheFull, "most_cached", found, accepted)
}

impl Operator {
    /// The kernels of one launch, in order.
    pub(crate) fn kernels(&self) -> &[String] {
        self.ready.kernels()
    }

    /// Launches with these tensors; `checks` also waits and reports the first bad value in memory.
    pub(crate) fn launch(
        &self,
        tensors: Result<Vec<ForeignTensor>, Failure>,
        stream: Stream,
        checks: bool,
    ) -> Result<(), Failure> {
        let call = self.ready.call();
        self.device.counting(call.operator.name, || {
            let operands = descriptor::operands(call, &tensors?)?;
            let tried = if checks {
                self.ready.check(&operands, stream)
            } else {
                self.ready.enqueue(&operands, stream)
            };
            self.device.launched(&*self.ready, tried)
        })
    }
}

/// The operator that a call names, or whose call could not be read, beside the call.
fn named(asked: Result<Asked, Failure>) -> (String, Result<Asked, Failure>) {
    let operator = match &asked {
        Ok(asked) => asked.operator.clone(),
        Err(failure) => failure.operator.clone(),
    };
    (operator, asked)
}

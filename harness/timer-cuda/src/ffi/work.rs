//! The calls of a foreign language.

use std::ffi::c_void;

use proofhouse_timer::Rotation;
use proofhouse_timer::ffi::Callback;
use proofhouse_timer::ffi::boundary::done;
use proofhouse_timer::host::CallFailure;

use super::layout::{Capture, SetupC};
use crate::handle::{Graph, Stream};
use crate::work::CudaWork;

/// Callbacks with their context.
#[derive(Debug)]
pub(super) struct ForeignWork {
    enqueue: Callback,
    restore: Option<Callback>,
    capture: Option<Capture>,
    context: *mut c_void,
}

impl ForeignWork {
    /// The callbacks of a setup.
    ///
    /// # Safety
    /// They may be called with the context, on this thread, as long as this lives, and a graph
    /// that is given lives as long.
    pub(super) unsafe fn new(setup: &SetupC) -> Result<Self, String> {
        let enqueue = setup.enqueue.ok_or("`enqueue` is null")?;
        let SetupC { restore, capture, context, .. } = *setup;
        Ok(Self { enqueue, restore, capture, context })
    }
}

impl CudaWork for ForeignWork {
    fn enqueue(&mut self, set: u32, _stream: Stream) -> Result<(), CallFailure> {
        // SAFETY: promised to `new`.
        done(unsafe { (self.enqueue)(self.context, set) })
    }

    fn capture(
        &mut self,
        rotation: Rotation,
        _stream: Stream,
    ) -> Result<Option<Graph>, CallFailure> {
        let Some(capture) = self.capture else { return Ok(None) };
        let Rotation { first_set, cycle_start, sets, calls } = rotation;
        let mut graph = std::ptr::null_mut();
        // SAFETY: promised to `new`; `graph` is writable during the call.
        done(unsafe {
            capture(self.context, first_set, cycle_start, sets, calls, &raw mut graph)
        })?;
        // SAFETY: promised to `new`.
        Ok((!graph.is_null()).then(|| unsafe { Graph::from_raw(graph as usize) }))
    }

    fn restore(&mut self, set: u32, _stream: Stream) -> Result<(), CallFailure> {
        match self.restore {
            // SAFETY: promised to `new`.
            Some(restore) => done(unsafe { restore(self.context, set) }),
            None => Err(CallFailure { code: 0, message: "no restore callback was given".into() }),
        }
    }
}

//! What a session asks of whoever holds the cases: on the host's processor, or on a device.

use proofhouse_schema::protocol::{Measure, Prepare, Reply, Request};

use crate::provider::{Description, Mode};

/// The cases of a worker, by name. The session owns the protocol; this owns memory and calls.
///
/// A worker on the host implements [`crate::Worker`] and gets all of this; a worker on a device implements it itself.
pub trait Cases {
    /// Who it is; called once, before the hello, so it must be quick.
    fn describe(&self) -> Description;

    /// Makes a case ready; a second one of the same name replaces the first.
    fn prepare(&mut self, prepare: &Prepare) -> Reply;

    /// Runs the operator once in the case's tensors.
    fn check(&mut self, name: &str, mode: Mode) -> Reply;

    /// Warms up, or takes one turn.
    fn measure(&mut self, measure: &Measure) -> Reply;

    /// Captures one call in a device graph.
    fn capture(&mut self, name: &str) -> Reply {
        not_a_device(name)
    }

    /// Replays the captured graph on the mapped file's contents.
    fn replay(&mut self, name: &str) -> Reply {
        not_a_device(name)
    }

    /// Measures what the device can do at most.
    fn ceilings(&mut self) -> Reply {
        Reply::Failed { detail: "this provider measures no ceilings".to_owned() }
    }

    /// Forgets a case; whether there was one.
    fn forget(&mut self, name: &str) -> bool;

    /// Why this process cannot go on, if it cannot: an error of the device that stays.
    fn broken(&self) -> Option<String> {
        None
    }

    /// The instruction set or path that was chosen, e.g. `avx512`, `sm_90`.
    fn dispatch(&self) -> String;

    /// Kernels that were launched, each as `name grid=(x,y,z) block=(x,y,z)`.
    fn kernels(&self) -> Vec<String> {
        Vec::new()
    }

    /// Answers a request that only some workers know (the checker's verbs), or nothing.
    fn answer(&mut self, request: &Request) -> Option<Reply> {
        let _ = request;
        None
    }
}

/// The answer about a case that is not there.
#[must_use]
pub fn unknown_case(case: &str) -> Reply {
    Reply::Failed {
        detail: format!("case {case:?} is not known: it was never prepared, or released"),
    }
}

fn not_a_device(case: &str) -> Reply {
    Reply::Unsupported {
        case: case.to_owned(),
        reason: "the host's processor has no device graphs".to_owned(),
    }
}

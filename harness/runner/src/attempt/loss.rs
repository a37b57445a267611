//! How an attempt can be lost.

use std::time::Duration;

use proofhouse_schema::evidence::Ending;
use proofhouse_schema::units::Bytes;

use crate::socket::ProtocolFault;

/// Why an attempt ended before its work did.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum Loss {
    /// It broke the protocol.
    #[error("{0}")]
    Protocol(ProtocolFault),
    /// It did not answer in time.
    #[error("no answer to {asked} within {} s: the process group was ended", limit.as_secs_f64())]
    Timeout {
        /// The request.
        asked: &'static str,
        /// Its deadline.
        limit: Duration,
    },
    /// It took too much memory.
    #[error("{} of resident memory, {} are allowed: the process group was ended", found, limit)]
    Memory {
        /// Resident memory found.
        found: Bytes,
        /// The limit.
        limit: Bytes,
    },
    /// It ended by itself.
    #[error(
        "the process ended by itself while the answer to {asked} was due: {}",
        sentence(ending)
    )]
    Ended {
        /// The request.
        asked: &'static str,
        /// How.
        ending: Ending,
    },
    /// It could not be started.
    #[error("the process could not be started: {detail}")]
    NotStarted {
        /// The system's message.
        detail: String,
    },
    /// The run was interrupted.
    #[error("the run was interrupted")]
    Interrupted,
}

impl Loss {
    /// The ending that evidence carries.
    #[must_use]
    pub fn ending(&self) -> Ending {
        match self {
            Loss::Protocol(_) => Ending::Protocol,
            Loss::Timeout { .. } => Ending::Timeout,
            Loss::Memory { .. } => Ending::MemoryLimit,
            Loss::Ended { ending, .. } => ending.clone(),
            Loss::NotStarted { .. } => Ending::NotStarted,
            Loss::Interrupted => Ending::Interrupted,
        }
    }
}

impl From<ProtocolFault> for Loss {
    fn from(fault: ProtocolFault) -> Self {
        Loss::Protocol(fault)
    }
}

/// An ending in words.
#[must_use]
pub fn sentence(ending: &Ending) -> String {
    match ending {
        Ending::Exit(code) => format!("exit code {code}"),
        Ending::Signal(signal) => format!("signal {signal}{}", signal_name(*signal)),
        Ending::Timeout => "deadline".to_owned(),
        Ending::MemoryLimit => "memory limit".to_owned(),
        Ending::Protocol => "broken protocol".to_owned(),
        Ending::NotStarted => "not started".to_owned(),
        Ending::Interrupted => "interrupted".to_owned(),
    }
}

fn signal_name(signal: i32) -> &'static str {
    match signal {
        libc::SIGSEGV => " (SIGSEGV, bad memory access)",
        libc::SIGABRT => " (SIGABRT, abort)",
        libc::SIGKILL => " (SIGKILL, not sent by the runner: out of memory?)",
        libc::SIGBUS => " (SIGBUS)",
        libc::SIGILL => " (SIGILL, illegal instruction)",
        libc::SIGFPE => " (SIGFPE)",
        libc::SIGTERM => " (SIGTERM, not sent by the runner)",
        _ => "",
    }
}

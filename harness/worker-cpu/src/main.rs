//! The process of the `cpu` provider.
//!
//! `--twin ID FRACTION` makes it a twin: the same operators under another id, every timed sample longer by a fraction.
//! Calibration compares a provider with its twins.

use std::io::Write as _;
use std::num::NonZeroUsize;
use std::process::ExitCode;

use proofhouse_schema::ids::ProviderId;
use proofhouse_worker::SessionError;
use proofhouse_worker::reasons::chain;
use proofhouse_worker_cpu::{CpuWorker, THREADS_VARIABLE};

/// Why the process ends with a failure.
#[derive(Debug, thiserror::Error)]
enum MainError {
    #[error("{THREADS_VARIABLE} is {0:?}; accepted: a whole number above 0, or nothing")]
    Threads(String),
    #[error("arguments {0:?}; accepted: none, or --twin ID FRACTION with a fraction from 0 to 1")]
    Arguments(Vec<String>),
    #[error("the session ended early")]
    Session(#[from] SessionError),
}

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            report(&error);
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<(), MainError> {
    let threads = match std::env::var(THREADS_VARIABLE) {
        Ok(text) => match text.parse::<NonZeroUsize>() {
            Ok(threads) => Some(threads),
            Err(_) => return Err(MainError::Threads(text)),
        },
        Err(_) => None,
    };
    let worker = CpuWorker::new(threads);
    let mut worker = match twin(std::env::args().skip(1).collect())? {
        Some((provider, slowdown)) => worker.twin(provider, slowdown),
        None => worker,
    };
    Ok(proofhouse_worker::serve(&mut worker)?)
}

/// Whose twin this process is, if it is one.
fn twin(arguments: Vec<String>) -> Result<Option<(ProviderId, f64)>, MainError> {
    let parsed = match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [] => return Ok(None),
        ["--twin", id, fraction] => id.parse().ok().zip(fraction.parse::<f64>().ok()),
        _ => None,
    };
    match parsed.filter(|(_, fraction)| (0.0..=1.0).contains(fraction)) {
        Some(twin) => Ok(Some(twin)),
        None => Err(MainError::Arguments(arguments)),
    }
}

/// Writes an error and its causes to stderr, which is a log; nobody is left to tell if that fails.
fn report(error: &dyn std::error::Error) {
    let _ = writeln!(std::io::stderr(), "proofhouse-worker-cpu: {}", chain(error));
}

//! The process of the `cpu` provider.

use std::io::Write as _;
use std::num::NonZeroUsize;
use std::process::ExitCode;

use proofhouse_worker::SessionError;
use proofhouse_worker_cpu::{CpuWorker, THREADS_VARIABLE};

/// Why the process ends with a failure.
#[derive(Debug, thiserror::Error)]
enum MainError {
    #[error("{THREADS_VARIABLE} is {0:?}; accepted: a whole number above 0, or nothing")]
    Threads(String),
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
    Ok(proofhouse_worker::serve(&mut CpuWorker::new(threads))?)
}

/// Writes an error and its causes to stderr, which is a log; nobody is left to tell if that fails.
fn report(error: &dyn std::error::Error) {
    let mut stderr = std::io::stderr().lock();
    let _ = write!(stderr, "proofhouse-worker-cpu: {error}");
    let mut cause = error.source();
    while let Some(error) = cause {
        let _ = write!(stderr, ": {error}");
        cause = error.source();
    }
    let _ = writeln!(stderr);
}

//! The checker's process: serves the supervisor, or prints the catalog with `--catalog`.

use std::io::Write as _;
use std::process::ExitCode;

use proofhouse_worker::SessionError;
use proofhouse_worker::reasons::chain;
use proofhouse_worker_oracle::{Checker, CheckerError, catalog};

/// Why the process ends with a failure.
#[derive(Debug, thiserror::Error)]
enum MainError {
    #[error("unknown argument {0:?}: accepted is --catalog, or none")]
    Argument(String),
    #[error("this process cannot be closed to debuggers")]
    Dumpable(#[source] std::io::Error),
    #[error("the catalog cannot be written")]
    Catalog(#[source] Box<CheckerError>),
    #[error("the catalog cannot be printed")]
    Print(#[source] std::io::Error),
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
    match std::env::args().nth(1).as_deref() {
        None => {}
        Some("--catalog") => {
            let text = catalog::text().map_err(|error| MainError::Catalog(Box::new(error)))?;
            return std::io::stdout().write_all(text.as_bytes()).map_err(MainError::Print);
        }
        Some(other) => return Err(MainError::Argument(other.to_owned())),
    }
    // No other process of this user may read the expected outputs from here or change them.
    rustix::process::set_dumpable_behavior(rustix::process::DumpableBehavior::NotDumpable)
        .map_err(|error| MainError::Dumpable(error.into()))?;
    Ok(proofhouse_worker::serve(&mut Checker::default())?)
}

/// Writes an error and its causes to stderr, which is a log; nobody is left to tell if that fails.
fn report(error: &dyn std::error::Error) {
    let _ = writeln!(std::io::stderr(), "proofhouse-worker-oracle: {}", chain(error));
}

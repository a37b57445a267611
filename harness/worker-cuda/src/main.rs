//! The process of the `cuda` provider.
//!
//! `--twin ID FRACTION` makes it a twin for calibration: the same operators under another id, every timed sample longer by
//! a fraction. `--canary` runs one small kernel and says by its exit status whether the device works.

use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

use proofhouse_schema::ids::ProviderId;
use proofhouse_worker::SessionError;
use proofhouse_worker::reasons::chain;
use proofhouse_worker_cuda::{CudaCases, OpenedCuda, Place, StartError, canary};

/// The device, as the runner names it: `cuda:UUID`.
const DEVICE_VARIABLE: &str = "PROOFHOUSE_DEVICE";
/// Where compiled kernels are kept.
const CACHE_VARIABLE: &str = "PROOFHOUSE_KERNEL_CACHE";
/// The folder of NVRTC, where the loader does not find it.
const NVRTC_VARIABLE: &str = "PROOFHOUSE_NVRTC";

/// Why the process ends with a failure.
#[derive(Debug, thiserror::Error)]
enum MainError {
    #[error("{DEVICE_VARIABLE} is {0:?}; accepted: cuda:UUID, or nothing")]
    Device(String),
    #[error(
        "arguments {0:?}; accepted: none, --canary, or --twin ID FRACTION with a fraction from 0 to 1"
    )]
    Arguments(Vec<String>),
    #[error("the device cannot be used")]
    Start(#[from] StartError),
    #[error("the session ended early")]
    Session(#[from] SessionError),
}

enum Role {
    Worker,
    Twin(ProviderId, f64),
    Canary,
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
    let place = place()?;
    let role = role(std::env::args().skip(1).collect())?;
    if let Role::Canary = role {
        return Ok(canary(&place)?);
    }
    let cases = CudaCases::new(OpenedCuda::open(&place)?);
    let mut cases = match role {
        Role::Twin(provider, slowdown) => cases.twin(provider, slowdown),
        _ => cases,
    };
    Ok(proofhouse_worker::serve_cases(&mut cases)?)
}

fn place() -> Result<Place, MainError> {
    let uuid = match std::env::var(DEVICE_VARIABLE) {
        Err(_) => None,
        Ok(text) => match text.strip_prefix("cuda:") {
            Some(uuid) => Some(uuid.to_owned()),
            None => return Err(MainError::Device(text)),
        },
    };
    let folder = |name| std::env::var_os(name).map(PathBuf::from);
    Ok(Place { uuid, nvrtc: folder(NVRTC_VARIABLE), cache: folder(CACHE_VARIABLE) })
}

fn role(arguments: Vec<String>) -> Result<Role, MainError> {
    let parsed = match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [] => return Ok(Role::Worker),
        ["--canary"] => return Ok(Role::Canary),
        ["--twin", id, fraction] => id.parse().ok().zip(fraction.parse::<f64>().ok()),
        _ => None,
    };
    match parsed.filter(|(_, fraction)| (0.0..=1.0).contains(fraction)) {
        Some((id, fraction)) => Ok(Role::Twin(id, fraction)),
        None => Err(MainError::Arguments(arguments)),
    }
}

/// Writes an error and its causes to stderr, which is a log; nobody is left to tell if that fails.
fn report(error: &dyn std::error::Error) {
    let _ = writeln!(std::io::stderr(), "proofhouse-worker-cuda: {}", chain(error));
}

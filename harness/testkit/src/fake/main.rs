//! A worker with one planted defect.
//!
//! `proofhouse-fake-worker --defect NAME`. It shares no code with the real workers: what it says is made here, so that a
//! fault in theirs cannot hide in both. Where it is given a device it says what a worker on one would say.

mod device;
mod misbehave;
mod norm;
mod refuse;
mod serve;
mod tensors;
mod time;

use std::process::ExitCode;

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    let mut defect = "none".to_owned();
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--defect" => defect = arguments.next().unwrap_or_default(),
            "--linger" => return misbehave::linger(),
            "--neighbor" => return device::neighbor(&arguments.next().unwrap_or_default()),
            // As our own worker on a device it says that the device works.
            "--canary" => return ExitCode::SUCCESS,
            _ => return ExitCode::from(2),
        }
    }
    if defect != "none" && proofhouse_testkit::find(&defect).is_none() {
        return ExitCode::from(2);
    }
    misbehave::before_connecting(&defect);
    match serve::serve(&defect) {
        Ok(code) => code,
        Err(_) => ExitCode::from(9),
    }
}

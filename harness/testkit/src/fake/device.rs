//! A device that is none: the fake says that it opened it, captures and replays by running, and tells ceilings.

use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::process::ExitCode;

use proofhouse_schema::device::{DeviceKind, OpenedDevice};
use proofhouse_schema::evidence::Finding;
use proofhouse_schema::protocol::{Measure, Measured, Phase};
use proofhouse_schema::timing::Launch;

/// The variable that names the device, as workers are told it.
const DEVICE_VARIABLE: &str = "PROOFHOUSE_DEVICE";
/// What is told of a kernel.
const KERNEL: &str = "fake_norm grid=(8,1,1) block=(256,1,1)";
const DECOY: &str = "fake_decoy grid=(1,1,1) block=(32,1,1)";
/// Bytes a second that the device can do at most: far more than the fake does, and far less than it says when it lies.
const CEILING: f64 = 4e10;

/// The device that the worker was given, as it says it.
pub(crate) fn opened(defect: &str) -> Option<OpenedDevice> {
    let asked = std::env::var(DEVICE_VARIABLE).ok()?;
    let uuid = asked.strip_prefix("cuda:")?;
    let uuid = if defect == "device-index-swap" { "GPU-another" } else { uuid };
    let name = "a fake".to_owned();
    Some(OpenedDevice { kind: DeviceKind::Cuda, uuid: uuid.to_owned(), name })
}

/// What our own worker would tell of the device.
pub(crate) fn ceilings() -> BTreeMap<String, f64> {
    let names = ["copy_bytes_per_s", "read_bytes_per_s", "write_bytes_per_s"];
    let mut all: BTreeMap<_, _> = names.map(|name| (name.to_owned(), CEILING)).into();
    all.insert("cold_over_hot".to_owned(), 2.0);
    all
}

/// Kernels of the graph of one call.
pub(crate) fn kernels(defect: &str) -> Vec<String> {
    match defect {
        "empty-graph" => vec![],
        "idle-when-captured" | "stream-escape" => vec![DECOY.to_owned()],
        _ => vec![KERNEL.to_owned()],
    }
}

/// Whether a call leaves its output as it is when it is replayed, or timed.
pub(crate) fn idles(defect: &str) -> bool {
    matches!(defect, "empty-graph" | "idle-when-captured" | "stream-escape" | "one-set")
}

/// What the timer on a device would have found, if anything, before there is a sample.
pub(crate) fn refused(defect: &str, asked: &Measure, turns: u32) -> Option<Finding> {
    let finding = |code: &str, detail: &str| {
        Some(Finding { code: code.to_owned(), detail: detail.to_owned() })
    };
    let warm = asked.phase == Phase::Warm;
    match defect {
        "empty-graph" if warm => finding("no-kernels", "0 kernels were captured for 8 calls"),
        "stream-escape" if warm && asked.launch == Launch::Eager => {
            finding("work-escaped", "the device-wide wait lasted 2000000 ns after the region")
        }
        "loads-code-on-call-n" if turns == 4 => finding("code-loaded", "loaded code changed"),
        _ => None,
    }
}

/// Makes a turn's account that of a device, spoiled by the defects that are played only there.
pub(crate) fn account(defect: &str, asked: &Measure, turns: u32, measured: &mut Measured) {
    let scale = match (defect, asked.phase) {
        ("timer-patched", Phase::Turn) => 0.02,
        ("impossible-time", Phase::Turn) => 0.01,
        _ => 1.0,
    };
    measured.elapsed_ns.iter_mut().for_each(|time| *time *= scale);
    measured.timed.0 = measured.elapsed_ns.iter().sum();
    if defect == "jit-on-call-n" && turns == 4 {
        measured.modules[1] += 1;
    }
    if asked.launch == Launch::Graph {
        measured.kernels = kernels(defect);
    }
}

/// A process beside a run: it says where it is, and ends with its standard input.
pub(crate) fn neighbor(file: &str) -> ExitCode {
    let said = std::fs::write(file, std::process::id().to_string())
        .and_then(|()| writeln!(std::io::stdout(), "ready"))
        .and_then(|()| std::io::stdin().read_to_end(&mut Vec::new()));
    let removed = std::fs::remove_file(file);
    if said.is_ok() && removed.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

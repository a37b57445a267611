//! `doctor`: what is here, what is missing, and what to do about it.

use std::path::{Path, PathBuf};
use std::process::Command;

use proofhouse_runner::device::{DeviceChoice, Devices};
use proofhouse_runner::{ProviderHome, SET_VARIABLE};
use proofhouse_schema::device::DeviceKind;
use proofhouse_schema::exit::Exit;
use proofhouse_schema::probe::Probe;
use proofhouse_schema::provider::Environment;
#[cfg(feature = "index")]
use proofhouse_store::Store;

use super::out;
use crate::arguments::Common;
use crate::error::CliError;
use crate::project::{Project, binaries, cache, names};
use crate::terminal::{Paint, Table, counted};

/// Prints the modules that a worker needs and this machine's Python does not have.
const IMPORTS: &str = include_str!("imports.py");

/// How to get what belongs beside this program.
const BUILD: &str =
    if cfg!(feature = "index") { "cargo house setup" } else { "unpack the bundle again, whole" };

/// How a finding stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// It is here.
    Here,
    /// It is missing and something is not run without it.
    Optional,
    /// It is missing and nothing runs without it.
    Needed,
}

#[derive(Debug)]
struct Finding {
    state: State,
    what: &'static str,
    found: String,
    advice: String,
}

/// Looks at the machine and the project.
pub fn doctor(common: &Common) -> Result<Exit, CliError> {
    let paint = Paint::stdout(common.color);
    let mut findings = machine();
    findings.extend(tools(&binaries().unwrap_or_default()));
    findings.extend(gpu(&Devices::probe(DeviceChoice::All, None), &binaries().unwrap_or_default()));
    findings.extend(project(common));
    let mut table = Table::new(&["", "what", "found"]);
    for finding in &findings {
        let (mark, shown) = match finding.state {
            State::Here => ("ok", paint.good("ok")),
            State::Optional => ("--", paint.open("--")),
            State::Needed => ("no", paint.bad("no")),
        };
        table.painted(vec![
            (mark.to_owned(), Some(shown)),
            (finding.what.to_owned(), None),
            (finding.found.clone(), None),
        ]);
        if !finding.advice.is_empty() {
            let shown = paint.faint(&finding.advice);
            let empty = || (String::new(), None);
            table.painted(vec![empty(), empty(), (finding.advice.clone(), Some(shown))]);
        }
    }
    out(&table.render(|head| paint.faint(head)))?;
    let needed = findings.iter().filter(|f| f.state == State::Needed).count();
    let optional = findings.iter().filter(|f| f.state == State::Optional).count();
    out(&format!("\n{needed} needed things are missing, {optional} optional ones\n"))?;
    Ok(if needed == 0 { Exit::Passed } else { Exit::Setup })
}

fn here(what: &'static str, found: impl Into<String>) -> Finding {
    Finding { state: State::Here, what, found: found.into(), advice: String::new() }
}

fn missing(state: State, what: &'static str, found: impl Into<String>, advice: &str) -> Finding {
    Finding { state, what, found: found.into(), advice: advice.to_owned() }
}

fn machine() -> Vec<Finding> {
    let host = proofhouse_provenance::host();
    let mut found = Vec::new();
    let cpu = known(&host.cpu);
    found.push(here("CPU", format!("{cpu}, {} cores", known(&host.cores))));
    found.push(here("instruction sets", host.features.join(" ")));
    found.push(here("memory", known(&host.memory)));
    found.push(match &host.governor {
        Probe::Known(governor) if governor != "performance" => missing(
            State::Optional,
            "frequency governor",
            governor.clone(),
            "timing is steadier under `performance`; it is read, never changed",
        ),
        Probe::Known(governor) => here("frequency governor", governor.clone()),
        Probe::Unavailable(_) => here("frequency governor", "not told by this machine"),
    });
    let shm = Path::new("/dev/shm");
    found.push(if shm.is_dir() && writable(shm) {
        here("shared memory", "/dev/shm")
    } else {
        let advice = "tensors travel there: mount a tmpfs on /dev/shm";
        missing(State::Needed, "shared memory", "/dev/shm is not writable", advice)
    });
    found
}

/// What gates on a GPU need; gates on the CPU need none of it.
fn gpu(devices: &Devices, folder: &Path) -> Vec<Finding> {
    let mut found = Vec::new();
    match (devices.found.get(&DeviceKind::Cuda), devices.missing.get(&DeviceKind::Cuda)) {
        (Some(gpu), _) => {
            let (name, uuid) = (known(&gpu.name), &gpu.uuid);
            let (architecture, memory) = (known(&gpu.architecture), known(&gpu.memory));
            let shown = format!("{name}, compute capability {architecture}, {memory}, {uuid}");
            found.push(here("GPU", shown));
            let (driver, cuda) = (known(&gpu.driver), known(&gpu.cuda));
            found.push(here("NVIDIA driver", format!("{driver}, CUDA up to {cuda}")));
        }
        (None, reason) => {
            let reason = reason.map_or("it was not looked for", String::as_str);
            let advice = "gates on cuda are not run without one; gates on cpu need none";
            found.push(missing(State::Optional, "GPU", reason, advice));
        }
    }
    let built = "gates on cuda need it; `cargo house setup` builds it on a host with a GPU, and a bundle carries it";
    found.push(beside(folder, "CUDA worker", "proofhouse-worker-cuda", State::Optional, built));
    found.push(if timer_library(folder, DeviceKind::Cuda).is_some() {
        here("CUDA timer", "libproofhouse_timer_cuda")
    } else {
        missing(State::Optional, "CUDA timer", "not beside this program", built)
    });
    found
}

/// A program that belongs beside this one.
fn beside(folder: &Path, what: &'static str, name: &str, state: State, advice: &str) -> Finding {
    if folder.join(name).is_file() {
        return here(what, name);
    }
    missing(state, what, format!("{name} is not beside this program"), advice)
}

fn tools(folder: &Path) -> Vec<Finding> {
    let mut found = Vec::new();
    for name in ["proofhouse-worker-oracle", "proofhouse-worker-cpu"] {
        found.push(beside(folder, "worker", name, State::Needed, BUILD));
    }
    // A bundle does not carry it.
    let advice = "`selftest` on the CPU plants its faults with it, and nothing else needs it";
    let fake = beside(folder, "worker", "proofhouse-fake-worker", State::Optional, advice);
    found.push(fake);
    found.push(if timer_library(folder, DeviceKind::Cpu).is_some() {
        here("native timer", "libproofhouse_timer")
    } else {
        let advice = format!("Python providers are not timed without it: {BUILD}");
        missing(State::Optional, "native timer", "not beside this program", &advice)
    });
    #[cfg(not(feature = "index"))]
    found.push(missing(
        State::Optional,
        "DuckDB",
        "this command was built without it",
        "`query` and `report` are for the machine that imports what is measured here",
    ));
    #[cfg(feature = "index")]
    found.push(match Store::in_memory().and_then(|store| store.duckdb_version()) {
        Ok(version) => here("DuckDB", version),
        Err(error) => missing(State::Needed, "DuckDB", error.to_string(), "cargo house setup"),
    });
    for (what, program, advice) in [
        (
            "Python",
            "python3",
            "numpy and onnxruntime baselines are not run without Python 3.9 or later",
        ),
        ("uv", "uv", "optional: environments are made faster with it (else: python3 -m venv)"),
        ("git", "git", "optional: this program reads repositories by itself"),
        ("Chromium", "chromium", "optional: the browser test of the report needs it"),
    ] {
        found.push(match version(program) {
            Some(version) => here(what, version),
            None => missing(State::Optional, what, "none", advice),
        });
    }
    found
}

fn project(common: &Common) -> Vec<Finding> {
    let project = match Project::find(common) {
        Ok(project) => project,
        Err(error) => {
            return vec![missing(
                State::Needed,
                "project",
                error.to_string(),
                "go into a project, or give --root DIR",
            )];
        }
    };
    let mut found = vec![here("project", project.root.display().to_string())];
    // A folder that is not there yet is made below the first one above it that is.
    let nearest = project.evidence.ancestors().find(|folder| folder.exists());
    found.push(if nearest.is_some_and(writable) {
        here("evidence folder", project.shown(&project.evidence))
    } else {
        let shown = format!("{} cannot be written", project.evidence.display());
        missing(State::Needed, "evidence folder", shown, "give --evidence DIR")
    });
    match project.declared(&super::quick_arguments().profile) {
        Ok(declared) => {
            let cells: usize = declared.gates.iter().map(|gate| gate.cells.len()).sum();
            found.push(here(
                "gates",
                format!(
                    "{}, {} in quick",
                    counted(declared.gates.len() as u64, "gate"),
                    counted(cells as u64, "cell")
                ),
            ));
            for home in &declared.providers {
                found.push(provider(home));
            }
        }
        Err(error) => {
            found.push(missing(
                State::Needed,
                "gates",
                error.to_string(),
                "proofhouse list shows what is wrong",
            ));
        }
    }
    found
}

fn provider(home: &ProviderHome) -> Finding {
    let id = home.provider.id.to_string();
    match &home.provider.environment {
        Environment::Binary => here("provider", id),
        Environment::Path(folders) => {
            let set = std::env::var(SET_VARIABLE).unwrap_or_default();
            if set.is_empty() && folders.contains("{set}") {
                let shown = format!("{id}: {SET_VARIABLE} is not set");
                let advice = "set it to the folder of carried packages; its cells are not run here";
                return missing(State::Optional, "provider", shown, advice);
            }
            let folders = folders.split(':').map(|folder| folder.replace("{set}", &set));
            let gone = folders.map(|f| home.folder.join(f)).find(|folder| !folder.is_dir());
            match gone {
                None => here("provider", id),
                Some(folder) => {
                    let shown = format!("{id}: {} is not there", folder.display());
                    let advice = format!("put its packages there, or set {SET_VARIABLE}");
                    missing(State::Optional, "provider", shown, &advice)
                }
            }
        }
        Environment::Venv => {
            here("provider", format!("{id}, made at first need in {}", cache().display()))
        }
        Environment::Host => match host_lacks(home) {
            None => here("provider", id),
            Some(lack) => {
                let advice = "its cells are not run here";
                missing(State::Optional, "provider", format!("{id}: {lack}"), advice)
            }
        },
    }
}

/// What a provider that takes its packages from this machine's Python does not find there.
fn host_lacks(home: &ProviderHome) -> Option<String> {
    let folder = home.folder.to_string_lossy();
    let scripts = home.provider.command.iter().filter(|word| word.ends_with(".py"));
    let script = scripts.map(|word| word.replace("{folder}", &folder)).next()?;
    let asked = Command::new("python3").args(["-I", "-c", IMPORTS, &script]).output();
    let found = match asked {
        Ok(output) if output.status.success() => output.stdout,
        Ok(output) => {
            let said = String::from_utf8_lossy(&output.stderr);
            return Some(format!(
                "its imports are not readable: {}",
                said.lines().last().unwrap_or_default()
            ));
        }
        Err(_) => return Some("there is no python3".to_owned()),
    };
    let modules = String::from_utf8_lossy(&found);
    let modules = names(modules.lines().filter(|name| !name.is_empty()));
    (!modules.is_empty()).then(|| format!("this machine's Python has no {modules}"))
}

/// The native timer beside a program.
pub fn timer_library(folder: &Path, device: DeviceKind) -> Option<PathBuf> {
    let stem = match device {
        DeviceKind::Cpu => "libproofhouse_timer",
        DeviceKind::Cuda => "libproofhouse_timer_cuda",
    };
    ["so", "dylib"]
        .into_iter()
        .map(|suffix| folder.join(format!("{stem}.{suffix}")))
        .find(|path| path.is_file())
}

fn known<T: std::fmt::Display>(probe: &Probe<T>) -> String {
    match probe {
        Probe::Known(value) => value.to_string(),
        Probe::Unavailable(why) => format!("unavailable: {why}"),
    }
}

fn version(program: &str) -> Option<String> {
    let output = Command::new(program).arg("--version").output().ok()?;
    output.status.success().then(|| first_line(&String::from_utf8_lossy(&output.stdout)))
}

fn first_line(text: &str) -> String {
    text.lines().next().unwrap_or_default().trim().to_owned()
}

/// Whether a file can be made in a folder; it is removed again at once.
fn writable(folder: &Path) -> bool {
    tempfile::tempfile_in(folder).is_ok()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]

    use std::fs;

    use super::*;

    fn state(findings: &[Finding], shown: &str) -> State {
        let found = findings.iter().find(|finding| finding.found.contains(shown));
        found.unwrap_or_else(|| panic!("{shown}: {findings:?}")).state
    }

    #[test]
    fn a_bundle_lacks_nothing_that_its_gates_need() {
        let folder = tempfile::tempdir().unwrap();
        let none = tools(folder.path());
        assert_eq!(state(&none, "proofhouse-worker-oracle"), State::Needed);
        assert_eq!(state(&none, "proofhouse-worker-cpu"), State::Needed);
        for name in ["proofhouse-worker-oracle", "proofhouse-worker-cpu"] {
            fs::write(folder.path().join(name), "").unwrap();
        }
        let lean = tools(folder.path());
        assert_eq!(state(&lean, "proofhouse-worker-cpu"), State::Here);
        assert_eq!(state(&lean, "proofhouse-fake-worker"), State::Optional);
    }

    #[test]
    fn what_a_gpu_needs_is_listed_with_the_reason_for_what_is_not_here() {
        let folder = tempfile::tempdir().unwrap();
        let mut devices = Devices::default();
        devices.missing.insert(DeviceKind::Cuda, "2 GPUs are here; name one".to_owned());
        let without = gpu(&devices, folder.path());
        let names: Vec<&str> = without.iter().map(|finding| finding.what).collect();
        assert_eq!(names, ["GPU", "CUDA worker", "CUDA timer"]);
        assert!(without.iter().all(|finding| finding.state == State::Optional));
        assert!(without[0].found.contains("2 GPUs are here"));
        for name in ["proofhouse-worker-cuda", "libproofhouse_timer_cuda.so"] {
            fs::write(folder.path().join(name), "").unwrap();
        }
        let built = gpu(&devices, folder.path());
        assert!(built[1..].iter().all(|finding| finding.state == State::Here), "{built:?}");
    }
}

//! `doctor`: what is here, what is missing, and what to do about it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

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
    findings.extend(tools());
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
    found.push(if Path::new("/proc/driver/nvidia/version").exists() {
        here(
            "NVIDIA driver",
            first_line(&fs::read_to_string("/proc/driver/nvidia/version").unwrap_or_default()),
        )
    } else {
        missing(State::Optional, "NVIDIA driver", "none", "GPU gates need one; CPU gates do not")
    });
    found
}

fn tools() -> Vec<Finding> {
    let mut found = Vec::new();
    let folder = binaries().unwrap_or_default();
    for name in ["proofhouse-worker-oracle", "proofhouse-worker-cpu", "proofhouse-fake-worker"] {
        let path = folder.join(name);
        found.push(if path.is_file() {
            here("worker", name)
        } else {
            missing(
                State::Needed,
                "worker",
                format!("{name} is not beside this program"),
                "cargo house setup",
            )
        });
    }
    found.push(if timer_library(&folder, DeviceKind::Cpu).is_some() {
        here("native timer", "libproofhouse_timer")
    } else {
        let advice = "Python providers are not timed without it: cargo house setup";
        missing(State::Optional, "native timer", "not beside this program", advice)
    });
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
    found.push(if writable(&project.evidence) || writable(&project.root) {
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

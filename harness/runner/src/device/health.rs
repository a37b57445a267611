//! Whether a device still works after a worker was lost on it (P37, P38).
//!
//! A device error ends the worker that saw it, and says nothing of the device. Before the next worker starts there, a
//! canary in a process of its own decides: it runs one small kernel. A device whose canary fails again and again is
//! quarantined for the rest of the run; nothing is reset.

use std::cell::{Cell, OnceCell, RefCell};
use std::process::Stdio;
use std::time::Duration;

use proofhouse_schema::device::DeviceKind;
use proofhouse_schema::evidence::Finding;
use tokio::process::Command;

use super::nvml::{Nvml, Process};
use crate::context::Context;
use crate::draft::Message;

/// The program that runs one small kernel, beside the other binaries.
const CANARY: &str = "proofhouse-worker-cuda";
/// Canaries before a device is given up.
const TRIES: u32 = 3;
/// A canary that takes longer hangs.
const LIMIT: Duration = Duration::from_secs(30);
/// Between two canaries: the driver may still be cleaning up after a killed process.
const PAUSE: Duration = Duration::from_secs(2);

/// Whether devices still work.
#[derive(Debug, Default)]
pub(crate) struct Health {
    suspect: Cell<bool>,
    quarantine: RefCell<Option<String>>,
    /// Whether it was told that processes on a device cannot be seen from here.
    blind: Cell<bool>,
    /// The management library, opened on first need.
    nvml: OnceCell<Result<Nvml, String>>,
}

impl Health {
    /// A worker was lost on the device: the next one waits for a canary.
    pub(crate) fn suspect(&self, device: DeviceKind) {
        if device == DeviceKind::Cuda {
            self.suspect.set(true);
        }
    }

    /// Why the device is not used any more, if it is not.
    pub(crate) fn quarantined(&self, device: DeviceKind) -> Option<String> {
        (device == DeviceKind::Cuda).then(|| self.quarantine.borrow().clone()).flatten()
    }

    /// Processes on the device that are not this run's, and those of this run on another one, as findings; what cannot be
    /// asked is a finding, too.
    pub(crate) fn strangers(&self, context: &Context, device: DeviceKind) -> Vec<Finding> {
        let Some(facts) = context.options.devices.found.get(&device) else { return Vec::new() };
        let uuid = &facts.uuid;
        let (here, elsewhere) = match &context.options.devices.occupancy {
            Some(occupancy) => (occupancy.processes(uuid), occupancy.elsewhere(uuid)),
            None => match self.nvml.get_or_init(Nvml::open) {
                Ok(nvml) => (nvml.processes(uuid), nvml.elsewhere(uuid)),
                Err(why) => (Err(why.clone()), Err(why.clone())),
            },
        };
        let foreign = self.foreign(context, uuid, here);
        let astray = elsewhere.map_or_else(
            |why| Some(unknown(&format!("the processes beside {uuid} are not known: {why}"))),
            |elsewhere| astray(uuid, elsewhere),
        );
        foreign.into_iter().chain(astray).collect()
    }

    fn foreign(
        &self,
        context: &Context,
        uuid: &str,
        listed: Result<Vec<Process>, String>,
    ) -> Option<Finding> {
        let processes = match listed {
            Ok(processes) => processes,
            Err(why) => {
                return Some(unknown(&format!("the processes on {uuid} are not known: {why}")));
            }
        };
        if processes.is_empty() && !self.blind.replace(true) {
            // Asked while workers of this run are there: a sandbox may hide even those.
            context.send(Message::Warning(format!(
                "no process is listed on {uuid}, not even this run's: a foreign one would not be seen"
            )));
        }
        let others: Vec<Process> =
            processes.into_iter().filter(|process| !is_ours(process.pid)).collect();
        let names: Vec<String> =
            others.iter().map(|process| format!("{} ({})", process.name, process.pid)).collect();
        (!names.is_empty()).then(|| Finding {
            code: "foreign-process".to_owned(),
            detail: format!("other processes compute on {uuid}: {}", names.join(", ")),
        })
    }

    /// Decides by a canary whether a suspect device still works.
    pub(crate) async fn ready(&self, context: &Context, device: DeviceKind) {
        if device != DeviceKind::Cuda || !self.suspect.replace(false) {
            return;
        }
        let mut last = String::new();
        for attempt in 1..=TRIES {
            match canary(context).await {
                Ok(()) => {
                    context.send(Message::Warning(format!(
                        "a worker was lost on the device; a canary in a fresh process ran there (try {attempt})"
                    )));
                    return;
                }
                Err(why) => last = why,
            }
            tokio::time::sleep(PAUSE).await;
        }
        let reason =
            format!("the device is quarantined: {TRIES} canaries failed, the last: {last}");
        context.send(Message::Warning(reason.clone()));
        *self.quarantine.borrow_mut() = Some(reason);
    }
}

async fn canary(context: &Context) -> Result<(), String> {
    let program = context.options.binaries.join(CANARY);
    let mut command = Command::new(&program);
    command.arg("--canary").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    command.env_clear().kill_on_drop(true);
    for name in ["PATH", "HOME", "LD_LIBRARY_PATH"] {
        if let Some(value) = context.options.environment.get(name) {
            command.env(name, value);
        }
    }
    command.envs(context.options.devices.variables(DeviceKind::Cuda));
    let child = command.spawn().map_err(|error| format!("{}: {error}", program.display()))?;
    match tokio::time::timeout(LIMIT, child.wait_with_output()).await {
        Err(_) => Err(format!("it did not end within {} s", LIMIT.as_secs())),
        Ok(Err(error)) => Err(error.to_string()),
        Ok(Ok(output)) if output.status.success() => Ok(()),
        Ok(Ok(output)) => {
            let text = String::from_utf8_lossy(&output.stderr);
            Err(format!("{}: {}", output.status, text.lines().last().unwrap_or("it said nothing")))
        }
    }
}

fn unknown(detail: &str) -> Finding {
    Finding { code: "processes-unknown".to_owned(), detail: detail.to_owned() }
}

/// A worker that names the right device may still compute on another one (P20).
fn astray(uuid: &str, elsewhere: Vec<(String, Process)>) -> Option<Finding> {
    let ours = elsewhere.into_iter().filter(|(_, process)| is_ours(process.pid));
    let names: Vec<String> = ours
        .map(|(other, process)| format!("{} ({}) on {other}", process.name, process.pid))
        .collect();
    (!names.is_empty()).then(|| Finding {
        code: "another-device".to_owned(),
        detail: format!(
            "processes of this run compute elsewhere than on {uuid}: {}",
            names.join(", ")
        ),
    })
}

/// Whether a process descends from this one, which is the reaper of its descendants.
fn is_ours(pid: u32) -> bool {
    let own = std::process::id();
    let mut pid = pid;
    // A chain of parents ends at process 1; the bound is against a table that changes while it is read.
    for _ in 0..64 {
        if pid == own {
            return true;
        }
        match parent(pid) {
            Some(parent) if parent > 1 => pid = parent,
            _ => return false,
        }
    }
    false
}

fn parent(pid: u32) -> Option<u32> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name in parentheses may hold anything; the fields after its last parenthesis do not.
    let (_, fields) = stat.rsplit_once(')')?;
    fields.split_ascii_whitespace().nth(1)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_child_is_ours_and_the_first_process_is_not() {
        let mut child = std::process::Command::new("sleep").arg("30").spawn().unwrap();
        assert!(is_ours(child.id()));
        assert!(is_ours(std::process::id()));
        assert!(!is_ours(1));
        child.kill().unwrap();
        child.wait().unwrap();
    }
}

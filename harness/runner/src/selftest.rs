//! The self-test: planted faults and exploits go through the very same runner, checker and judge as everything else.

mod neighbor;
mod stage;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::mpsc::Sender;

use proofhouse_schema::catalog::Catalog;
use proofhouse_schema::device::DeviceKind;
use proofhouse_schema::dtype::Dtype;
use proofhouse_schema::event::Event;
use proofhouse_schema::evidence::{ExploitResult, QualificationScore};
use proofhouse_schema::gate::GateKind;
use proofhouse_schema::provider::Environment;
use proofhouse_schema::timing::{Cache, Launch};
use proofhouse_schema::verdict::Verdict;

use crate::error::RunError;
use crate::interrupt::Stop;
use crate::options::RunOptions;
use crate::ports::Judge;
use stage::{Played, Stage};

/// A planted fault, as the testkit declares it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Exploit {
    /// Its name, which is its defect's.
    pub name: String,
    /// The pitfall it stands for.
    pub pitfall: String,
    /// Verdicts that are right; the worst verdict over the gate's cells must be among them.
    pub expected: Vec<Verdict>,
    /// Codes of reasons, at least one of which that verdict must give; empty: any reason does.
    pub codes: Vec<String>,
    /// The kind of gate that must see it.
    pub kind: GateKind,
    /// Whether it is an honest control, which must pass.
    pub control: bool,
    /// Where its timed calls find their operands.
    pub cache: Cache,
    /// How its timed calls are launched.
    pub launch: Launch,
    /// Whether an honest provider comes after it in the same session, and must pass.
    pub followed: bool,
    /// Whether a process that is no part of the run computes on the device meanwhile.
    pub neighbor: bool,
}

/// The program that plays every exploit, and honest providers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fixture {
    /// Where it runs.
    pub device: DeviceKind,
    /// Program and arguments, as in `provider.toml`; `--defect NAME` comes after them.
    pub command: Vec<String>,
    /// The folder that it lies in; none: it has none, and gets one that tells its defects apart.
    pub folder: Option<PathBuf>,
    /// Where its packages come from.
    pub environment: Environment,
    /// Packages that it needs, by version.
    pub packages: BTreeMap<String, String>,
    /// Further environment variables.
    pub variables: BTreeMap<String, String>,
    /// What its timed region includes beside the operator.
    pub includes: Vec<String>,
    /// Dtypes that it runs rms_norm in.
    pub dtypes: Vec<Dtype>,
    /// Whether it answers invalid inputs with typed refusals.
    pub refusals: bool,
    /// The program that computes on the device beside a run: it says a line when it does, and ends with its standard input.
    pub neighbor: Vec<String>,
}

/// What a self-test needs.
#[derive(Debug, Clone)]
pub struct SelftestOptions {
    /// A run's options; its gates and its selection are not used.
    pub run: RunOptions,
    /// The program that plays every exploit.
    pub fixture: Fixture,
    /// The catalog, for the parameters and refusals of the operator that the fakes implement.
    pub catalog: Catalog,
}

/// What a self-test found.
#[derive(Debug, Clone, PartialEq)]
pub struct SelftestFindings {
    /// One line per exploit.
    pub exploits: Vec<ExploitResult>,
    /// The checkers' batteries that ran on the way, by `operator dtype`.
    pub batteries: BTreeMap<String, QualificationScore>,
}

/// Runs every exploit through a gate of its kind; one that is stopped and those after it have no line.
///
/// # Errors
/// When a run could not begin.
pub fn selftest(
    options: &SelftestOptions,
    exploits: &[Exploit],
    judge: &dyn Judge,
    stop: &Stop,
    events: &Sender<Event>,
) -> Result<SelftestFindings, RunError> {
    let folder = tempfile::tempdir().map_err(|source| RunError::Setup {
        what: "make a folder for the self-test".to_owned(),
        source,
    })?;
    let mut findings = SelftestFindings { exploits: Vec::new(), batteries: BTreeMap::new() };
    for exploit in exploits {
        if stop.requested() {
            break;
        }
        let step = format!("self-test: {}", exploit.name);
        // Nobody may be listening.
        let _ = events.send(Event::StepStarted { step: step.clone() });
        let begun = std::time::Instant::now();
        let stage = Stage { options, exploit, folder: folder.path().to_owned() };
        let Played { result, batteries, told } = stage.play(judge, stop)?;
        if stop.requested() {
            // What was stopped got no verdict of its own.
            break;
        }
        let _ = events.send(Event::StepFinished {
            step,
            outcome: format!(
                "{}{}",
                result.found,
                if result.right { "" } else { ", which is wrong" }
            ),
            elapsed_ms: begun.elapsed().as_secs_f64() * 1e3,
        });
        for message in told {
            let _ = events.send(Event::Warning { message });
        }
        findings.exploits.push(result);
        findings.batteries.extend(batteries);
    }
    Ok(findings)
}

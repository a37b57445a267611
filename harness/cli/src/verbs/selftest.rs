//! `selftest`: planted faults and exploits, and the kill score.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::mpsc::channel;
use std::thread;

use proofhouse_evidence::{Folder, Writer, now};
use proofhouse_runner::ports::GateJudge;
use proofhouse_runner::{Exploit, Fixture, SelftestOptions, Stop};
use proofhouse_schema::SCHEMA;
use proofhouse_schema::device::DeviceKind;
use proofhouse_schema::dtype::Dtype;
use proofhouse_schema::event::Event;
use proofhouse_schema::evidence::{ExploitResult, QualificationScore, Record, SelftestRecord};
use proofhouse_schema::exit::Exit;
use proofhouse_schema::gate::GateKind;
use proofhouse_schema::provider::Environment;
use proofhouse_schema::verdict::Verdict;
use proofhouse_testkit::{CUDA_DEFECTS, DEFECTS};

use super::run::options;
use super::{TOOL, archive, out, quick_arguments};
use crate::arguments::{
    Common, DeviceWord, RunArguments, SelftestArguments, SelftestDevice, SelftestKind,
};
use crate::error::CliError;
use crate::project::{Project, binaries, names};
use crate::terminal::{Paint, Table, tell};

/// The program that plays every defect of the processor's table.
const FAKE: &str = "proofhouse-fake-worker";
/// The folder of the worker that plays those on a GPU, below the project's root.
pub(super) const CUDA_FIXTURES: &str = "harness/testkit/cuda";

/// Runs every exploit through the real runner, checker and judge.
pub fn selftest(
    project: &Project,
    common: &Common,
    asked: &SelftestArguments,
) -> Result<Exit, CliError> {
    let begun = now();
    let device = match asked.device {
        SelftestDevice::Cpu => DeviceKind::Cpu,
        SelftestDevice::Cuda => DeviceKind::Cuda,
    };
    let exploits = exploits(device, asked);
    if exploits.is_empty() {
        tell("no exploit has such a name; `proofhouse selftest` runs them all");
        return Ok(Exit::NothingSelected);
    }
    let run = options(project, &run_arguments(asked))?;
    if let Some(reason) = run.devices.absent(device) {
        out(&format!("nothing was planted: {reason}\n"))?;
        return Ok(Exit::NotRun);
    }
    let fixture = fixture(project, device)?;
    let options = SelftestOptions { run, fixture, catalog: project.catalog()? };
    let (events, received) = channel();
    let stop = Stop::new();
    let teller = thread::spawn(move || {
        for event in received {
            match event {
                Event::StepFinished { step, outcome, elapsed_ms } => {
                    tell(&format!("{step}: {outcome} ({:.1} s)", elapsed_ms / 1e3));
                }
                Event::Warning { message } => tell(&format!("  {message}")),
                _ => {}
            }
        }
    });
    let found = proofhouse_runner::selftest(&options, &exploits, &GateJudge, &stop, &events);
    drop(events);
    // The teller only prints.
    let _ = teller.join();
    let found = found?;
    let paint = Paint::stdout(common.color);
    out(&table(&found.exploits, paint))?;
    out(&format!("\n{}", batteries(&found.batteries, paint)))?;
    let complete = found.exploits.len() == exploits.len();
    if asked.filter.is_none() && complete && !asked.no_record {
        let record = SelftestRecord {
            schema: SCHEMA.to_owned(),
            tool: TOOL.to_owned(),
            started: begun,
            source: options.run.facts.source.clone(),
            host: options.run.facts.host.clone(),
            device: options.run.devices.found.get(&device).cloned(),
            exploits: found.exploits.clone(),
            batteries: found.batteries.clone(),
        };
        let folder = Folder::new(&project.evidence);
        let mut writer = Writer::open(folder, &options.run.facts.writer)?;
        let (_, file) = writer.put(&Record::Selftest(Box::new(record)), begun)?;
        out(&format!("recorded in {}/{file}\n", project.shown(&project.evidence)))?;
    }
    if let Some(result) = &asked.result {
        archive::pack(&project.evidence, "evidence", result)?;
        out(&format!("packed in {}\n", result.display()))?;
    }
    conclude(&found.exploits, &found.batteries, complete, paint)
}

/// What `run` would take for the device.
fn run_arguments(asked: &SelftestArguments) -> RunArguments {
    let device = match asked.device {
        SelftestDevice::Cpu => DeviceWord::Cpu,
        SelftestDevice::Cuda => DeviceWord::Cuda,
    };
    RunArguments { device, gpu: asked.gpu.clone(), ..quick_arguments() }
}

/// The program that plays the exploits of a device.
fn fixture(project: &Project, device: DeviceKind) -> Result<Fixture, CliError> {
    let present = |path: PathBuf| {
        if path.is_file() { Ok(path) } else { Err(CliError::NoBinary { path }) }
    };
    let fixture = match device {
        DeviceKind::Cpu => {
            let program = present(binaries()?.join(FAKE))?;
            Fixture {
                device,
                command: vec![program.to_string_lossy().into_owned()],
                folder: None,
                environment: Environment::Binary,
                packages: BTreeMap::new(),
                variables: BTreeMap::new(),
                includes: Vec::new(),
                dtypes: vec![Dtype::F32],
                refusals: true,
                neighbor: Vec::new(),
            }
        }
        DeviceKind::Cuda => {
            let folder = project.root.join(CUDA_FIXTURES);
            let neighbor = present(folder.join("neighbor.py"))?.to_string_lossy().into_owned();
            present(folder.join("worker.py"))?;
            // Where the modules lie that its worker shares with the baselines.
            let modules = project.root.join("baselines").to_string_lossy().into_owned();
            let any = |name: &str| (name.to_owned(), "*".to_owned());
            Fixture {
                device,
                command: vec!["{python}".to_owned(), "{folder}/worker.py".to_owned()],
                folder: Some(folder),
                environment: Environment::Host,
                packages: BTreeMap::from([any("torch"), any("numpy")]),
                variables: BTreeMap::from([("PYTHONPATH".to_owned(), modules)]),
                includes: vec!["allocation".to_owned(), "copy".to_owned()],
                dtypes: vec![Dtype::F32, Dtype::BF16],
                refusals: false,
                neighbor: vec!["python3".to_owned(), neighbor],
            }
        }
    };
    Ok(fixture)
}

fn exploits(device: DeviceKind, asked: &SelftestArguments) -> Vec<Exploit> {
    let kind = asked.kind.map(|kind| match kind {
        SelftestKind::Correctness => GateKind::Correctness,
        SelftestKind::Graph => GateKind::Graph,
        SelftestKind::Baseline => GateKind::Baseline,
    });
    let filter = asked.filter.as_deref();
    let table = match device {
        DeviceKind::Cpu => DEFECTS,
        DeviceKind::Cuda => CUDA_DEFECTS,
    };
    table
        .iter()
        .filter(|defect| filter.is_none_or(|text| defect.name.contains(text)))
        .filter(|defect| kind.is_none_or(|kind| defect.kind == kind))
        .map(|defect| Exploit {
            name: defect.name.to_owned(),
            pitfall: defect.pitfall.to_owned(),
            expected: defect.expected.to_vec(),
            codes: defect.codes.iter().map(|code| (*code).to_owned()).collect(),
            kind: defect.kind,
            control: defect.control,
            cache: defect.cache,
            launch: defect.launch,
            followed: defect.followed,
            neighbor: defect.neighbor,
        })
        .collect()
}

fn table(results: &[ExploitResult], paint: Paint) -> String {
    let mut table =
        Table::new(&["", "fixture", "gate", "pitfall", "got", "must get", "for", "reasons"]);
    for result in results {
        let mark = if result.right { "ok" } else { "no" };
        let shown = if result.right { paint.good(mark) } else { paint.bad(mark) };
        let name =
            if result.control { format!("{} (honest)", result.name) } else { result.name.clone() };
        table.painted(vec![
            (mark.to_owned(), Some(shown)),
            (name, None),
            (result.kind.map_or(String::new(), |kind| kind.to_string()), None),
            (result.pitfall.clone(), None),
            (result.found.to_string(), Some(paint.verdict(result.found, result.found.as_str()))),
            (names(result.expected.iter()), None),
            (names(result.expected_codes.iter()), None),
            (result.codes.join(" "), None),
        ]);
    }
    table.render(|head| paint.faint(head))
}

fn batteries(batteries: &BTreeMap<String, QualificationScore>, paint: Paint) -> String {
    let mut table = Table::new(&["checker", ">killed", ">mutants", ">equivalent", ">false alarms"]);
    for (name, score) in batteries {
        table.row(vec![
            name.clone(),
            score.killed.to_string(),
            score.mutants.to_string(),
            score.equivalent.to_string(),
            score.false_alarms.to_string(),
        ]);
    }
    table.render(|head| paint.faint(head))
}

fn conclude(
    results: &[ExploitResult],
    batteries: &BTreeMap<String, QualificationScore>,
    complete: bool,
    paint: Paint,
) -> Result<Exit, CliError> {
    let of = |control: bool| results.iter().filter(move |r| r.control == control);
    let (faults, honest) = (of(false).count(), of(true).count());
    let killed = of(false).filter(|r| r.right).count();
    let alarms = of(true).filter(|r| !r.right).count();
    let blunt = batteries.values().filter(|score| !score.qualified()).count();
    let right = complete && killed == faults && alarms == 0 && blunt == 0 && faults > 0;
    let line = format!(
        "{killed} of {faults} planted faults found, {alarms} false alarms on {honest} honest controls, {blunt} blunt checkers"
    );
    out(&format!("{}\n", if right { paint.good(&line) } else { paint.bad(&line) }))?;
    let not_run = results.iter().all(|result| result.found == Verdict::NotRun);
    Ok(match (complete, right) {
        (false, _) => Exit::Interrupted,
        (true, true) => Exit::Passed,
        (true, false) if not_run => Exit::NotRun,
        (true, false) => Exit::Failed,
    })
}

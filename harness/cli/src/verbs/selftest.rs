//! `selftest`: planted faults and exploits, and the kill score.

use std::collections::BTreeMap;
use std::sync::mpsc::channel;
use std::thread;

use proofhouse_evidence::{Folder, Writer, now};
use proofhouse_runner::ports::GateJudge;
use proofhouse_runner::{Exploit, SelftestOptions, Stop};
use proofhouse_schema::SCHEMA;
use proofhouse_schema::event::Event;
use proofhouse_schema::evidence::{ExploitResult, QualificationScore, Record, SelftestRecord};
use proofhouse_schema::exit::Exit;
use proofhouse_testkit::DEFECTS;

use super::run::options;
use super::{TOOL, out, quick_arguments};
use crate::arguments::{Common, SelftestArguments};
use crate::error::CliError;
use crate::project::{Project, binaries, names};
use crate::terminal::{Paint, Table, tell};

/// The program that plays every defect.
const FAKE: &str = "proofhouse-fake-worker";

/// Runs every exploit through the real runner, checker and judge.
pub fn selftest(
    project: &Project,
    common: &Common,
    asked: &SelftestArguments,
) -> Result<Exit, CliError> {
    let begun = now();
    let fake_worker = binaries()?.join(FAKE);
    if !fake_worker.is_file() {
        return Err(CliError::NoBinary { path: fake_worker });
    }
    let exploits = exploits(asked.filter.as_deref());
    if exploits.is_empty() {
        tell("no exploit has such a name; `proofhouse selftest` runs them all");
        return Ok(Exit::NothingSelected);
    }
    let options = SelftestOptions {
        run: options(project, &quick_arguments())?,
        fake_worker,
        catalog: project.catalog()?,
    };
    let (events, received) = channel();
    let stop = Stop::new();
    let teller = thread::spawn(move || {
        for event in received {
            if let Event::StepFinished { step, outcome, elapsed_ms } = event {
                tell(&format!("{step}: {outcome} ({:.1} s)", elapsed_ms / 1e3));
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
            exploits: found.exploits.clone(),
            batteries: found.batteries.clone(),
        };
        let folder = Folder::new(&project.evidence);
        let mut writer = Writer::open(folder, &options.run.facts.writer)?;
        let (_, file) = writer.put(&Record::Selftest(Box::new(record)), begun)?;
        out(&format!("recorded in {}/{file}\n", project.shown(&project.evidence)))?;
    }
    conclude(&found.exploits, &found.batteries, complete, paint)
}

fn exploits(filter: Option<&str>) -> Vec<Exploit> {
    DEFECTS
        .iter()
        .filter(|defect| filter.is_none_or(|text| defect.name.contains(text)))
        .map(|defect| Exploit {
            name: defect.name.to_owned(),
            pitfall: defect.pitfall.to_owned(),
            expected: defect.expected.to_vec(),
            kind: defect.kind,
            control: defect.control,
        })
        .collect()
}

fn table(results: &[ExploitResult], paint: Paint) -> String {
    let mut table = Table::new(&["", "fixture", "pitfall", "got", "must get", "reasons"]);
    for result in results {
        let mark = if result.right { "ok" } else { "no" };
        let shown = if result.right { paint.good(mark) } else { paint.bad(mark) };
        let name =
            if result.control { format!("{} (honest)", result.name) } else { result.name.clone() };
        table.painted(vec![
            (mark.to_owned(), Some(shown)),
            (name, None),
            (result.pitfall.clone(), None),
            (result.found.to_string(), Some(paint.verdict(result.found, result.found.as_str()))),
            (names(result.expected.iter()), None),
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
    Ok(match (complete, right) {
        (false, _) => Exit::Interrupted,
        (true, true) => Exit::Passed,
        (true, false) => Exit::Failed,
    })
}

//! Environments of providers: made once from their lock, and every way to have none is a reason.
#![allow(dead_code, reason = "the stage is shared by several test programs")]
#![allow(clippy::unwrap_used, reason = "the stage is test code")]

mod stage;

use proofhouse_schema::event::Event;
use proofhouse_schema::evidence::Observation;
use proofhouse_schema::exit::Exit;
use proofhouse_schema::provider::Environment;
use proofhouse_schema::verdict::Verdict;
use stage::Stage;

/// A worker in Python that starts the fake in its place.
const WORKER: &str = "import os, sys\nos.execv(sys.argv[1], [sys.argv[1]])\n";

fn python_stage(lock: Option<&str>) -> Stage {
    let mut stage = Stage::new("none");
    stage.options.gates = vec![stage::gate(1)];
    stage.options.offline = false;
    stage.options.environment.insert("PIP_NO_INDEX".to_owned(), "1".to_owned());
    let home = &mut stage.options.providers[1];
    std::fs::write(home.folder.join("worker.py"), WORKER).unwrap();
    let fake = home.provider.command[0].clone();
    home.provider.command = vec!["{python}".to_owned(), "{folder}/worker.py".to_owned(), fake];
    home.provider.environment = Environment::Venv;
    if let Some(lock) = lock {
        std::fs::write(home.folder.join("requirements.lock"), lock).unwrap();
        home.provider.lock = Some("requirements.lock".to_owned());
    }
    stage
}

fn steps(events: &[Event]) -> Vec<String> {
    let outcome = |event: &Event| match event {
        Event::StepFinished { step, outcome, .. } => Some(format!("{step}: {outcome}")),
        _ => None,
    };
    events.iter().filter_map(outcome).collect()
}

/// The reason for which the stage's one cell did not run.
fn reason(stage: &Stage) -> String {
    let (outcome, events) = stage.run();
    assert_eq!(outcome.exit, Exit::NotRun);
    assert!(events.iter().any(|event| matches!(event, Event::ProviderAbsent { .. })));
    let (record, verdict) = stage.records().pop().unwrap();
    assert_eq!(verdict.verdict, Verdict::NotRun);
    let Observation::NotRun { reason } = record.observation else {
        panic!("{:?}", record.observation)
    };
    reason
}

#[test]
fn an_environment_is_made_once_and_used_again() {
    let mut stage = python_stage(Some("# nothing is needed\n"));
    let (outcome, events) = stage.run();
    assert_eq!(outcome.exit, Exit::Passed, "{:?}", stage.records());
    assert_eq!(steps(&events), ["make the virtual environment of fake: made"]);
    stage.options.reuse = proofhouse_runner::Reuse::Fresh;
    stage.options.offline = true;
    let (again, events) = stage.run();
    assert_eq!(again.exit, Exit::Passed);
    assert!(steps(&events).is_empty(), "{:?}", steps(&events));
}

#[test]
fn every_way_to_have_no_environment_is_a_reason() {
    let mut offline = python_stage(Some("# nothing\n"));
    offline.options.offline = true;
    assert!(reason(&offline).contains("offline"));
    assert!(reason(&python_stage(None)).contains("names no lock file"));
    let mut missing = python_stage(None);
    missing.options.providers[1].provider.lock = Some("missing.lock".to_owned());
    assert!(reason(&missing).contains("missing.lock"));
    let mut no_python = python_stage(Some("# nothing\n"));
    no_python.options.environment.insert("PATH".to_owned(), "/nowhere".to_owned());
    assert!(reason(&no_python).contains("no python3"));
}

#[test]
fn a_package_that_cannot_be_installed_is_a_reason_and_the_half_made_folder_is_not_used() {
    let pin = format!("no-such-package==1.0 --hash=sha256:{}\n", "0".repeat(64));
    let stage = python_stage(Some(&pin));
    assert!(reason(&stage).contains("pip install failed"));
    let (_, events) = stage.run();
    assert!(steps(&events)[0].contains("pip install failed"), "{:?}", steps(&events));
}

//! Environments of providers: made once from their lock, and every way to have none is a reason.
#![allow(dead_code, reason = "the stage is shared by several test programs")]
#![allow(clippy::unwrap_used, reason = "the stage is test code")]

mod stage;

use proofhouse_runner::Reuse;
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
    stage.options.reuse = Reuse::Fresh;
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

/// A stage whose worker takes its packages from a folder: `thing` 1.2.0 lies there, and `built` with a local label.
fn packages_stage(wanted: &[(&str, &str)]) -> Stage {
    let mut stage = python_stage(None);
    let home = &mut stage.options.providers[1];
    for (name, version) in [("thing", "1.2.0"), ("built", "2.0+cpu")] {
        let info = home.folder.join(format!("packages/{name}-{version}.dist-info"));
        std::fs::create_dir_all(&info).unwrap();
        let text = format!("Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n");
        std::fs::write(info.join("METADATA"), text).unwrap();
    }
    home.provider.environment = Environment::Path("packages".to_owned());
    let wanted = wanted.iter().map(|(name, version)| ((*name).to_owned(), (*version).to_owned()));
    home.provider.packages = wanted.collect();
    stage
}

#[test]
fn a_package_that_is_there_in_the_version_that_is_named_lets_the_provider_run() {
    let stage = packages_stage(&[("thing", "1.2.0"), ("built", "2.0")]);
    assert_eq!(stage.run().0.exit, Exit::Passed, "{:?}", stage.records());
    let any = packages_stage(&[("Thing", "*")]);
    assert_eq!(any.run().0.exit, Exit::Passed, "{:?}", any.records());
}

#[test]
fn a_package_that_is_missing_or_of_another_version_is_a_reason_and_starts_no_worker() {
    let stage = packages_stage(&[("thing", "1.3"), ("no-such-package", "*"), ("built", "2.0")]);
    let said = reason(&stage);
    let missing =
        "no-such-package: not installed, wanted any version; thing: found 1.2.0, wanted 1.3";
    assert!(said.ends_with(missing) && said.contains("Python 3."), "{said}");
    assert!(stage.records()[0].0.attempts.is_empty());
    let mut host = packages_stage(&[("thing", "*")]);
    host.options.providers[1].provider.environment = Environment::Host;
    assert!(reason(&host).contains("thing: not installed"), "the machine's own Python has it not");
}

#[test]
fn the_packages_of_a_baseline_are_looked_at_once_a_run_and_make_it_absent() {
    let mut stage = packages_stage(&[("no-such-package", "*")]);
    stage.options.gates = vec![stage::gate(3)];
    let (outcome, events) = stage.run();
    assert_eq!(outcome.exit, Exit::NotRun);
    let absent = |event: &&Event| matches!(event, Event::ProviderAbsent { .. });
    assert_eq!(events.iter().filter(absent).count(), 1);
    assert_eq!(stage.records().len(), 3);
}

#[test]
fn a_python_that_cannot_be_asked_is_a_reason() {
    let mut stage = packages_stage(&[("thing", "*")]);
    let variables = &mut stage.options.providers[1].provider.variables;
    variables.insert("PYTHONHOME".to_owned(), "/nowhere".to_owned());
    assert!(reason(&stage).contains("asking Python for its packages failed"), "{}", reason(&stage));
}

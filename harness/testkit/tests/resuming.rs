//! Timed gates that are stopped between replicates: what is whole is kept, another run goes on with it, and nothing that
//! does not fit is joined.
#![allow(dead_code, reason = "the stage is shared by several test programs")]
#![allow(clippy::unwrap_used, reason = "the stage is test code")]

mod stage;

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Duration;

use proofhouse_evidence::Folder;
use proofhouse_runner::ports::{Evidence, EvidenceError, Finished, FolderEvidence};
use proofhouse_runner::{Outcome, Reuse, Stop, plan};
use proofhouse_schema::canonical::Digest;
use proofhouse_schema::event::Event;
use proofhouse_schema::evidence::{BlobRef, CellRecord, Observation, Record, SessionRecord};
use proofhouse_schema::exit::Exit;
use proofhouse_schema::provider::Environment;
use proofhouse_schema::samples::Samples;
use proofhouse_schema::verdict::Verdict;
use stage::Stage;

/// Asks the run to stop once so many replicates of cells are kept.
struct StopAfterKeeps {
    inner: FolderEvidence,
    keeps: u32,
    stop: Stop,
}

impl Evidence for StopAfterKeeps {
    fn put(&mut self, record: &Record) -> Result<Digest, EvidenceError> {
        self.inner.put(record)
    }
    fn put_samples(&mut self, samples: &Samples) -> Result<BlobRef, EvidenceError> {
        self.inner.put_samples(samples)
    }
    fn finished(&self, key: &Digest) -> Result<Option<Finished>, EvidenceError> {
        self.inner.finished(key)
    }
    fn keep(&mut self, key: &Digest, number: u32, part: &[u8]) -> Result<(), EvidenceError> {
        self.keeps -= 1;
        if self.keeps == 0 {
            self.stop.request();
            self.keeps = u32::MAX;
        }
        self.inner.keep(key, number, part)
    }
    fn kept(&self, key: &Digest) -> Vec<Vec<u8>> {
        self.inner.kept(key)
    }
    fn forget(&mut self, key: &Digest) -> Result<(), EvidenceError> {
        self.inner.forget(key)
    }
}

/// Runs until so many replicates of cells are kept.
fn stopped_after(stage: &Stage, keeps: u32) -> Outcome {
    let stop = Stop::new();
    let inner = stage::open(&stage.evidence());
    let mut evidence = StopAfterKeeps { inner, keeps, stop: stop.clone() };
    stage.run_with(&mut evidence, &stop).0.unwrap()
}

/// Each cell record with its session.
fn records(stage: &Stage) -> Vec<(CellRecord, SessionRecord)> {
    let stored = Folder::new(stage.evidence()).read_all().unwrap();
    let session = |digest: &Digest| {
        let found = stored.iter().find(|s| s.digest == *digest).unwrap();
        let Record::Session(session) = &found.record else { panic!("{:?}", found.file) };
        (**session).clone()
    };
    let cells = stage.records().into_iter().map(|(cell, _)| cell);
    cells.map(|cell| (cell.clone(), session(&cell.session))).collect()
}

/// Replicates whose processes were started before the record's session.
fn earlier(cell: &CellRecord, session: &SessionRecord) -> BTreeSet<u32> {
    let before = cell.attempts.iter().filter(|attempt| attempt.started.0 < session.started.0);
    before.map(|attempt| attempt.replicate).collect()
}

/// Providers and replicates that a record has an arm of.
fn arms(cell: &CellRecord) -> Vec<(String, u32)> {
    let Observation::Baseline(seen) = &cell.observation else { panic!("{:?}", cell.observation) };
    let mut arms: Vec<_> =
        seen.arms.iter().map(|arm| (arm.provider.to_string(), arm.replicate)).collect();
    arms.sort();
    arms
}

fn whole() -> Vec<(String, u32)> {
    ["fake", "other"].iter().flat_map(|id| (0..3).map(|r| ((*id).to_owned(), r))).collect()
}

/// The files of kept replicates.
fn slices(stage: &Stage) -> Vec<PathBuf> {
    let keys = std::fs::read_dir(stage.evidence().join(".partial")).into_iter().flatten().flatten();
    let keys = keys.map(|key| key.path()).filter(|path| path.is_dir());
    let parts = keys.flat_map(|key| std::fs::read_dir(key).unwrap().flatten());
    let mut parts: Vec<_> = parts.map(|part| part.path()).collect();
    parts.sort();
    parts
}

fn warnings(events: &[Event]) -> Vec<&str> {
    fn message(event: &Event) -> Option<&str> {
        match event {
            Event::Warning { message } => Some(message),
            _ => None,
        }
    }
    events.iter().filter_map(message).collect()
}

/// How a run ended, as far as a real clock on a busy machine lets it: a time that cannot be trusted or cannot decide is no
/// fault of what is tested here.
fn decided(exit: Exit) -> Exit {
    match exit {
        Exit::Invalid | Exit::Inconclusive => Exit::Passed,
        exit => exit,
    }
}

#[test]
fn a_run_goes_on_with_the_replicates_that_were_kept() {
    let stage = Stage::timed("none");
    let first = stopped_after(&stage, 2);
    assert_eq!((first.exit, first.left, first.begun), (Exit::Interrupted, 2, 2));
    assert!(first.verdicts.is_empty() && stage.records().is_empty());
    assert_eq!(slices(&stage).len(), 2, "one replicate of two cells");
    let planned = plan(&stage.options, &stage::open(&stage.evidence())).unwrap();
    assert_eq!((planned.cells(), planned.reused(), planned.begun()), (2, 0, 2));
    let (second, _) = stage.run();
    assert_eq!((decided(second.exit), second.left, second.begun), (Exit::Passed, 0, 0));
    for (cell, session) in records(&stage) {
        assert_eq!(arms(&cell), whole());
        assert_eq!(earlier(&cell, &session), BTreeSet::from([0]), "only the first was kept");
        assert_eq!(session.controls.len(), 4, "both sessions' controls hold");
        let attempts =
            |replicate| cell.attempts.iter().filter(|a| a.replicate == replicate).count();
        assert_eq!([0, 1, 2].map(attempts), [2; 3], "one process of each provider a replicate");
    }
    assert!(slices(&stage).is_empty(), "what became evidence is not kept");
    assert!(Folder::new(stage.evidence()).verify().unwrap().findings.is_empty());
    let (third, _) = stage.run();
    if second.exit == Exit::Passed {
        assert_eq!((third.exit, third.reused), (Exit::Passed, 2));
    }
}

#[test]
fn replicates_are_joined_over_more_than_two_runs_and_each_sessions_controls_hold() {
    let stage = Stage::timed("none");
    for _ in 0..2 {
        assert_eq!(stopped_after(&stage, 2).exit, Exit::Interrupted);
    }
    assert_eq!(slices(&stage).len(), 4);
    assert_eq!(decided(stage.run().0.exit), Exit::Passed);
    for (cell, session) in records(&stage) {
        assert_eq!((arms(&cell), session.controls.len()), (whole(), 6));
        assert_eq!(earlier(&cell, &session), BTreeSet::from([0, 1]));
    }
}

#[test]
fn a_run_that_lacks_no_replicate_measures_nothing_and_writes_the_records() {
    let stage = Stage::timed("none");
    assert_eq!(stopped_after(&stage, 4).exit, Exit::Interrupted);
    let third = slices(&stage).iter().find(|s| s.ends_with("1.json")).unwrap().clone();
    // The last replicate of one cell, as if the run had been killed before its record was written.
    let text = std::fs::read_to_string(&third).unwrap();
    let text = text.replace("\"replicate\":1", "\"replicate\":2");
    std::fs::write(third.with_file_name("2.json"), text).unwrap();
    let (outcome, _) = stage.run();
    assert_eq!(decided(outcome.exit), Exit::Passed);
    let records = records(&stage);
    let before = records.iter().map(|(cell, session)| earlier(cell, session).len());
    assert_eq!(before.collect::<BTreeSet<_>>(), BTreeSet::from([2, 3]));
    assert!(records.iter().all(|(cell, _)| cell.checker.version.known().is_some()));
}

#[test]
fn a_provider_that_says_something_else_of_itself_is_measured_again() {
    let mut stage = Stage::timed("none");
    stopped_after(&stage, 2);
    let variables = &mut stage.options.providers[2].provider.variables;
    variables.insert("PROOFHOUSE_FAKE_VERSION".to_owned(), "9".to_owned());
    let (outcome, events) = stage.run();
    assert_eq!(decided(outcome.exit), Exit::Passed);
    let told = "other is not what it was when replicates were kept";
    assert!(warnings(&events).iter().any(|line| line.contains(told)), "{:?}", warnings(&events));
    for (cell, session) in records(&stage) {
        assert_eq!((arms(&cell), earlier(&cell, &session)), (whole(), BTreeSet::new()));
        assert_eq!(session.controls.len(), 2);
        assert_eq!(cell.baselines[0].version.known().map(String::as_str), Some("9"));
    }
}

#[test]
fn replicates_of_another_tool_another_party_or_no_slice_at_all_are_measured_again() {
    let changes: [fn(&mut Stage); 4] = [
        |stage| stage.options.facts.tool = "another version".to_owned(),
        |stage| stage.options.facts.source.dirty = proofhouse_schema::probe::Probe::Known(true),
        |stage| slices(stage).iter().for_each(|part| std::fs::write(part, b"{}").unwrap()),
        |stage| stage.options.reuse = Reuse::Fresh,
    ];
    for (number, change) in changes.into_iter().enumerate() {
        let mut stage = Stage::timed("none");
        stopped_after(&stage, 2);
        change(&mut stage);
        assert_eq!(decided(stage.run().0.exit), Exit::Passed, "change {number}");
        for (cell, session) in records(&stage) {
            let seen = (arms(&cell), earlier(&cell, &session));
            assert_eq!(seen, (whole(), BTreeSet::new()), "change {number}");
        }
        assert!(slices(&stage).is_empty(), "change {number}");
    }
}

#[test]
fn a_baseline_that_is_gone_takes_the_kept_replicates_with_it() {
    let mut stage = Stage::timed("none");
    stage.options.gates[0].header.baselines.push("third".parse().unwrap());
    let mut third = stage.options.providers[2].clone();
    third.provider.id = "third".parse().unwrap();
    let said = "PROOFHOUSE_FAKE_ID".to_owned();
    third.provider.variables.insert(said, "third".to_owned());
    stage.options.providers.push(third);
    stopped_after(&stage, 2);
    stage.options.providers[3].provider.environment = Environment::Host;
    stage.options.providers[3].provider.packages = [("no-such-package".into(), "*".into())].into();
    assert_eq!(decided(stage.run().0.exit), Exit::Passed);
    for (cell, session) in records(&stage) {
        assert_eq!((arms(&cell), earlier(&cell, &session)), (whole(), BTreeSet::new()));
        let Observation::Baseline(seen) = &cell.observation else { panic!() };
        let why = seen.absent.values().next().unwrap();
        assert!(why.contains("no-such-package: not installed"), "{why}");
    }
}

#[test]
fn the_check_for_remembered_results_is_made_once_however_often_a_run_is_stopped() {
    let stage = Stage::timed("none");
    stopped_after(&stage, 2);
    let looked: Vec<PathBuf> = slices(&stage)
        .into_iter()
        .filter(|part| std::fs::read_to_string(part).unwrap().contains("\"identical\":true"))
        .collect();
    assert_eq!(looked.len(), 1, "in the larger cell alone");
    let text = std::fs::read_to_string(&looked[0]).unwrap();
    std::fs::write(&looked[0], text.replace("\"identical\":true", "\"identical\":false")).unwrap();
    assert_eq!(decided(stage.run().0.exit), Exit::Passed);
    let kept: Vec<BTreeSet<u32>> =
        records(&stage).iter().map(|(cell, session)| earlier(cell, session)).collect();
    assert_eq!(kept, [BTreeSet::from([0]), BTreeSet::new()], "without the check it is made again");
}

#[test]
fn a_candidate_that_is_lost_is_recorded_and_its_replicates_are_not_kept() {
    let mut stage = Stage::timed("early-exit");
    stage.options.gates[0].cells.truncate(1);
    let (outcome, _) = stage.run();
    assert_eq!(outcome.verdicts[0].verdict, Verdict::Errored);
    assert!(slices(&stage).is_empty());
}

#[test]
fn a_time_budget_that_allows_nothing_is_not_run_and_says_what_is_left() {
    for mut stage in [Stage::new("none"), Stage::timed("none")] {
        stage.options.time_budget = Some(Duration::ZERO);
        let (outcome, events) = stage.run();
        assert_eq!((outcome.exit, outcome.left), (Exit::NotRun, 2));
        assert!(stage.records().is_empty() && outcome.problem.is_none());
        let told = "2 of 2 cells are left, 2 of them required; replicates of 0 are kept";
        assert!(
            warnings(&events).iter().any(|line| line.contains(told)),
            "{:?}",
            warnings(&events)
        );
    }
}

#[test]
fn a_time_budget_in_the_middle_leaves_whole_cells_and_good_ends() {
    let mut stage = Stage::new("none");
    stage.options.gates = vec![stage::gate(5000)];
    stage.options.time_budget = Some(Duration::from_secs(3));
    let (outcome, _) = stage.run();
    assert_eq!(outcome.exit, Exit::NotRun);
    assert_eq!(outcome.left + outcome.verdicts.len(), 5000);
    assert!(outcome.left > 0 && outcome.verdicts.iter().all(|v| v.verdict == Verdict::Pass));
    assert_eq!(stage.records().len(), outcome.verdicts.len());
}

#[test]
fn a_time_budget_in_the_middle_of_a_timed_gate_is_no_loss() {
    let mut stage = Stage::timed("none");
    stage.options.gates[0].cells = stage::gate(90).cells;
    stage.options.time_budget = Some(Duration::from_secs(5));
    let (outcome, _) = stage.run();
    assert!(matches!(decided(outcome.exit), Exit::NotRun | Exit::Passed), "{:?}", outcome.exit);
    assert_eq!(outcome.left + outcome.verdicts.len(), 90);
    let kept: BTreeSet<PathBuf> =
        slices(&stage).iter().map(|part| part.parent().unwrap().to_owned()).collect();
    assert_eq!(kept.len(), outcome.begun);
    stage.options.time_budget = None;
    let (rest, _) = stage.run();
    assert_eq!((decided(rest.exit), rest.left), (Exit::Passed, 0));
    if outcome.verdicts.iter().all(|verdict| verdict.verdict == Verdict::Pass) {
        assert_eq!(rest.reused, outcome.verdicts.len());
    }
    assert!(records(&stage).iter().all(|(cell, _)| arms(cell) == whole()));
    assert!(slices(&stage).is_empty());
}

//! Whole runs: reuse, stopping, dying, disks and folders that fail.
#![allow(dead_code, reason = "the stage is shared by several test programs")]
#![allow(clippy::unwrap_used, reason = "the stage is test code")]

mod stage;

use std::io::{BufRead as _, BufReader};
use std::process::{Command, Stdio};
use std::time::Instant;

use proofhouse_evidence::Folder;
use proofhouse_runner::ports::{Evidence, EvidenceError, Finished, FolderEvidence};
use proofhouse_runner::{Filter, Reuse, Shard, Stop, plan};
use proofhouse_schema::canonical::Digest;
use proofhouse_schema::event::Event;
use proofhouse_schema::evidence::{BlobRef, Observation, Record};
use proofhouse_schema::exit::Exit;
use proofhouse_schema::samples::Samples;
use proofhouse_schema::verdict::Verdict;
use rustix::process::{Pid, Signal, kill_process};
use stage::Stage;

#[test]
fn a_second_run_uses_evidence_again_and_starts_nothing() {
    let mut stage = Stage::new("none");
    // A trace tells of every process that is started.
    let trace = stage.folder.path().join("trace.json");
    stage.options.trace = Some(trace.clone());
    let starts = || {
        let text = std::fs::read_to_string(&trace).unwrap_or_default();
        text.lines().filter(|line| line.contains("\"cat\":\"start\"")).count()
    };
    let (first, _) = stage.run();
    assert_eq!((first.exit, first.reused), (Exit::Passed, 0));
    assert!(starts() > 1, "a checker and a candidate");
    std::fs::remove_file(&trace).unwrap();
    let (second, events) = stage.run();
    assert_eq!((second.exit, second.reused, second.verdicts.len()), (Exit::Passed, 2, 2));
    assert!(second.session.is_none());
    assert_eq!(starts(), 0);
    assert!(!events.iter().any(|event| matches!(event, Event::CellStarted { .. })));
    assert_eq!(stage.records().len(), 2);
}

#[test]
fn fresh_measures_again_and_changed_content_is_not_reused() {
    let mut stage = Stage::new("none");
    stage.run();
    stage.options.reuse = Reuse::Fresh;
    assert_eq!(stage.run().0.reused, 0);
    stage.options.reuse = Reuse::ByContent;
    assert_eq!(stage.run().0.reused, 2);
    std::fs::write(stage.options.providers[1].folder.join("provider.toml"), "changed").unwrap();
    assert_eq!(stage.run().0.reused, 0, "the provider's source changed");
    stage.options.profile.samples += 1;
    assert_eq!(stage.run().0.reused, 0, "the profile changed");
}

#[test]
fn what_is_not_decided_is_tried_again() {
    let stage = Stage::new("abort");
    assert_eq!(stage.run().0.exit, Exit::Errored);
    let (again, _) = stage.run();
    assert_eq!((again.reused, again.exit), (0, Exit::Errored));
}

#[test]
fn filters_and_shards_select_and_nothing_selected_is_said() {
    let mut stage = Stage::new("none");
    stage.options.gates = vec![stage::gate(9)];
    stage.options.selection.filters = vec![Filter::Text("rows=0004".to_owned())];
    let evidence = FolderEvidence::read(Folder::new(stage.evidence())).unwrap();
    assert_eq!(plan(&stage.options, &evidence).unwrap().cells(), 1);
    stage.options.selection.filters.clear();
    let part = |i| {
        let mut options = stage.options.clone();
        options.selection.shard = Some(Shard::new(i, 3).unwrap());
        plan(&options, &evidence).unwrap().cells()
    };
    assert_eq!((1..=3).map(part).sum::<usize>(), 9);
    stage.options.selection.filters = vec![Filter::Text("nothing-like-it".to_owned())];
    let (outcome, _) = stage.run();
    assert_eq!((outcome.exit, outcome.planned), (Exit::NothingSelected, 0));
}

#[test]
fn several_jobs_give_the_same_verdicts() {
    let mut stage = Stage::new("none");
    stage.options.gates = vec![stage::gate(40)];
    stage.options.jobs = 3;
    let (outcome, _) = stage.run();
    assert_eq!((outcome.exit, outcome.verdicts.len()), (Exit::Passed, 40));
}

#[test]
fn an_unknown_provider_is_an_error_that_names_the_known_ones() {
    let mut stage = Stage::new("none");
    stage.options.gates[0].header.candidates = vec!["missing".parse().unwrap()];
    let mut evidence = stage::open(&stage.evidence());
    let error = stage.run_with(&mut evidence, &Stop::new()).0.unwrap_err();
    assert_eq!(error.exit(), Exit::Setup);
    let text = error.to_string();
    assert!(text.contains("missing") && text.contains("fake, oracle"), "{text}");
}

#[test]
fn a_checker_that_is_none_makes_no_pass() {
    let mut stage = Stage::new("none");
    let fake = stage.options.providers[1].provider.command[0].clone();
    stage.options.providers[0].provider.command = vec![fake];
    let (outcome, _) = stage.run();
    assert!(outcome.exit != Exit::Passed, "{outcome:?}");
    for (record, verdict) in stage.records() {
        assert_eq!(verdict.verdict, Verdict::Errored);
        let Observation::Errored { provider, .. } = record.observation else { panic!() };
        assert_eq!(provider.as_str(), "oracle");
    }
}

#[test]
fn a_stop_keeps_what_finished_and_a_later_run_does_the_rest() {
    let mut stage = Stage::new("none");
    stage.options.gates = vec![stage::gate(12)];
    let stop = Stop::new();
    let mut evidence =
        StopAfter { inner: stage::open(&stage.evidence()), cells: 3, stop: stop.clone() };
    let (outcome, _) = stage.run_with(&mut evidence, &stop);
    let outcome = outcome.unwrap();
    drop(evidence);
    assert_eq!(outcome.exit, Exit::Interrupted);
    let kept = stage.records().len();
    assert_eq!(kept, outcome.verdicts.len());
    assert!((3..12).contains(&kept), "{kept}");
    let (rest, _) = stage.run();
    assert_eq!((rest.exit, rest.reused, rest.verdicts.len()), (Exit::Passed, kept, 12));
}

/// Asks the run to stop once some cells are written.
struct StopAfter {
    inner: FolderEvidence,
    cells: usize,
    stop: Stop,
}

impl Evidence for StopAfter {
    fn put(&mut self, record: &Record) -> Result<Digest, EvidenceError> {
        let digest = self.inner.put(record);
        if matches!(record, Record::Verdict(_)) {
            self.cells -= 1;
            if self.cells == 0 {
                self.stop.request();
                self.cells = usize::MAX;
            }
        }
        digest
    }
    fn put_samples(&mut self, samples: &Samples) -> Result<BlobRef, EvidenceError> {
        self.inner.put_samples(samples)
    }
    fn finished(&self, key: &Digest) -> Result<Option<Finished>, EvidenceError> {
        self.inner.finished(key)
    }
}

#[test]
fn a_time_budget_ends_a_run_that_hangs_and_records_no_half_cell() {
    let mut stage = Stage::new("hang");
    stage.options.time_budget = Some(std::time::Duration::from_millis(600));
    stage.options.limits.request = std::time::Duration::from_secs(60);
    let (outcome, _) = stage.run();
    assert_eq!((outcome.exit, outcome.left), (Exit::NotRun, 2));
    assert!(outcome.verdicts.is_empty());
    assert!(stage.records().is_empty());
}

/// A run in a process of its own.
fn one_run(stage: &Stage, defect: &str, cells: u32) -> std::process::Child {
    Command::new(stage::one_run())
        .arg(stage.folder.path())
        .arg(defect)
        .arg(cells.to_string())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap()
}

fn signal(child: &std::process::Child, signal: Signal) {
    kill_process(Pid::from_child(child), signal).unwrap();
}

#[test]
fn a_killed_run_loses_nothing_that_finished_and_is_resumed() {
    let stage = Stage::new("none");
    let mut child = one_run(&stage, "none", 400);
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    for _ in 0..3 {
        assert!(lines.next().unwrap().unwrap().starts_with("finished"));
    }
    assert!(leftover_workers(&stage), "the marker is not seen while workers live");
    signal(&child, Signal::KILL);
    child.wait().unwrap();
    let told = 3 + lines.map_while(Result::ok).filter(|line| line.starts_with("finished")).count();
    let mut resumed = one_run(&stage, "none", 400);
    let output = std::io::read_to_string(resumed.stdout.take().unwrap()).unwrap();
    assert_eq!(resumed.wait().unwrap().code(), Some(0));
    let reused = output.lines().filter(|line| line.ends_with("reused=true")).count();
    assert!(reused >= told && reused < 400, "{told} were told, {reused} were used again");
    assert_eq!(output.lines().count(), 400);
    let verified = Folder::new(stage.evidence()).verify().unwrap();
    assert!(verified.findings.is_empty(), "{:?}", verified.findings);
    assert!(!leftover_workers(&stage), "workers of the killed run live");
}

#[test]
fn what_workers_started_does_not_outlive_a_killed_run() {
    for leaves in [stage::Leaves::Child, stage::Leaves::ScrubbedChild] {
        let stage = Stage::new("none");
        let mut command = Command::new(stage::one_run());
        command.arg(stage.folder.path()).args(["hang", "2", leaves.name()]);
        let mut child = command.stdout(Stdio::null()).spawn().unwrap();
        let lingering = || lives("--linger", stage.folder.path().to_str().unwrap());
        while !lingering() {
            assert!(child.try_wait().unwrap().is_none(), "{leaves:?}: the run ended");
        }
        // The run has looked at its worker's children some times since the child was there.
        let looks = looks(child.id());
        while self::looks(child.id()) < looks + 100 {}
        signal(&child, Signal::KILL);
        child.wait().unwrap();
        let begun = Instant::now();
        while lingering() {
            assert!(begun.elapsed().as_secs() < 20, "{leaves:?}: it lives on");
        }
    }
}

/// How often a process has gone to sleep and woken up: a run does whenever it looks at its workers.
fn looks(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
    line.unwrap().trim().parse().unwrap()
}

/// Whether a process with both texts among its arguments lives.
fn lives(argument: &str, marker: &str) -> bool {
    std::fs::read_dir("/proc").unwrap().flatten().any(|entry| {
        let arguments = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
        let arguments = String::from_utf8_lossy(&arguments).into_owned();
        arguments.contains(argument) && arguments.contains(marker)
    })
}

/// Whether a worker of this stage lives.
fn leftover_workers(stage: &Stage) -> bool {
    let marker = format!("PROOFHOUSE_FAKE_STAGE={}", stage.folder.path().display());
    std::fs::read_dir("/proc").unwrap().flatten().any(|entry| {
        let environment = std::fs::read(entry.path().join("environ")).unwrap_or_default();
        String::from_utf8_lossy(&environment).contains(&marker)
    })
}

#[test]
fn an_interrupt_ends_with_130_and_keeps_what_finished() {
    let stage = Stage::new("none");
    let mut child = one_run(&stage, "none", 400);
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    lines.next().unwrap().unwrap();
    signal(&child, Signal::INT);
    let told = 1 + lines.map_while(Result::ok).count();
    assert_eq!(child.wait().unwrap().code(), Some(130));
    assert_eq!(stage.records().len(), told);
    assert!(told < 400);
}

#[test]
fn two_runs_on_one_evidence_folder_are_a_typed_error() {
    let stage = Stage::new("none");
    let _first = stage::open(&stage.evidence());
    let second = FolderEvidence::open(Folder::new(stage.evidence()), &"other".parse().unwrap());
    let error = second.unwrap_err();
    let cause = std::error::Error::source(&error).unwrap().to_string();
    assert!(cause.contains("another run"), "{cause}");
}

#[test]
fn a_full_disk_ends_the_run_with_a_write_error_and_no_pass_is_lost() {
    let mut stage = Stage::new("none");
    stage.options.gates = vec![stage::gate(30)];
    let mut evidence = Full { inner: stage::open(&stage.evidence()), room: 7 };
    let (outcome, _) = stage.run_with(&mut evidence, &Stop::new());
    let outcome = outcome.unwrap();
    drop(evidence);
    assert_eq!(outcome.exit, Exit::WriteError);
    assert!(outcome.problem.is_some());
    // The session, then cells and verdicts by turns: three cells are whole.
    assert_eq!((outcome.verdicts.len(), stage.records().len()), (3, 3));
    let (rest, _) = stage.run();
    assert_eq!((rest.exit, rest.reused), (Exit::Passed, 3));
}

/// A folder with room for some records.
struct Full {
    inner: FolderEvidence,
    room: usize,
}

impl Evidence for Full {
    fn put(&mut self, record: &Record) -> Result<Digest, EvidenceError> {
        if self.room == 0 {
            return Err(EvidenceError {
                what: "writing a record".to_owned(),
                folder: "full".into(),
                source: Box::new(std::io::Error::from(std::io::ErrorKind::StorageFull)),
            });
        }
        self.room -= 1;
        self.inner.put(record)
    }
    fn put_samples(&mut self, samples: &Samples) -> Result<BlobRef, EvidenceError> {
        self.inner.put_samples(samples)
    }
    fn finished(&self, key: &Digest) -> Result<Option<Finished>, EvidenceError> {
        self.inner.finished(key)
    }
}

#[test]
fn an_evidence_folder_that_cannot_be_written_is_a_typed_error() {
    let stage = Stage::new("none");
    let path = stage.folder.path().join("file");
    std::fs::write(&path, "a file where a folder should be").unwrap();
    let opened =
        FolderEvidence::open(Folder::new(path.join("evidence")), &"tester".parse().unwrap());
    assert!(opened.unwrap_err().to_string().contains("opening for writing"));
}

/// What this thread had of a processor, in seconds: a busy machine makes that no longer.
fn processor_seconds() -> f64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    now.tv_sec as f64 + now.tv_nsec as f64 / 1e9
}

#[test]
fn ten_thousand_cells_are_planned_within_a_second() {
    let mut stage = Stage::new("none");
    stage.options.gates = vec![stage::gate(10_000)];
    let evidence = FolderEvidence::read(Folder::new(stage.evidence())).unwrap();
    let begun = processor_seconds();
    let planned = plan(&stage.options, &evidence).unwrap();
    let seconds = processor_seconds() - begun;
    assert_eq!(planned.cells(), 10_000);
    // The debug build hashes the workers' large binaries slowly; the bound is on the release build.
    let bound = if cfg!(debug_assertions) { 5.0 } else { 1.0 };
    assert!(seconds < bound, "{seconds} s");
}

//! What bad things get: each defect of a process or of its protocol, through the real runner.
#![allow(dead_code, reason = "the stage is shared by several test programs")]
#![allow(clippy::unwrap_used, reason = "the stage is test code")]

mod stage;

use std::time::Duration;

use proofhouse_schema::event::Event;
use proofhouse_schema::evidence::{CellRecord, Ending, Observation};
use proofhouse_schema::exit::Exit;
use proofhouse_schema::verdict::Verdict;
use stage::Stage;

/// A deadline that a test waits for. The checker has the same one, on a busy machine too.
const SHORT: Duration = Duration::from_secs(2);

/// Runs a gate of one cell with a defect; gives the record, the verdict and the run's exit.
fn one(defect: &str) -> (CellRecord, Verdict, Exit) {
    let mut stage = Stage::new(defect);
    stage.options.gates = vec![stage::gate(1)];
    play(&stage)
}

fn play(stage: &Stage) -> (CellRecord, Verdict, Exit) {
    let (outcome, _) = stage.run();
    assert!(outcome.problem.is_none(), "{:?}", outcome.problem);
    let mut records = stage.records();
    assert_eq!(records.len(), 1, "{records:?}");
    let (record, verdict) = records.remove(0);
    (record, verdict.verdict, outcome.exit)
}

fn errored(defect: &str) -> (Ending, String, CellRecord, Exit) {
    let (record, verdict, exit) = one(defect);
    assert_eq!(verdict, Verdict::Errored);
    let Observation::Errored { ending, detail, .. } = record.observation.clone() else {
        panic!("{:?}", record.observation)
    };
    (ending, detail, record, exit)
}

/// Whether a process with both texts lives: the first among its arguments, the second there or in its environment.
fn lives(argument: &str, marker: &str) -> bool {
    let processes = std::fs::read_dir("/proc").unwrap().flatten();
    processes.into_iter().any(|entry| {
        let read = |name: &str| std::fs::read(entry.path().join(name)).unwrap_or_default();
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        let arguments = text(read("cmdline"));
        arguments.contains(argument)
            && (arguments.contains(marker) || text(read("environ")).contains(marker))
    })
}

#[test]
fn an_honest_worker_passes_and_its_attempt_is_recorded() {
    let (record, verdict, exit) = one("none");
    assert_eq!((verdict, exit), (Verdict::Pass, Exit::Passed));
    let attempt = &record.attempts[0];
    assert_eq!(attempt.ending, Some(Ending::Exit(0)));
    assert_eq!(attempt.orphans, 0);
    assert!(attempt.peak_memory.known().is_some_and(|peak| peak.0 > 500_000));
    assert!(attempt.hello.is_some_and(|hello| hello.millis() > 0.0));
    assert!(!attempt.environment.contains_key("PROOFHOUSE_NONCE"));
    assert_eq!(attempt.environment.get("PATH").map(String::as_str), Some("(inherited)"));
}

#[test]
fn output_on_stdout_is_a_log_and_no_protocol() {
    let (record, verdict, _) = one("stdout-noise");
    assert_eq!(verdict, Verdict::Pass);
    assert!(record.attempts[0].stderr.contains("noise on stdout"));
}

#[test]
fn a_flood_on_stderr_neither_blocks_nor_fills_memory() {
    let (record, verdict, _) = one("stderr-flood");
    assert_eq!(verdict, Verdict::Pass);
    let log = &record.attempts[0].stderr;
    assert!(log.ends_with("the last line") && log.len() <= 16 << 10, "{} bytes", log.len());
}

#[test]
fn a_hang_is_ended_at_its_deadline() {
    let mut stage = Stage::new("hang");
    stage.options.gates = vec![stage::gate(1)];
    stage.options.limits.request = SHORT;
    let (record, verdict, exit) = play(&stage);
    assert_eq!((verdict, exit), (Verdict::Errored, Exit::Errored));
    assert!(matches!(record.observation, Observation::Errored { ending: Ending::Timeout, .. }));
    assert_eq!(record.attempts[0].ending, Some(Ending::Timeout));
}

#[test]
fn a_hang_that_ignores_sigterm_is_killed() {
    let mut stage = Stage::new("hang-ignoring-sigterm");
    stage.options.gates = vec![stage::gate(1)];
    stage.options.limits.request = SHORT;
    let marker = format!("PROOFHOUSE_FAKE_STAGE={}", stage.folder.path().display());
    let (record, verdict, _) = play(&stage);
    assert_eq!(verdict, Verdict::Errored);
    assert_eq!(record.attempts[0].ending, Some(Ending::Timeout));
    assert!(!lives("hang-ignoring-sigterm", &marker));
}

#[test]
fn a_segfault_is_a_signal_and_the_next_cell_gets_a_fresh_process() {
    let stage = Stage::new("segfault");
    let (outcome, _) = stage.run();
    assert_eq!(outcome.exit, Exit::Errored);
    let records = stage.records();
    assert_eq!(records.len(), 2);
    let mut nonces = Vec::new();
    for (record, verdict) in &records {
        assert_eq!(verdict.verdict, Verdict::Errored);
        assert_eq!(record.attempts[0].ending, Some(Ending::Signal(11)));
        nonces.push(record.attempts[0].started);
    }
    assert_ne!(nonces[0], nonces[1], "one process for both cells");
}

#[test]
fn an_abort_is_a_signal() {
    assert_eq!(errored("abort").0, Ending::Signal(6));
}

#[test]
fn a_worker_over_its_memory_limit_is_ended() {
    let (ending, detail, record, exit) = errored("oom");
    assert_eq!((ending, exit), (Ending::MemoryLimit, Exit::Errored));
    assert!(detail.contains("resident memory"), "{detail}");
    assert!(record.attempts[0].peak_memory.known().is_some_and(|peak| peak.0 > 400 << 20));
}

#[test]
fn a_worker_that_never_connects_is_ended_at_its_deadline() {
    let mut stage = Stage::new("never-connects");
    stage.options.gates = vec![stage::gate(1)];
    stage.options.limits.hello = SHORT;
    let (record, verdict, _) = play(&stage);
    assert_eq!(verdict, Verdict::Errored);
    assert!(record.attempts[0].hello.is_none());
    assert_eq!(record.attempts[0].ending, Some(Ending::Timeout));
}

#[test]
fn a_program_that_is_not_there_is_not_run_with_the_reason() {
    let mut stage = Stage::new("none");
    stage.options.gates = vec![stage::gate(1)];
    stage.options.providers[1].provider.command[0] = "/nowhere/worker".to_owned();
    let (record, verdict, exit) = play(&stage);
    assert_eq!((verdict, exit), (Verdict::NotRun, Exit::NotRun));
    let Observation::NotRun { reason } = record.observation else { panic!() };
    assert!(reason.contains("/nowhere/worker"), "{reason}");
}

#[test]
fn a_program_that_cannot_be_run_is_errored() {
    let mut stage = Stage::new("none");
    stage.options.gates = vec![stage::gate(1)];
    let text = stage.folder.path().join("text");
    std::fs::write(&text, "no program").unwrap();
    stage.options.providers[1].provider.command[0] = text.display().to_string();
    let (record, verdict, _) = play(&stage);
    assert_eq!(verdict, Verdict::Errored);
    assert!(matches!(record.observation, Observation::Errored { ending: Ending::NotStarted, .. }));
}

#[test]
fn an_exit_with_code_zero_before_bye_is_no_pass() {
    let (ending, detail, ..) = errored("exit-before-bye");
    assert_eq!(ending, Ending::Exit(0));
    assert!(detail.contains("ended by itself"), "{detail}");
}

#[test]
fn a_wrong_exit_code_after_bye_is_no_pass() {
    let (ending, detail, record, _) = errored("exit-code-after-bye");
    assert_eq!(ending, Ending::Protocol);
    assert!(detail.contains("exit code 3"), "{detail}");
    assert_eq!(record.attempts[0].ending, Some(Ending::Exit(3)));
}

#[test]
fn a_child_left_behind_is_counted_and_ended() {
    for defect in ["leaves-child", "leaves-child-scrubbed"] {
        let mut stage = Stage::new(defect);
        stage.options.gates = vec![stage::gate(1)];
        let marker = stage.folder.path().display().to_string();
        let (record, verdict, exit) = play(&stage);
        assert_eq!((verdict, exit), (Verdict::Errored, Exit::Protocol), "{defect}");
        assert!(record.attempts[0].orphans >= 1, "{defect}");
        assert!(!lives("--linger", &marker), "{defect}");
    }
}

#[test]
fn a_broken_protocol_is_named_for_what_it_is() {
    for (defect, words) in [
        ("garbage-line", "garbage on the socket"),
        ("overlong-line", "a line of more than"),
        ("late-reply", "late or double reply"),
        ("double-reply", "late or double reply"),
        ("wrong-nonce", "wrong nonce"),
        ("wrong-provider", "a reply by provider torch, expected fake"),
        ("wrong-case", "is about \"another\""),
        ("unexpected-verb", "the answer to check is bye"),
    ] {
        let (ending, detail, _, exit) = errored(defect);
        assert_eq!((ending, exit), (Ending::Protocol, Exit::Protocol), "{defect}");
        assert!(detail.contains(words), "{defect}: {detail}");
    }
}

#[test]
fn an_untyped_failure_errs_and_the_process_goes_on() {
    let stage = Stage::new("untyped-failure");
    stage.run();
    let records = stage.records();
    assert!(records.iter().all(|(_, verdict)| verdict.verdict == Verdict::Errored));
    assert_eq!(records[0].0.attempts[0].started, records[1].0.attempts[0].started);
}

#[test]
fn a_provider_that_only_crashes_is_given_up() {
    let mut stage = Stage::new("abort");
    stage.options.gates = vec![stage::gate(6)];
    stage.options.limits.losses = 2;
    let (outcome, events) = stage.run();
    assert_eq!(outcome.verdicts.len(), 6);
    assert!(outcome.verdicts.iter().all(|v| v.verdict == Verdict::Errored));
    let records = stage.records();
    let tried = records.iter().filter(|(record, _)| !record.attempts.is_empty()).count();
    assert_eq!(tried, 2, "two processes were lost, four cells were given up");
    let finished = events.iter().filter(|e| matches!(e, Event::CellFinished(_))).count();
    assert_eq!(finished, 6);
}

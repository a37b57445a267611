//! Runs that are ended in the middle: what finished is kept, nothing becomes a pass, and the same command goes on.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod project;

use std::fs;
use std::process::Command;

use project::{Project, Running};

/// Starts a run whose first gate finishes and whose second waits, and reads on until the second has begun.
fn in_the_middle(project: &Project) -> Running {
    let mut running = project.start(&["--no-report"]);
    for _ in 0..4 {
        assert_eq!(running.until("cell_finished")["verdict"], "pass");
    }
    assert_eq!(running.until("cell_started")["provider"], "waits");
    running
}

/// Lets the worker go, runs again, and expects that the four finished cells are used again.
fn goes_on(project: &Project) {
    fs::remove_file(project.path("fifo")).unwrap();
    let again = project.run(&[]);
    assert_eq!(again.code, 0, "{again:?}");
    assert!(again.err.contains("6 cells of 2 gates; evidence used again: 4"), "{}", again.err);
    let verify = project.call(&["verify"]);
    assert_eq!(verify.code, 0, "{verify:?}");
}

/// Processes whose command line names this project.
fn left_behind(project: &Project) -> Vec<String> {
    let folder = project.path("fifo").to_string_lossy().into_owned();
    let processes = fs::read_dir("/proc").unwrap().flatten();
    let lines = processes.filter_map(|p| fs::read_to_string(p.path().join("cmdline")).ok());
    lines.filter(|line| line.contains(&folder)).collect()
}

#[test]
fn an_interrupt_ends_with_130_keeps_what_finished_and_the_same_command_goes_on() {
    for signal in ["INT", "TERM"] {
        let project = Project::new();
        project.waiting();
        let running = in_the_middle(&project);
        running.signal(signal);
        let ended = running.end();
        assert_eq!(ended.code, 130, "{signal}: {ended:?}");
        assert!(
            ended.out.lines().last().unwrap().contains("\"exit\":\"interrupted\""),
            "{}",
            ended.out
        );
        assert_eq!(left_behind(&project), Vec::<String>::new());
        goes_on(&project);
    }
}

#[test]
fn a_killed_runner_loses_nothing_that_finished() {
    let project = Project::new();
    project.waiting();
    let mut running = in_the_middle(&project);
    running.child.kill().unwrap();
    assert_eq!(running.end().code, 128 + 9);
    goes_on(&project);
    assert_eq!(left_behind(&project), Vec::<String>::new());
}

#[test]
fn a_second_run_on_one_evidence_folder_is_told_who_holds_it() {
    let project = Project::new();
    project.waiting();
    let running = in_the_middle(&project);
    let second = project.run(&[]);
    assert_eq!(second.code, 96, "{second:?}");
    let pid = running.child.id().to_string();
    assert!(second.err.contains(&pid), "the holder {pid} is not named: {}", second.err);
    let reading = project.call(&["query", "SELECT count(*) FROM verdicts"]);
    assert_eq!(reading.code, 0, "reading goes on meanwhile: {reading:?}");
    running.signal("INT");
    assert_eq!(running.end().code, 130);
    goes_on(&project);
}

#[test]
fn a_time_budget_that_is_too_small_keeps_what_finished() {
    let project = Project::new();
    project.waiting();
    let ended = project.run(&["--time-budget", "1s"]);
    assert_eq!(ended.code, 130, "{ended:?}");
    goes_on(&project);
}

#[test]
fn a_reader_of_events_that_goes_away_does_not_end_the_run() {
    let project = Project::new();
    let command = format!("{} run --no-report --format json | head -n 1", project::PROOFHOUSE);
    let mut shell = Command::new("/bin/sh");
    let environment = project.command();
    for (name, value) in environment.get_envs() {
        shell.env(name, value.unwrap());
    }
    let output = shell.args(["-c", &command]).current_dir(project.path(".")).output().unwrap();
    assert!(String::from_utf8_lossy(&output.stdout).contains("planned"), "{output:?}");
    let plan = project.call(&["plan"]);
    assert!(plan.out.contains("4 cells: 0 to run"), "{}", plan.out);
}

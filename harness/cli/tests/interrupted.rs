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

#[test]
fn what_a_worker_started_does_not_outlive_a_killed_run() {
    let project = Project::new();
    let fifo = project.path("fifo");
    assert!(Command::new("mkfifo").arg(&fifo).status().unwrap().success());
    // The worker leaves a shell that waits for the fifo, in the worker's group, and then waits itself.
    let script = format!("sh -c 'read line < {0}' & read line < {0}; exec $0", fifo.display());
    project.provider(
        "leaves",
        &format!(r#"["/bin/sh", "-c", "{script}", "{{bin}}/proofhouse-fake-worker"]"#),
    );
    project.gate_of("leaves", "required");
    let mut running = project.start(&["--no-report"]);
    while running.until("cell_started")["provider"] != "leaves" {}
    while left_behind(&project).len() < 2 {
        assert!(running.child.try_wait().unwrap().is_none(), "the run ended");
    }
    running.child.kill().unwrap();
    assert_eq!(running.end().code, 128 + 9);
    let begun = std::time::Instant::now();
    while !left_behind(&project).is_empty() {
        assert!(begun.elapsed().as_secs() < 20, "{:?}", left_behind(&project));
    }
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
    for signal in ["INT", "TERM", "HUP"] {
        let project = Project::new();
        project.waiting();
        let running = in_the_middle(&project);
        let pid = running.child.id();
        assert!(!tensors(pid).is_empty());
        running.signal(signal);
        let ended = running.end();
        assert_eq!(ended.code, 130, "{signal}: {ended:?}");
        assert!(
            ended.out.lines().last().unwrap().contains("\"exit\":\"interrupted\""),
            "{}",
            ended.out
        );
        assert_eq!(left_behind(&project), Vec::<String>::new());
        assert_eq!(tensors(pid), Vec::<String>::new());
        goes_on(&project);
    }
}

/// Folders for tensors that a process made in shared memory.
fn tensors(pid: u32) -> Vec<String> {
    let prefix = format!("proofhouse-tensors-{pid}-");
    let names = fs::read_dir("/dev/shm").unwrap().flatten();
    let names = names.map(|entry| entry.file_name().to_string_lossy().into_owned());
    names.filter(|name| name.starts_with(&prefix)).collect()
}

#[test]
fn a_hang_up_that_the_caller_ignores_does_not_end_the_run() {
    let project = Project::new();
    let fifo = project.waiting();
    let line =
        format!("trap '' HUP; exec {} run --no-report --jobs 1 --format json", project::PROOFHOUSE);
    let mut running = project.start_with("/bin/sh", &["-c", &line]);
    for _ in 0..4 {
        running.until("cell_finished");
    }
    running.signal("HUP");
    // The worker that waits reads a line, unless it was ended.
    let go = format!("timeout 20 sh -c 'echo go > {}'", fifo.display());
    assert!(Command::new("/bin/sh").args(["-c", &go]).status().unwrap().success());
    assert_eq!(running.end().code, 0);
}

#[test]
fn an_interrupted_calibration_is_code_130_and_says_that_nothing_is_kept() {
    let project = Project::new();
    let baseline = project::GATE.replace("\"correctness\"", "\"baseline\"").replace(
        "candidates = [\"cpu\"]",
        "candidates = [\"cpu\"]\nbaselines = [\"waits\"]\ntiming = { cache = \"hot\", launch = \"eager\", clock = \"host\", threads = 1, margin = 0.03, require = \"measured\" }",
    );
    project.write("gates/rms_norm/baseline.toml", &baseline);
    project.waiting();
    let mut command = project.command();
    command.args(["calibrate", "--comparisons", "8"]).stderr(std::process::Stdio::piped());
    let mut child = command.stdout(std::process::Stdio::piped()).spawn().unwrap();
    let mut told = std::io::BufReader::new(child.stderr.take().unwrap());
    let mut line = String::new();
    while !line.contains("against itself") {
        line.clear();
        assert!(std::io::BufRead::read_line(&mut told, &mut line).unwrap() > 0, "it ended early");
    }
    let kill = format!("kill -s INT {}", child.id());
    assert!(Command::new("/bin/sh").args(["-c", &kill]).status().unwrap().success());
    let output = child.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(130), "{said}");
    assert!(said.contains("interrupted after ") && said.contains("no record is kept"), "{said}");
    assert_eq!(project.evidence(), Vec::<String>::new());
}

#[test]
fn an_interrupted_self_test_is_code_130_and_leaves_nothing_behind() {
    let project = Project::new();
    let mut command = project.command();
    command.args(["selftest", "--filter", "none"]).stderr(std::process::Stdio::piped());
    let mut child = command.stdout(std::process::Stdio::piped()).spawn().unwrap();
    while tensors(child.id()).is_empty() {
        assert!(child.try_wait().unwrap().is_none(), "it ended early");
    }
    let kill = format!("kill -s INT {}", child.id());
    assert!(Command::new("/bin/sh").args(["-c", &kill]).status().unwrap().success());
    let pid = child.id();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130), "{output:?}");
    assert_eq!(tensors(pid), Vec::<String>::new());
    assert_eq!(project.evidence(), Vec::<String>::new());
}

#[test]
fn a_killed_runner_loses_nothing_that_finished() {
    let project = Project::new();
    project.waiting();
    let mut running = in_the_middle(&project);
    let pid = running.child.id();
    running.child.kill().unwrap();
    assert_eq!(running.end().code, 128 + 9);
    assert!(!tensors(pid).is_empty(), "a killed run cannot remove what it made");
    goes_on(&project);
    assert_eq!(tensors(pid), Vec::<String>::new(), "the next one does");
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
fn a_time_budget_that_is_too_small_is_code_104_tells_what_is_left_and_keeps_what_finished() {
    let project = Project::new();
    project.waiting();
    let ended = project.run(&["--time-budget", "3s"]);
    assert_eq!(ended.code, 104, "{ended:?}");
    assert!(ended.err.contains("2 of 6 cells are left, 2 of them required"), "{}", ended.err);
    assert!(ended.out.contains("the same command goes on from there"), "{}", ended.out);
    assert!(ended.out.contains("required cells are left (exit 104)"), "{}", ended.out);
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

//! Runs of small projects, from the plan to the exit code.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod project;

use std::collections::BTreeSet;

use project::Project;

#[test]
fn list_shows_gates_and_on_request_every_cell() {
    let project = Project::new();
    let ended = project.call(&["list"]);
    assert_eq!(ended.code, 0, "{ended:?}");
    assert!(ended.out.contains("rms_norm.correctness") && ended.out.contains("required"));
    assert!(!ended.out.contains("rows=3 hidden=64"), "{}", ended.out);
    let cells = project.call(&["list", "--cells"]);
    assert!(cells.out.contains("rows=3 hidden=64 F32 contiguous normal"), "{}", cells.out);
    let lines = project.call(&["list", "--cells", "--format", "json"]).out;
    let gate: serde_json::Value = serde_json::from_str(lines.trim()).unwrap();
    assert_eq!(gate["cells"].as_array().unwrap().len(), 4);
}

#[test]
fn a_run_passes_writes_evidence_and_draws_the_report() {
    let project = Project::new();
    let ended = project.call(&["run"]);
    assert_eq!(ended.code, 0, "{ended:?}");
    assert!(ended.out.contains("all required gates passed (exit 0)"), "{}", ended.out);
    assert!(ended.out.lines().any(|l| l.split_whitespace().eq([
        "pass",
        "rms_norm.correctness",
        "4",
        "4"
    ])));
    for ending in ["html", "md", "xml"] {
        assert!(project.path(&format!("reports/run-quick.{ending}")).is_file(), "{ending}");
    }
    let evidence = project.evidence();
    assert_eq!(evidence.iter().filter(|f| f.starts_with("rms_norm.correctness/")).count(), 8);
    assert_eq!(project.call(&["verify"]).code, 0);
}

#[test]
fn a_trace_that_cannot_be_written_is_told_as_such_before_anything_is_measured() {
    let project = Project::new();
    let ended = project.run(&["--trace", "gone/trace.json"]);
    assert_eq!(ended.code, 110, "{}", ended.err);
    assert!(ended.err.contains("gone/trace.json cannot be written"), "{}", ended.err);
    assert!(project.evidence().iter().all(|file| !file.starts_with("rms_norm.correctness/")));
}

#[test]
fn a_second_run_measures_nothing_and_starts_no_process() {
    let project = Project::new();
    let starts = |file: &str| {
        let trace = project.path(file).to_string_lossy().into_owned();
        let ended = project.run(&["--trace", &trace]);
        assert_eq!(ended.code, 0, "{}", ended.err);
        // A run that has nothing to do writes none.
        let spans = std::fs::read_to_string(&trace).unwrap_or_default();
        (spans.matches("\"cat\":\"start\"").count(), ended)
    };
    assert!(starts("first.json").0 > 0);
    let before = project.evidence();
    let (started, ended) = starts("second.json");
    assert_eq!(started, 0);
    assert!(ended.err.contains("evidence used again: 4"), "{}", ended.err);
    let records = |files: &[String]| files.iter().filter(|f| f.ends_with(".json")).count();
    assert_eq!(records(&project.evidence()), records(&before));
}

#[test]
fn fresh_measures_again() {
    let project = Project::new();
    assert_eq!(project.run(&[]).code, 0);
    let before = project.evidence().len();
    assert_eq!(project.run(&["--fresh"]).code, 0);
    assert!(project.evidence().len() >= before + 8);
}

#[test]
fn a_changed_gate_is_measured_again() {
    let project = Project::new();
    assert_eq!(project.run(&[]).code, 0);
    project.write("gates/rms_norm/correctness.toml", &project::GATE.replace("[1, 3]", "[1, 4]"));
    let plan = project.call(&["plan"]);
    assert!(plan.out.contains("4 cells: 2 to run, 2 with"), "{}", plan.out);
}

#[test]
fn a_dry_run_does_nothing() {
    let project = Project::new();
    let ended = project.run(&["--dry-run"]);
    assert_eq!(ended.code, 0, "{ended:?}");
    assert!(ended.out.contains("4 cells: 4 to run"), "{}", ended.out);
    assert_eq!(project.evidence(), Vec::<String>::new());
    assert_eq!(project.call(&["plan"]).out, ended.out);
}

#[test]
fn a_filter_takes_cells_with_all_of_its_words() {
    let project = Project::new();
    let ended = project.run(&["--filter", "rows=3 cpu", "--filter", "hidden=64"]);
    assert_eq!(ended.code, 0, "{ended:?}");
    assert!(ended.err.contains("1 cell of 1 gate"), "{}", ended.err);
    assert_eq!(project.evidence().iter().filter(|f| f.starts_with("rms_norm")).count(), 2);
}

#[test]
fn nothing_selected_is_code_4_and_never_green() {
    let project = Project::new();
    for arguments in [&["--filter", "no-such-word"][..], &["--filter", "x", "--dry-run"]] {
        assert_eq!(project.run(arguments).code, 4, "{arguments:?}");
    }
    let ended = project.run(&["--filter", "no-such-word"]);
    assert!(ended.err.contains("nothing was selected"), "{}", ended.err);
    assert_eq!(project.call(&["verify"]).code, 4, "no evidence is no proof");
    assert_eq!(project.call(&["report"]).code, 4);
}

#[test]
fn informative_cells_alone_are_code_0_and_prove_nothing_in_words() {
    let project = Project::empty();
    project.fake("good", "none", "informative");
    project.fake("bad", "writes-zeros", "informative");
    for filter in ["good", "bad"] {
        for again in ["", ", from evidence"] {
            let ended = project.call(&["run", "--filter", filter]);
            assert_eq!(ended.code, 0, "{filter}{again}: {ended:?}");
            let told = "no required gate was selected: nothing is proved (exit 0)";
            assert!(ended.out.contains(told), "{filter}{again}: {}", ended.out);
            assert!(!ended.out.contains("all required gates passed"), "{}", ended.out);
            assert!(ended.err.contains("nothing that decides was run"), "{}", ended.err);
        }
    }
    let page = std::fs::read_to_string(project.path("reports/run-quick.html")).unwrap();
    assert!(page.contains("No required cell: this report proves nothing."));
    let events = project.run(&["--format", "json"]).out;
    assert!(events.contains("\"event\":\"warning\"") && events.contains("nothing is proved"));
}

#[test]
fn shards_cover_every_cell_exactly_once() {
    let project = Project::new();
    project.fake("mine", "none", "informative");
    let cells = |shard: &[&str]| -> Vec<String> {
        let mut arguments = vec!["plan", "--format", "json"];
        arguments.extend(shard);
        let lines = project.call(&arguments).out;
        let name = |line: &str| {
            let value: serde_json::Value = serde_json::from_str(line).unwrap();
            format!("{} {} {}", value["gate"], value["cell"], value["candidate"])
        };
        lines.lines().map(name).collect()
    };
    let whole: BTreeSet<String> = cells(&[]).into_iter().collect();
    assert_eq!(whole.len(), 6);
    for parts in [2, 3, 5] {
        let shards: Vec<String> =
            (1..=parts).flat_map(|i| cells(&["--shard", &format!("{i}/{parts}")])).collect();
        assert_eq!(shards.len(), whole.len(), "{parts} parts");
        assert_eq!(shards.into_iter().collect::<BTreeSet<_>>(), whole);
    }
}

#[test]
fn events_are_json_lines_and_their_counts_agree() {
    let project = Project::new();
    project.fake("bad", "writes-zeros", "informative");
    let ended = project.run(&["--format", "json"]);
    assert_eq!(ended.code, 0, "an informative gate decides nothing: {ended:?}");
    let events: Vec<serde_json::Value> =
        ended.out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let of = |kind: &str| events.iter().filter(|e| e["event"] == kind).collect::<Vec<_>>();
    assert_eq!(events[0]["event"], "planned");
    assert_eq!(events[0]["cells"], 6);
    assert_eq!(of("cell_started").len(), 6);
    let finished = of("cell_finished");
    assert_eq!(finished.iter().filter(|e| e["verdict"] == "pass").count(), 4);
    for bad in finished.iter().filter(|e| e["provider"] == "bad") {
        assert_eq!((&bad["verdict"], &bad["required"]), (&"fail".into(), &false.into()));
        assert!(!bad["reasons"].as_array().unwrap().is_empty());
    }
    let last = events.last().unwrap();
    assert_eq!(
        (&last["event"], &last["passed"], &last["not_passed"]),
        (&"finished".into(), &4.into(), &2.into())
    );
    assert_eq!(last["exit"], "passed");
}

#[test]
fn wrong_outputs_of_a_required_candidate_fail_the_run() {
    let project = Project::new();
    project.fake("bad", "writes-zeros", "required");
    let ended = project.call(&["run"]);
    assert_eq!(ended.code, 100, "{ended:?}");
    assert!(ended.err.contains("fail rms_norm.bad rows=2"), "{}", ended.err);
    assert!(ended.out.contains("(exit 100)"), "{}", ended.out);
    let markdown = std::fs::read_to_string(project.path("reports/run-quick.md")).unwrap();
    assert!(markdown.contains("**fail** rms_norm.bad"), "{markdown}");
    assert_eq!(project.call(&["verify"]).code, 0, "the evidence of a failure is good evidence");
}

#[test]
fn a_worker_that_dies_is_errored_and_the_others_finish() {
    let project = Project::new();
    project.fake("crash", "segfault", "required");
    let ended = project.run(&["--format", "json"]);
    assert_eq!(ended.code, 105, "{ended:?}");
    let passed = ended.out.lines().filter(|l| l.contains("\"verdict\":\"pass\"")).count();
    assert_eq!(passed, 4);
}

#[test]
fn the_last_words_of_a_crashed_worker_are_told_and_cannot_steer_the_terminal() {
    let project = Project::new();
    let script = "printf 'no kernel image\\n\\033[31mis \\007available\\n' >&2; exit 3";
    project.provider("dies", &format!(r#"["/bin/sh", "-c", "{}"]"#, script.replace('\\', "\\\\")));
    project.gate_of("dies", "required");
    let ended = project.call(&["run"]);
    assert_eq!(ended.code, 105, "{ended:?}");
    let told = "    last words of dies, replicate 0:\n      | no kernel image\n      | is \u{fffd}available\n";
    assert!(ended.out.contains(told), "{}", ended.out);
    for ending in ["html", "md", "xml"] {
        let path = project.path(&format!("reports/run-quick.{ending}"));
        let text = std::fs::read_to_string(path).unwrap();
        assert!(text.contains("no kernel image\n"), "{ending}");
        assert!(!text.contains('\u{7}') && !text.contains('\u{1b}'), "{ending}");
    }
}

#[test]
fn the_self_test_finds_a_planted_fault_and_records_the_score_of_a_whole_one_only() {
    let project = Project::new();
    let ended = project.call(&["selftest", "--filter", "writes-zeros"]);
    assert_eq!(ended.code, 0, "{ended:?}");
    assert!(ended.out.contains("1 of 1 planted faults found, 0 false alarms"), "{}", ended.out);
    assert_eq!(project.evidence(), Vec::<String>::new(), "a part of a self-test is no score");
    assert_eq!(project.call(&["selftest", "--filter", "no-such-fault"]).code, 4);
    let nowhere = ["selftest", "--device", "cuda", "--gpu", "GPU-that-is-not-here"];
    let ended = project.call(&nowhere);
    assert_eq!(ended.code, 104, "{}", ended.out);
    assert!(ended.out.contains("nothing was planted: no cuda device"), "{}", ended.out);
}

#[test]
fn schemas_that_differ_from_the_committed_ones_are_code_100_and_named() {
    let project = Project::new();
    let differs = project.call(&["schema"]);
    assert_eq!(differs.code, 100, "{differs:?}");
    assert!(differs.out.contains("differs gates/schema/gate.schema.json"), "{}", differs.out);
    assert_eq!(project.call(&["schema", "--write"]).code, 0);
    assert_eq!(project.call(&["schema"]).code, 0);
}

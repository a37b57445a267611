//! Bad declarations: a clear place, what was found, what is accepted, and code 96; nothing is run.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod project;

use project::{GATE, Project};

/// Runs and expects code 96 and no evidence; gives what was told.
fn refused(project: &Project, arguments: &[&str]) -> String {
    let ended = project.run(arguments);
    assert_eq!(ended.code, 96, "{ended:?}");
    assert_eq!(ended.out, "");
    assert_eq!(project.evidence(), Vec::<String>::new());
    ended.err
}

#[test]
fn a_misspelt_key_is_shown_with_file_line_column_and_what_is_accepted() {
    let project = Project::new();
    project.write("gates/rms_norm/correctness.toml", &GATE.replace("dtypes", "dtpyes"));
    let told = refused(&project, &[]);
    for part in [
        "rms_norm/correctness.toml:9:1",
        "9 | dtpyes = [\"F32\"]",
        "unknown key `dtpyes`",
        "did you mean `dtypes`?",
        "accepted: dims, dtypes, layouts",
    ] {
        assert!(told.contains(part), "{part} in {told}");
    }
    assert!(!told.contains('\u{1b}'), "no color without a terminal: {told}");
}

#[test]
fn errors_of_all_files_are_shown_at_once() {
    let project = Project::new();
    project.write("gates/rms_norm/correctness.toml", &GATE.replace("required", "compulsory"));
    project.write("gates/rms_norm/other.toml", &GATE.replace("[1, 3]", "\"three\""));
    let told = refused(&project, &[]);
    assert!(told.contains("correctness.toml:4:9") && told.contains("other.toml:8:"), "{told}");
}

#[test]
fn what_is_no_toml_is_shown_where_it_breaks() {
    let project = Project::new();
    project.write("gates/rms_norm/correctness.toml", "about = \"x\nkind = 1\n");
    assert!(refused(&project, &[]).contains("correctness.toml:1:"));
}

#[test]
fn a_gate_with_no_cell_is_refused() {
    let project = Project::new();
    let text = GATE.split("[[cells]]").next().unwrap();
    project.write("gates/rms_norm/correctness.toml", text);
    let told = refused(&project, &[]);
    assert!(told.contains("correctness.toml") && told.contains("cell"), "{told}");
}

#[test]
fn a_gate_whose_exclusions_take_the_last_cell_is_refused() {
    let project = Project::new();
    let all = "\n[[exclude]]\nwhen = { dtype = \"F32\" }\nreason = \"all of them\"\n";
    project.write("gates/rms_norm/correctness.toml", &format!("{GATE}{all}"));
    let told = refused(&project, &[]);
    assert!(told.contains("correctness.toml") && told.contains("cell"), "{told}");
}

#[test]
fn a_baseline_that_has_no_folder_is_refused() {
    let project = Project::new();
    let gate = GATE
        .replace("\"correctness\"", "\"baseline\"")
        .replace("candidates = [\"cpu\"]", "candidates = [\"cpu\"]\nbaselines = [\"liger\"]")
        + "\n[timing]\ncache = \"hot\"\nlaunch = \"eager\"\nclock = \"host\"\nmargin = 0.03\nrequire = \"win\"\n";
    project.write("gates/rms_norm/baseline.toml", &gate);
    let told = refused(&project, &[]);
    assert!(told.contains("baseline.toml:6:14") && told.contains("liger"), "{told}");
    assert!(told.contains("cpu, oracle"), "known providers are named: {told}");
}

#[test]
fn a_profile_that_is_not_declared_is_refused_with_those_that_are() {
    let told = refused(&Project::new(), &["--profile", "fulll"]);
    assert!(told.contains("\"fulll\"") && told.contains("claim, full, quick"), "{told}");
}

#[test]
fn a_provider_file_with_an_unknown_key_is_refused() {
    let project = Project::new();
    project.fake("mine", "none", "required");
    let path = project.path("baselines/mine/provider.toml");
    let text = std::fs::read_to_string(&path).unwrap();
    project.write("baselines/mine/provider.toml", &text.replace("about =", "abuot ="));
    let told = refused(&project, &[]);
    assert!(told.contains("baselines/mine/provider.toml:2:1"), "{told}");
}

#[test]
fn two_providers_of_one_name_are_refused_with_both_folders() {
    let project = Project::new();
    let text = std::fs::read_to_string(project.path("baselines/cpu/provider.toml")).unwrap();
    project.write("elsewhere/provider.toml", &text);
    let told = refused(&project, &["--provider", "elsewhere"]);
    assert!(told.contains("baselines/cpu") && told.contains("elsewhere"), "{told}");
}

#[test]
fn a_folder_without_gates_is_no_project() {
    let folder = tempfile::tempdir().unwrap();
    let project = Project::new();
    let mut command = project.command();
    let ended: project::Ended =
        command.arg("list").current_dir(folder.path()).output().unwrap().into();
    assert_eq!(ended.code, 96);
    assert!(ended.err.contains("--root DIR"), "{}", ended.err);
}

#[test]
fn wrong_usage_is_code_2_and_names_the_argument() {
    let project = Project::new();
    for arguments in [
        &["run", "--shard", "3/2"][..],
        &["run", "--time-budget", "9d"],
        &["run", "--fresh", "--resume"],
        &["run", "--jobs", "0"],
        &["frobnicate"],
        &["query", "--format", "parquet", "SELECT 1"],
    ] {
        let ended = project.call(arguments);
        assert_eq!(ended.code, 2, "{arguments:?}: {ended:?}");
        assert!(!ended.err.is_empty() && ended.out.is_empty(), "{arguments:?}");
    }
}

#[test]
fn a_program_that_reads_events_gets_every_error_with_its_place() {
    let project = Project::new();
    project.write("gates/rms_norm/correctness.toml", &GATE.replace("\"cpu\"", "\"cqu\""));
    project.write("gates/rms_norm/other.toml", &GATE.replace("dtypes", "dtpyes"));
    for verb in ["run", "plan", "list"] {
        let ended = project.call(&[verb, "--format", "json"]);
        assert_eq!(ended.code, 96, "{verb}: {ended:?}");
        let events: Vec<serde_json::Value> =
            ended.out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert!(events.iter().all(|event| event["event"] == "error"), "{verb}: {}", ended.out);
        let event = events.iter().find(|e| e["code"] == "unknown-key").unwrap();
        let place = |of: &serde_json::Value| (of["line"].clone(), of["column"].clone());
        assert_eq!(place(event), (9.into(), 1.into()), "{event}");
        assert!(event["file"].as_str().unwrap().ends_with("rms_norm/other.toml"), "{event}");
        assert_eq!((&event["key"], &event["found"]), (&"dtpyes".into(), &"dtpyes".into()));
        assert!(event["accepted"].as_array().unwrap().contains(&"dtypes".into()), "{event}");
        assert!(event["message"].as_str().unwrap().contains("unknown key"), "{event}");
        assert!(ended.err.contains("dtpyes"), "people are told, too: {}", ended.err);
    }
    project.write("gates/rms_norm/other.toml", GATE);
    let ended = project.call(&["run", "--format", "json"]);
    let event: serde_json::Value = serde_json::from_str(ended.out.lines().next().unwrap()).unwrap();
    assert_eq!((&event["key"], &event["found"]), (&"candidates".into(), &"cqu".into()), "{event}");
}

#[test]
fn an_error_that_has_no_place_is_an_event_too() {
    let project = Project::new();
    let ended = project.call(&["run", "--format", "json", "--profile", "nothing"]);
    assert_eq!(ended.code, 96, "{ended:?}");
    let event: serde_json::Value = serde_json::from_str(ended.out.trim()).unwrap();
    assert_eq!(event["event"], "error");
    assert!(event["message"].as_str().unwrap().contains("nothing"), "{event}");
    assert_eq!(project.call(&["run", "--profile", "nothing"]).out, "", "people read stderr");
}

//! What reads: queries, reports, help, completions, and how it is printed.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod project;

use std::ffi::OsStr;
use std::fs;
use std::io::Write as _;
use std::os::unix::ffi::OsStrExt as _;
use std::process::{Command, Stdio};

use project::{Ended, PROOFHOUSE, Project};

const SQL: &str = "SELECT gate, verdict, count(*) AS cells FROM verdicts GROUP BY ALL";

fn finished() -> Project {
    let project = Project::new();
    assert_eq!(project.run(&[]).code, 0);
    project
}

#[test]
fn a_query_answers_as_table_csv_and_json() {
    let project = finished();
    let table = project.call(&["query", SQL]);
    assert_eq!(table.code, 0, "{table:?}");
    assert!(table.out.contains("rms_norm.correctness") && table.out.contains('4'), "{}", table.out);
    let csv = project.call(&["query", "--format", "csv", SQL]);
    assert_eq!(csv.out, "gate,verdict,cells\r\nrms_norm.correctness,pass,4\r\n");
    let json = project.call(&["query", "--format", "json", SQL]);
    let rows: serde_json::Value = serde_json::from_str(&json.out).unwrap();
    let row = &rows[0];
    assert_eq!(rows.as_array().unwrap().len(), 1);
    assert_eq!(
        row,
        &serde_json::json!({"gate": "rms_norm.correctness", "verdict": "pass", "cells": 4})
    );
}

#[test]
fn parquet_is_written_and_can_be_queried_again() {
    let project = finished();
    let ended = project.call(&["query", "--format", "parquet", "--output", "rows.parquet", SQL]);
    assert_eq!(ended.code, 0, "{ended:?}");
    let bytes = fs::read(project.path("rows.parquet")).unwrap();
    assert!(bytes.starts_with(b"PAR1") && bytes.ends_with(b"PAR1"));
    let csv = project.call(&["query", "--format", "csv", "--output", "rows.csv", SQL]);
    assert_eq!(csv.code, 0, "{csv:?}");
    assert!(fs::read_to_string(project.path("rows.csv")).unwrap().contains("pass,4"));
}

#[test]
fn a_statement_that_writes_is_refused_and_changes_nothing() {
    let project = finished();
    for sql in [
        "DROP TABLE verdicts",
        "DELETE FROM verdicts",
        "UPDATE verdicts SET verdict = 'fail'",
        "CREATE TABLE mine (x INTEGER)",
        "COPY verdicts TO 'stolen.csv'",
        "SELECT 1; DROP TABLE verdicts",
    ] {
        let ended = project.call(&["query", sql]);
        assert_eq!(ended.code, 96, "{sql}: {ended:?}");
        assert!(ended.err.contains("error:") && ended.out.is_empty(), "{sql}: {ended:?}");
    }
    assert!(!project.path("stolen.csv").exists());
    assert!(project.call(&["query", "--format", "csv", SQL]).out.contains("pass,4"));
}

#[test]
fn a_wrong_statement_says_what_the_database_says() {
    let ended = finished().call(&["query", "SELECT verdictt FROM verdicts"]);
    assert_eq!(ended.code, 96, "{ended:?}");
    assert!(ended.err.contains("verdictt"), "{}", ended.err);
    assert!(!ended.err.contains("Error code"), "{}", ended.err);
}

#[test]
fn nan_is_tagged_in_json_as_it_is_in_records() {
    let sql = "SELECT 'nan'::DOUBLE AS a, ['-inf'::DOUBLE] AS b";
    let json = finished().call(&["query", "--format", "json", sql]);
    let rows: serde_json::Value = serde_json::from_str(&json.out).unwrap();
    assert_eq!(rows, serde_json::json!([{"a": {"real": "nan"}, "b": [{"real": "-inf"}]}]));
}

#[test]
fn the_index_can_be_deleted_and_comes_back() {
    let project = finished();
    let before = project.call(&["query", SQL]).out;
    fs::remove_dir_all(project.path(".proofhouse")).unwrap();
    assert_eq!(project.call(&["query", SQL]).out, before);
    fs::write(project.path(".proofhouse/index.duckdb"), b"not a database").unwrap();
    let ended = project.call(&["query", SQL]);
    assert_eq!((ended.code, &ended.out), (0, &before), "{}", ended.err);
}

#[test]
fn a_report_is_drawn_anew_from_the_evidence() {
    let project = finished();
    let ended = project.call(&["report", "--title", "Of <today>", "--output", "out/today"]);
    assert_eq!(ended.code, 0, "{ended:?}");
    let page = fs::read_to_string(project.path("out/today.html")).unwrap();
    assert!(page.contains("<title>Of &lt;today&gt;</title>"), "{}", &page[..600]);
    let xml = fs::read_to_string(project.path("out/today.xml")).unwrap();
    let tree = roxmltree::Document::parse(&xml).unwrap();
    assert_eq!(tree.root_element().attribute("tests"), Some("4"));
    assert!(fs::read_to_string(project.path("out/today.md")).unwrap().contains("4 pass"));
}

#[test]
fn every_verb_explains_itself() {
    let project = Project::empty();
    let help = project.call(&["--help"]);
    assert_eq!(help.code, 0);
    let verbs = [
        "doctor",
        "list",
        "plan",
        "run",
        "import",
        "verify",
        "query",
        "report",
        "compare",
        "render",
        "selftest",
        "schema",
        "bench",
        "completions",
        "man",
    ];
    for verb in verbs {
        assert!(help.out.contains(&format!("\n  {verb} ")), "{verb} is not in the help");
        let ended = project.call(&[verb, "--help"]);
        assert_eq!(ended.code, 0, "{verb}");
        let first = ended.out.lines().next().unwrap();
        assert!(first.len() > 10 && !first.starts_with("Usage"), "{verb}: {first}");
        assert!(ended.out.contains("--root <DIR>") && ended.out.contains("Usage:"), "{verb}");
    }
    for verb in ["run", "query"] {
        assert!(project.call(&[verb, "--help"]).out.contains("Examples:"), "{verb}");
    }
    assert_eq!(
        project.call(&["--version"]).out,
        concat!("proofhouse ", env!("CARGO_PKG_VERSION"), "\n")
    );
}

#[test]
fn completions_are_scripts_that_their_shells_accept() {
    let project = Project::empty();
    for shell in ["bash", "zsh", "fish"] {
        let ended = project.call(&["completions", shell]);
        assert_eq!(ended.code, 0, "{shell}");
        assert!(ended.out.contains("selftest") && ended.out.contains("time-budget"), "{shell}");
        project.write(&format!("completion.{shell}"), &ended.out);
    }
    let bash =
        Command::new("bash").arg("-n").arg(project.path("completion.bash")).output().unwrap();
    assert!(bash.status.success(), "{bash:?}");
    assert_eq!(project.call(&["completions", "tcsh"]).code, 2);
}

#[test]
fn the_man_page_is_one() {
    let man = Project::empty().call(&["man"]);
    assert_eq!(man.code, 0);
    assert!(
        man.out.contains(".TH proofhouse 1") && man.out.contains(".SH SYNOPSIS"),
        "{}",
        man.out
    );
    assert!(man.out.contains("110"), "exit codes are in the man page");
}

#[test]
fn color_is_for_terminals_and_for_those_who_ask() {
    let project = Project::new();
    let call = |arguments: &[&str], no_color: &str| -> Ended {
        project.command().args(arguments).env("NO_COLOR", no_color).output().unwrap().into()
    };
    assert!(!call(&["list"], "").out.contains('\u{1b}'), "a pipe gets none");
    assert!(call(&["list", "--color", "always"], "").out.contains('\u{1b}'));
    assert!(!call(&["list", "--color", "never"], "").out.contains('\u{1b}'));
    // `script` gives the command a terminal.
    let terminal = |no_color: &str| {
        let line = format!("{PROOFHOUSE} list");
        let mut script = Command::new("script");
        script.args(["-qec", &line, "/dev/null"]).current_dir(project.path("."));
        script.env("NO_COLOR", no_color).stdin(Stdio::null());
        String::from_utf8(script.output().unwrap().stdout).unwrap()
    };
    assert!(terminal("").contains('\u{1b}'), "{}", terminal(""));
    assert!(!terminal("1").contains('\u{1b}'), "{}", terminal("1"));
}

#[test]
fn a_closed_pipe_ends_quietly() {
    let project = finished();
    for arguments in [
        &["list", "--cells"][..],
        &["query", "SELECT range FROM range(200000)"],
        &["--help"],
        &["man"],
    ] {
        let mut child = project
            .command()
            .args(arguments)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        drop(child.stdout.take());
        let output = child.wait_with_output().unwrap();
        let told = String::from_utf8_lossy(&output.stderr);
        assert!(!told.contains("panicked") && !told.contains("error"), "{arguments:?}: {told}");
        assert_eq!(output.status.code(), Some(0), "{arguments:?}");
    }
}

#[test]
fn names_that_are_no_utf8_are_used_or_named_and_never_a_panic() {
    let project = Project::new();
    let odd = OsStr::from_bytes(b"odd-\xff");
    let call = |arguments: &[&OsStr]| project.command().args(arguments).output().unwrap();
    let word = |text: &'static str| OsStr::new(text);
    let run = call(&[word("run"), word("--no-report"), word("--evidence"), odd]);
    let told = String::from_utf8_lossy(&run.stderr).into_owned();
    assert!(run.status.success(), "a folder's name need not be text: {told}");
    assert!(project.path(".").join(odd).join("log").is_dir());
    for arguments in [
        &[word("list"), word("--root"), odd][..],
        &[word("list"), word("--provider"), odd],
        &[word("import"), OsStr::from_bytes(b"gone-\xff")],
        &[word("run"), word("--filter"), odd],
        &[odd],
    ] {
        let output = call(arguments);
        let told = String::from_utf8_lossy(&output.stderr);
        assert!(matches!(output.status.code(), Some(2 | 96)), "{arguments:?}: {output:?}");
        assert!(told.contains("error") && !told.contains("panicked"), "{arguments:?}: {told}");
    }
    let mut gate =
        fs::File::create(project.path("gates/rms_norm").join(OsStr::from_bytes(b"\xff.toml")))
            .unwrap();
    gate.write_all(project::GATE.as_bytes()).unwrap();
    let output = call(&[word("list")]);
    assert_eq!(output.status.code(), Some(96), "{output:?}");
}

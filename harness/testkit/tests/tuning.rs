//! Providers that tune do it in several processes before anything is timed, once for each case.
#![allow(dead_code, reason = "the stage is shared by several test programs")]
#![allow(clippy::unwrap_used, reason = "the stage is test code")]

mod stage;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use proofhouse_schema::evidence::{CellRecord, Observation};
use serde_json::Value;
use stage::Stage;

/// How often each provider was asked to prepare a case by that name, names cut at their first digit.
fn prepared(trace: &PathBuf) -> BTreeMap<(String, String), usize> {
    let text = std::fs::read_to_string(trace).unwrap_or_default();
    let mut counts = BTreeMap::new();
    for line in text.lines().filter(|line| line.contains("\"cat\":\"prepare\"")) {
        let event: Value = serde_json::from_str(line.trim_end_matches(',')).unwrap();
        let about = event["args"]["about"].as_str().unwrap();
        let kind = about.split(|c: char| c.is_ascii_digit()).next().unwrap().to_owned();
        let provider = event["args"]["provider"].as_str().unwrap().to_owned();
        *counts.entry((provider, kind)).or_default() += 1;
    }
    counts
}

fn ahead(trace: &PathBuf) -> usize {
    prepared(trace).into_iter().filter(|((_, kind), _)| kind == "ahead-").map(|(_, n)| n).sum()
}

#[test]
fn a_provider_that_tunes_prepares_each_case_once_ahead_in_processes_of_its_own() {
    let (stage, trace) = Stage::on_a_device(5);
    let (_, events) = stage.run();
    let counts = prepared(&trace);
    let of = |provider: &str, kind: &str| {
        counts.get(&(provider.to_owned(), kind.to_owned())).copied().unwrap_or_default()
    };
    assert_eq!((of("other", "ahead-"), of("fake", "ahead-")), (5, 0), "{counts:?}");
    assert!(format!("{events:?}").contains("other: tuning 5 cases in 2 processes"));
    let tuned = std::fs::read_dir(stage.options.kernel_cache.join("tuned")).unwrap().count();
    assert_eq!(tuned, 5);
    assert_eq!(stage.records().len(), 5);
    let attempts = stage.records()[0].0.attempts.clone();
    assert_eq!(attempts.iter().filter(|a| a.provider.as_str() == "other").count(), 1);

    // What was tuned is not tuned again, until the provider's own files change.
    std::fs::remove_file(&trace).unwrap();
    stage.run();
    assert_eq!(ahead(&trace), 0);
    std::fs::remove_file(&trace).unwrap();
    let home = stage.options.providers.iter().find(|home| home.provider.id.as_str() == "other");
    std::fs::write(home.unwrap().folder.join("provider.toml"), "changed").unwrap();
    stage.run();
    assert_eq!(ahead(&trace), 5);
}

#[test]
fn a_few_cases_are_not_worth_processes_and_a_tuner_that_dies_costs_no_cell() {
    let (stage, trace) = Stage::on_a_device(3);
    stage.run();
    assert_eq!(ahead(&trace), 0);
    let (mut stage, trace) = Stage::on_a_device(5);
    let other = stage.options.providers.iter_mut().find(|h| h.provider.id.as_str() == "other");
    // The first of its processes dies, which is one of those that tune.
    let mark = stage.folder.path().join("died");
    let script =
        format!("if mkdir {} 2>/dev/null; then exit 9; fi; exec \"$0\" \"$@\"", mark.display());
    other.unwrap().provider.command.splice(0..0, ["/bin/sh".to_owned(), "-c".to_owned(), script]);
    stage.run();
    assert!(mark.exists());
    assert_eq!(ahead(&trace), 5, "the process that is left tunes all");
    assert_eq!(stage.records().len(), 5);
    let seen = stage.records();
    assert!(seen.iter().all(|(cell, _)| cell.baselines.len() == 1), "other took part");
}

/// Lets a provider's processes begin with a script that ends in the worker; `$0` and `$@` are its program and arguments.
fn begin(stage: &mut Stage, id: &str, script: &str) {
    let home = stage.options.providers.iter_mut().find(|home| home.provider.id.as_str() == id);
    let command = ["/bin/sh", "-c", script].map(str::to_owned);
    home.unwrap().provider.command.splice(0..0, command);
}

/// A script by which the process that is started as that one in order is killed once six cases were asked ahead.
fn killed(stage: &Stage, trace: &Path, number: usize) -> String {
    let (mark, trace) = (stage.folder.path().join("started"), trace.display());
    let mark = mark.display();
    let before: String = (1..number)
        .map(|n| format!("if mkdir {mark}{n} 2>/dev/null; then exec \"$0\" \"$@\"; fi; "))
        .collect();
    format!(
        "{before}if mkdir {mark}{number} 2>/dev/null; then \
         ( while [ \"$(grep -c ahead- {trace})\" -lt 6 ]; do sleep 0.002; done; kill -9 $$ ) & fi; exec \"$0\" \"$@\""
    )
}

fn marks(stage: &Stage) -> usize {
    std::fs::read_dir(stage.options.kernel_cache.join("tuned")).unwrap().count()
}

#[test]
fn a_tuner_that_is_killed_midway_leaves_the_other_cases_to_those_that_live() {
    let (mut stage, trace) = Stage::on_a_device(40);
    let script = killed(&stage, &trace, 2);
    begin(&mut stage, "other", &script);
    let (_, events) = stage.run();
    assert!(stage.folder.path().join("started2").exists());
    // The case that the killed process had may be lost to the tuning.
    assert!(marks(&stage) >= 39, "{} of 40", marks(&stage));
    assert!(format!("{events:?}").contains("canary"), "a lost process makes the device suspect");
    assert_eq!(stage.records().len(), 40);
}

#[test]
fn a_checker_that_is_killed_while_cases_are_tuned_costs_no_cell() {
    let (mut stage, trace) = Stage::on_a_device(40);
    // The one that qualifies poses the cases that are tuned.
    let script = killed(&stage, &trace, 1);
    begin(&mut stage, "oracle", &script);
    stage.run();
    assert!(stage.folder.path().join("started1").exists());
    let records = stage.records();
    assert_eq!(records.len(), 40);
    let errored = |cell: &CellRecord| matches!(cell.observation, Observation::Errored { .. });
    assert!(!records.iter().any(|(cell, _)| errored(cell)));
    assert!(marks(&stage) >= 36, "{} of 40", marks(&stage));
}

#[test]
fn what_a_provider_declines_is_not_asked_for_again() {
    let (mut stage, trace) = Stage::on_a_device(5);
    let other = stage.options.providers.iter_mut().find(|h| h.provider.id.as_str() == "other");
    let defect = ["--defect", "refuses-everything"].map(str::to_owned);
    other.unwrap().provider.command.extend(defect);
    stage.run();
    assert_eq!(ahead(&trace), 5);
    std::fs::remove_file(&trace).unwrap();
    stage.run();
    assert_eq!(ahead(&trace), 0);
}

#[test]
fn nothing_is_tuned_ahead_where_it_cannot_be_kept_in_mind_or_the_time_is_short() {
    let (stage, trace) = Stage::on_a_device(5);
    std::fs::create_dir_all(&stage.options.kernel_cache).unwrap();
    std::fs::write(stage.options.kernel_cache.join("tuned"), "a file").unwrap();
    let (_, events) = stage.run();
    assert_eq!(ahead(&trace), 0);
    assert!(format!("{events:?}").contains("nothing is tuned ahead"));
    assert_eq!(stage.records().len(), 5);
    let (mut stage, trace) = Stage::on_a_device(5);
    stage.options.time_budget = Some(Duration::from_secs(25));
    stage.run();
    assert_eq!(ahead(&trace), 0, "a round may take 20 s and the end of processes 10");
    assert_eq!(stage.records().len(), 5);
}

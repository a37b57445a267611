//! Providers that tune do it in several processes before anything is timed, once for each case.
#![allow(dead_code, reason = "the stage is shared by several test programs")]
#![allow(clippy::unwrap_used, reason = "the stage is test code")]

mod stage;

use std::collections::BTreeMap;
use std::path::PathBuf;

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

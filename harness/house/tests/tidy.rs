//! Habits that run as tests: which crate may use which, who owns a heavy dependency, names, sizes, top-level entries.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use cargo_metadata::{DependencyKind, Metadata, MetadataCommand, Package};

/// A -> B: A may depend on B. Nothing else is allowed.
const ARROWS: &[(&str, &[&str])] = &[
    ("proofhouse-contract", &[]),
    ("proofhouse-cpu", &["contract"]),
    ("proofhouse-cuda", &["contract"]),
    ("proofhouse-bridge", &["contract", "cuda"]),
    ("proofhouse-schema", &[]),
    ("proofhouse-gate", &["schema"]),
    ("proofhouse-provenance", &["schema"]),
    ("proofhouse-timer", &["schema"]),
    ("proofhouse-timer-cuda", &["schema", "timer"]),
    ("proofhouse-worker", &["schema", "timer"]),
    ("proofhouse-worker-oracle", &["contract", "schema", "worker", "worker-contract"]),
    ("proofhouse-worker-contract", &["contract", "schema", "worker"]),
    ("proofhouse-worker-cpu", &["contract", "cpu", "schema", "worker", "worker-contract"]),
    (
        "proofhouse-worker-cuda",
        &["contract", "cuda", "schema", "timer", "timer-cuda", "worker", "worker-contract"],
    ),
    ("proofhouse-evidence", &["schema"]),
    ("proofhouse-runner", &["evidence", "gate", "provenance", "schema"]),
    ("proofhouse-store", &["evidence", "schema"]),
    ("proofhouse-report", &["schema"]),
    ("proofhouse-testkit", &["schema"]),
    ("proofhouse-house", &[]),
    (
        "proofhouse",
        &["evidence", "gate", "provenance", "report", "runner", "schema", "store", "testkit"],
    ),
];

/// A heavy dependency has one owner, or one on each side of the wall between kernels and harness.
const OWNERS: &[(&str, &[&str])] = &[
    ("tokio", &["proofhouse-runner"]),
    ("duckdb", &["proofhouse-store"]),
    ("git2", &["proofhouse-provenance"]),
    ("sysinfo", &["proofhouse-provenance"]),
    ("statrs", &["proofhouse-gate"]),
    ("toml", &["proofhouse-gate"]),
    ("annotate-snippets", &["proofhouse-gate"]),
    ("plotters", &["proofhouse-report"]),
    ("maud", &["proofhouse-report"]),
    ("cudarc", &["proofhouse-cuda", "proofhouse-timer-cuda"]),
    ("nvml-wrapper", &["proofhouse-runner", "proofhouse-timer-cuda"]),
    ("rayon", &["proofhouse-cpu"]),
    ("clap", &["proofhouse"]),
    ("indicatif", &["proofhouse"]),
];

/// What may stand at the top of the repository.
const TOP: &[&str] = &[
    ".cargo",
    ".ci",
    ".clippy.toml",
    ".gitattributes",
    ".gitignore",
    ".rustfmt.toml",
    "Cargo.lock",
    "Cargo.toml",
    "LICENSE",
    "README.md",
    "baselines",
    "docs",
    "evidence",
    "gates",
    "harness",
    "kernels",
    "reports",
];

/// Names that say nothing.
const EMPTY_NAMES: &[&str] = &["utils", "util", "helpers", "helper", "common", "manager", "misc"];

/// The longest source file, in lines.
const LONGEST: usize = 800;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

fn metadata() -> Metadata {
    MetadataCommand::new().manifest_path(root().join("Cargo.toml")).no_deps().exec().unwrap()
}

/// Files that git tracks or would track: untracked ones that it does not ignore are among them.
fn files() -> Vec<String> {
    let output = Command::new("git")
        .args(["ls-files", "--cached", "--others", "--exclude-standard", "-z"])
        .current_dir(root())
        .output()
        .unwrap();
    assert!(output.status.success(), "git ls-files failed: {output:?}");
    let listed = String::from_utf8(output.stdout).unwrap();
    let there = |f: &&str| !f.is_empty() && root().join(f).is_file();
    let files: Vec<String> = listed.split('\0').filter(there).map(str::to_owned).collect();
    assert!(files.len() > 100, "only {} files: the listing is wrong", files.len());
    files
}

fn sources() -> Vec<(String, String)> {
    let source = |f: &String| f.ends_with(".rs") || f.ends_with(".py");
    let read = |f: String| (f.clone(), fs::read_to_string(root().join(f)).unwrap());
    files().into_iter().filter(source).map(read).collect()
}

const LINKED: [DependencyKind; 2] = [DependencyKind::Normal, DependencyKind::Build];
const ANY: [DependencyKind; 3] =
    [DependencyKind::Normal, DependencyKind::Build, DependencyKind::Development];

fn uses(package: &Package, kinds: &[DependencyKind]) -> BTreeSet<String> {
    let used = package.dependencies.iter().filter(|d| kinds.contains(&d.kind));
    used.map(|d| d.name.clone()).collect()
}

#[test]
fn crates_depend_only_along_the_arrows() {
    let arrows: BTreeMap<_, _> = ARROWS.iter().copied().collect();
    let metadata = metadata();
    let ours: BTreeSet<&str> = metadata.packages.iter().map(|p| p.name.as_str()).collect();
    assert_eq!(ours, arrows.keys().copied().collect(), "every crate has its arrows");
    let mut wrong = Vec::new();
    for package in &metadata.packages {
        let allowed = arrows[package.name.as_str()];
        for used in uses(package, &LINKED) {
            let short = used.strip_prefix("proofhouse-").unwrap_or(&used);
            if ours.contains(used.as_str()) && !allowed.contains(&short) {
                wrong.push(format!("{} -> {used}", package.name));
            }
        }
    }
    assert!(wrong.is_empty(), "arrows that are not allowed: {wrong:?}");
}

#[test]
fn kernels_know_nothing_of_the_harness_not_even_in_tests() {
    let mut kernels = 0;
    for package in &metadata().packages {
        if package.manifest_path.as_str().contains("/kernels/") {
            kernels += 1;
            let foreign: Vec<String> = uses(package, &ANY)
                .into_iter()
                .filter(|d| d.starts_with("proofhouse"))
                .filter(|d| {
                    let kernels = ["proofhouse-contract", "proofhouse-cpu", "proofhouse-cuda"];
                    !kernels.contains(&d.as_str())
                })
                .collect();
            assert!(foreign.is_empty(), "{} uses {foreign:?}", package.name);
        }
    }
    assert!(kernels >= 2);
}

#[test]
fn heavy_dependencies_have_one_owner() {
    let mut found = BTreeSet::new();
    for package in &metadata().packages {
        for used in uses(package, &LINKED) {
            if let Some((name, owners)) = OWNERS.iter().find(|(name, _)| *name == used) {
                assert!(owners.contains(&package.name.as_str()), "{} uses {used}", package.name);
                found.insert(*name);
            }
        }
    }
    assert_eq!(found.len(), OWNERS.len(), "an owner of nothing: {found:?}");
}

#[test]
fn the_contract_has_no_serde_and_no_unsafe() {
    let metadata = metadata();
    let contract = metadata.packages.iter().find(|p| p.name == "proofhouse-contract").unwrap();
    assert_eq!(uses(contract, &LINKED), BTreeSet::from(["half".to_owned()]));
    for (file, text) in sources() {
        assert!(!file.starts_with("kernels/contract/src") || !text.contains("unsafe {"), "{file}");
    }
}

#[test]
fn every_crate_takes_the_workspaces_lints() {
    for package in &metadata().packages {
        let text = fs::read_to_string(&package.manifest_path).unwrap();
        assert!(text.contains("[lints]\nworkspace = true"), "{}", package.name);
    }
}

#[test]
fn nothing_else_stands_at_the_top() {
    let files = files();
    let top: BTreeSet<&str> = files.iter().map(|f| f.split('/').next().unwrap()).collect();
    let more: Vec<_> = top.iter().filter(|name| !TOP.contains(name)).collect();
    assert!(more.is_empty(), "at the top: {more:?}");
}

#[test]
fn names_say_something() {
    for file in files() {
        let path = Path::new(&file);
        let stem = path.file_stem().and_then(|s| s.to_str()).unwrap_or_default();
        let folders = path.parent().unwrap().iter().filter_map(|c| c.to_str());
        for name in folders.chain([stem]) {
            assert!(!EMPTY_NAMES.contains(&name), "{file}");
        }
    }
}

#[test]
fn source_files_stay_readable() {
    for (file, text) in sources() {
        let lines = text.lines().count();
        assert!(lines <= LONGEST, "{file} has {lines} lines, {LONGEST} at most");
    }
}

#[test]
fn nothing_is_left_open_and_no_test_is_skipped() {
    // Spelled in two parts, so that this file does not find itself.
    let left = [["to", "do!("], ["unimple", "mented!("], ["#[ig", "nore"], ["unittest.", "skip("]];
    for (file, text) in sources() {
        for parts in left {
            assert!(!text.contains(&parts.concat()), "{file} has {}", parts.concat());
        }
    }
}

#[test]
fn no_file_names_a_machine() {
    let paths = [["/wo", "rk/"], ["/ro", "ot/"]];
    let skipped = |f: &str| f.starts_with("evidence/") || f == "Cargo.lock";
    for file in files().iter().filter(|f| !skipped(f)) {
        let Ok(text) = fs::read_to_string(root().join(file)) else { continue };
        for parts in paths {
            assert!(!text.contains(&parts.concat()), "{file} holds {}", parts.concat());
        }
    }
}

#[test]
fn evidence_stays_under_its_limit() {
    let files = files();
    let evidence = files.iter().filter(|f| f.starts_with("evidence/"));
    let bytes: u64 = evidence.map(|f| fs::metadata(root().join(f)).unwrap().len()).sum();
    assert!(bytes <= 30 << 20, "{bytes} bytes of evidence, 30 MiB at most");
}

#[test]
fn decisions_have_a_number_and_a_title() {
    let mut numbers = BTreeSet::new();
    for file in files().iter().filter(|f| f.starts_with("docs/decisions/")) {
        let name = file.trim_start_matches("docs/decisions/");
        let (number, title) = name.split_once('-').unwrap_or_default();
        assert!(number.len() == 4 && number.parse::<u16>().is_ok(), "{file}");
        assert!(title.ends_with(".md"), "{file}");
        assert!(numbers.insert(number.to_owned()), "{file}: the number is taken");
    }
    assert!(!numbers.is_empty(), "no decision is written down");
}

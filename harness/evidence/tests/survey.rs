//! What does not belong into a folder, what names alone show, and what a run that writes meanwhile looks like.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod filled;

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::symlink;
use std::os::unix::net::UnixListener;
use std::path::Path;

use filled::{AT, filled, record, writer};
use proofhouse_evidence::{EvidenceError, Finding, FindingKind, Folder};
use proofhouse_schema::canonical::Digest;
use rustix::fs::{CWD, FileType, Mode, mknodat};

fn pipe(path: &Path) {
    mknodat(CWD, path, FileType::Fifo, Mode::from_raw_mode(0o600), 0).unwrap();
}

/// Findings as `kind file`.
fn told(findings: &[Finding]) -> Vec<String> {
    findings.iter().map(|f| format!("{} {}", f.kind.as_str(), f.file)).collect()
}

fn verified(root: &Path) -> Vec<String> {
    told(&Folder::new(root).verify().unwrap().findings)
}

#[test]
fn everything_odd_is_a_finding_and_the_rest_is_verified_all_the_same() {
    let dir = filled();
    let root = dir.path();
    fs::write(root.join(OsStr::from_bytes(b"selftest/\xff.json")), b"{}").unwrap();
    fs::create_dir(root.join(OsStr::from_bytes(b"gate-\xfe"))).unwrap();
    pipe(&root.join("selftest/pipe.json"));
    pipe(&root.join("pipe"));
    symlink("/dev/null", root.join("selftest/link.json")).unwrap();
    symlink("selftest", root.join("linked")).unwrap();
    let _socket = UnixListener::bind(root.join("blobs/socket")).unwrap();
    fs::create_dir(root.join("selftest/folder.json")).unwrap();
    fs::create_dir(root.join("log/deep.jsonl")).unwrap();
    let check = Folder::new(root).verify().unwrap();
    assert_eq!((check.records, check.blobs, check.heads.len()), (2, 1, 1));
    let odd = [
        "blobs/socket",
        "gate-\u{fffd}",
        "linked",
        "log/deep.jsonl",
        "pipe",
        "selftest/folder.json",
        "selftest/link.json",
        "selftest/pipe.json",
        "selftest/\u{fffd}.json",
    ];
    assert_eq!(told(&check.findings), odd.map(|file| format!("path {file}")));
    let what = |file: &str| check.findings.iter().find(|f| f.file == file).unwrap().detail.clone();
    assert!(what("selftest/pipe.json").contains("a pipe"));
    assert!(what("linked").contains("a symbolic link"));
    assert!(what("blobs/socket").contains("a socket"));
    assert!(what("selftest/folder.json").contains("a folder"));
}

#[test]
fn a_record_whose_place_something_else_takes_is_told_once() {
    let dir = filled();
    let file = Folder::new(dir.path()).files().unwrap().remove(0);
    fs::remove_file(dir.path().join(&file)).unwrap();
    fs::create_dir(dir.path().join(&file)).unwrap();
    assert_eq!(verified(dir.path()), [format!("path {file}")]);
}

#[test]
fn findings_do_not_hide_one_another() {
    let dir = filled();
    let files = Folder::new(dir.path()).files().unwrap();
    fs::write(dir.path().join(&files[0]), b"not a record").unwrap();
    fs::remove_file(dir.path().join(&files[1])).unwrap();
    pipe(&dir.path().join("selftest/pipe"));
    let mut expected = vec![
        format!("edited {}", files[0]),
        format!("missing {}", files[1]),
        "path selftest/pipe".to_owned(),
    ];
    expected.sort_by_key(|line| line.split(' ').nth(1).unwrap().to_owned());
    assert_eq!(verified(dir.path()), expected);
}

#[test]
fn a_pipe_in_place_of_a_temporary_file_is_removed_and_not_waited_for() {
    let dir = filled();
    let path = dir.path().join(format!("selftest/.new-{}", Digest::of(b"x")));
    pipe(&path);
    drop(writer(dir.path(), "second"));
    assert!(!path.exists());
}

#[test]
fn names_alone_show_what_is_missing_and_what_no_log_names() {
    let dir = filled();
    let folder = Folder::new(dir.path());
    assert_eq!(told(&folder.gaps().unwrap()), Vec::<String>::new());
    let files = folder.files().unwrap();
    fs::remove_file(dir.path().join(&files[0])).unwrap();
    fs::write(dir.path().join("selftest/2026-12-01-000000000000.json"), b"{}").unwrap();
    pipe(&dir.path().join("pipe"));
    let expected = [
        format!("missing {}", files[0]),
        "unlogged selftest/2026-12-01-000000000000.json".to_owned(),
        "path pipe".to_owned(),
    ];
    assert_eq!(told(&folder.gaps().unwrap()), expected);
}

#[test]
fn a_log_that_is_cut_in_its_middle_is_a_gap() {
    let dir = filled();
    let log = dir.path().join("log/first.jsonl");
    let text = fs::read_to_string(&log).unwrap();
    fs::write(&log, text.split_once('\n').unwrap().1).unwrap();
    let gaps = Folder::new(dir.path()).gaps().unwrap();
    assert!(gaps.iter().any(|gap| gap.kind == FindingKind::BrokenChain), "{gaps:?}");
}

#[test]
fn what_a_writer_is_about_to_name_is_no_gap() {
    let dir = filled();
    let path = dir.path().join(&Folder::new(dir.path()).files().unwrap()[0]);
    let digest = Digest::of(&fs::read(&path).unwrap());
    fs::rename(&path, path.with_file_name(format!(".new-{digest}"))).unwrap();
    assert_eq!(told(&Folder::new(dir.path()).gaps().unwrap()), Vec::<String>::new());
}

#[test]
fn a_folder_that_a_run_holds_is_not_verified_and_says_who() {
    let dir = filled();
    let folder = Folder::new(dir.path());
    assert!(folder.verify_calmly().unwrap().findings.is_empty());
    let held = writer(dir.path(), "second");
    let Err(EvidenceError::Busy { holder, .. }) = folder.verify_calmly() else { panic!() };
    assert_eq!(holder, format!("process {}", std::process::id()));
    drop(held);
    assert!(folder.verify_calmly().unwrap().findings.is_empty());
}

#[test]
fn a_run_that_came_and_went_leaves_its_mark() {
    let dir = filled();
    let folder = Folder::new(dir.path());
    let before = folder.calm().unwrap();
    assert_eq!(folder.calm().unwrap(), before);
    drop(writer(dir.path(), "second"));
    assert_ne!(folder.calm().unwrap(), before);
    let empty = tempfile::tempdir().unwrap();
    let never = Folder::new(empty.path());
    let before = never.calm().unwrap();
    writer(empty.path(), "first").put(&record("one"), AT).unwrap();
    assert_ne!(never.calm().unwrap(), before);
}

#[test]
fn a_lock_that_is_no_file_is_named_and_not_waited_for() {
    let dir = tempfile::tempdir().unwrap();
    pipe(&dir.path().join(".lock"));
    assert!(matches!(Folder::new(dir.path()).calm(), Err(EvidenceError::Path { .. })));
}

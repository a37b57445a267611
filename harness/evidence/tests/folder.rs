//! The folder as a whole: what is written is read, and every way to tamper is found.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod filled;

use std::fs;
use std::path::Path;

use filled::{AT, filled, record, samples, writer};
use proofhouse_evidence::{EvidenceError, FindingKind, Folder, Writer};
use proofhouse_schema::canonical::Digest;
use proofhouse_schema::ids::WriterId;

fn kinds(root: &Path) -> Vec<FindingKind> {
    Folder::new(root).verify().unwrap().findings.into_iter().map(|f| f.kind).collect()
}

fn first_record(root: &Path) -> std::path::PathBuf {
    root.join(&Folder::new(root).files().unwrap()[0])
}

#[test]
fn an_untouched_folder_has_no_finding() {
    let dir = filled();
    let check = Folder::new(dir.path()).verify().unwrap();
    assert_eq!(check.findings, []);
    assert_eq!((check.records, check.blobs, check.heads.len()), (2, 1, 1));
    assert!(!check.not_shown.is_empty());
}

#[test]
fn a_record_written_twice_is_there_once() {
    let dir = tempfile::tempdir().unwrap();
    let mut out = writer(dir.path(), "first");
    let one = out.put(&record("one"), AT).unwrap();
    assert_eq!(out.put(&record("one"), AT).unwrap(), one);
    assert_eq!(out.folder().files().unwrap().len(), 1);
    assert_eq!(kinds(dir.path()), []);
}

#[test]
fn samples_come_back_from_their_blob() {
    let dir = tempfile::tempdir().unwrap();
    let blob = writer(dir.path(), "first").put_samples(&samples(), AT).unwrap();
    assert_eq!(Folder::new(dir.path()).samples(&blob).unwrap(), samples());
}

#[test]
fn every_single_byte_changed_is_found() {
    let dir = filled();
    let folder = Folder::new(dir.path());
    let all = [folder.files().unwrap(), folder.blobs().unwrap(), folder.logs().unwrap()].concat();
    for file in all {
        let path = dir.path().join(&file);
        let whole = fs::read(&path).unwrap();
        for at in 0..whole.len() {
            let mut bytes = whole.clone();
            bytes[at] ^= 0x10;
            fs::write(&path, &bytes).unwrap();
            assert_ne!(kinds(dir.path()), [], "byte {at} of {file}");
        }
        fs::write(&path, &whole).unwrap();
    }
    assert_eq!(kinds(dir.path()), []);
}

#[test]
fn every_truncation_of_a_record_is_found() {
    let dir = filled();
    let path = first_record(dir.path());
    let whole = fs::read(&path).unwrap();
    for cut in 0..whole.len() {
        fs::write(&path, &whole[..cut]).unwrap();
        assert_eq!(kinds(dir.path()), [FindingKind::Edited], "cut at {cut}");
    }
}

#[test]
fn a_deleted_record_is_missing() {
    let dir = filled();
    fs::remove_file(first_record(dir.path())).unwrap();
    assert_eq!(kinds(dir.path()), [FindingKind::Missing]);
}

#[test]
fn a_record_added_by_hand_is_unlogged() {
    let dir = filled();
    let other = tempfile::tempdir().unwrap();
    let (_, file) = writer(other.path(), "second").put(&record("three"), AT).unwrap();
    fs::copy(other.path().join(&file), dir.path().join(&file)).unwrap();
    assert_eq!(kinds(dir.path()), [FindingKind::Unlogged]);
}

#[test]
fn a_log_whose_lines_changed_places_is_broken() {
    let dir = filled();
    let log = dir.path().join("log/first.jsonl");
    let text = fs::read_to_string(&log).unwrap();
    let mut lines: Vec<_> = text.lines().collect();
    lines.swap(0, 1);
    fs::write(&log, lines.join("\n") + "\n").unwrap();
    assert!(kinds(dir.path()).contains(&FindingKind::BrokenChain));
}

#[test]
fn a_record_in_another_gates_folder_is_misplaced() {
    let dir = filled();
    let path = first_record(dir.path());
    fs::create_dir(dir.path().join("rms_norm.correctness")).unwrap();
    let moved = dir.path().join("rms_norm.correctness").join(path.file_name().unwrap());
    fs::rename(&path, moved).unwrap();
    assert!(kinds(dir.path()).contains(&FindingKind::Misplaced));
}

#[test]
fn a_newer_schema_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let bytes = br#"{"record":"selftest","schema":"proofhouse/v2"}"#;
    fs::create_dir(dir.path().join("selftest")).unwrap();
    let file = format!("selftest/2026-12-01-{}.json", Digest::of(bytes).short());
    fs::write(dir.path().join(&file), bytes).unwrap();
    let error = Folder::new(dir.path()).read(&file).unwrap_err();
    assert!(error.to_string().contains("proofhouse/v2"), "{error}");
    assert!(matches!(error, EvidenceError::Schema { .. }));
    assert!(kinds(dir.path()).contains(&FindingKind::NewerSchema));
}

#[test]
fn an_unknown_field_is_not_a_record_of_this_version() {
    let dir = filled();
    let path = first_record(dir.path());
    let text = fs::read_to_string(&path).unwrap().replacen('{', r#"{"aaa":1,"#, 1);
    let name = format!("selftest/2026-12-01-{}.json", Digest::of(text.as_bytes()).short());
    fs::write(dir.path().join(&name), text).unwrap();
    let error = Folder::new(dir.path()).read(&name).unwrap_err();
    assert!(matches!(error, EvidenceError::NotCanonical { .. }), "{error:?}");
}

#[test]
fn two_writers_at_once_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let held = writer(dir.path(), "first");
    let second = Writer::open(Folder::new(dir.path()), &WriterId::new("second").unwrap());
    let Err(EvidenceError::Locked { holder, .. }) = second else { panic!("{second:?}") };
    assert!(holder.contains(&std::process::id().to_string()), "{holder}");
    drop(held);
    writer(dir.path(), "second");
}

#[test]
fn a_writer_killed_before_its_log_line_leaves_nothing() {
    let dir = filled();
    let stray = dir.path().join(format!("selftest/.new-{}", Digest::of(b"half")));
    fs::write(&stray, b"half").unwrap();
    drop(writer(dir.path(), "second"));
    assert!(!stray.exists());
    assert_eq!(kinds(dir.path()), []);
}

#[test]
fn a_writer_killed_before_its_rename_loses_nothing() {
    let dir = filled();
    let path = first_record(dir.path());
    let digest = Digest::of(&fs::read(&path).unwrap());
    fs::rename(&path, path.with_file_name(format!(".new-{digest}"))).unwrap();
    assert_eq!(kinds(dir.path()), [FindingKind::Missing]);
    drop(writer(dir.path(), "second"));
    assert!(path.exists());
    assert_eq!(kinds(dir.path()), []);
}

#[test]
fn a_torn_log_line_is_found_and_mended() {
    let dir = filled();
    let log = dir.path().join("log/first.jsonl");
    let mut bytes = fs::read(&log).unwrap();
    bytes.extend_from_slice(b"{\"at\":\"17");
    fs::write(&log, bytes).unwrap();
    assert_eq!(kinds(dir.path()), [FindingKind::TornLog]);
    let mut again = writer(dir.path(), "first");
    again.put(&record("three"), AT).unwrap();
    assert_eq!(kinds(dir.path()), []);
}

#[test]
fn a_writer_goes_on_with_its_own_chain() {
    let dir = filled();
    writer(dir.path(), "first").put(&record("three"), AT).unwrap();
    let check = Folder::new(dir.path()).verify().unwrap();
    assert_eq!(check.findings, []);
    assert_eq!(check.heads.len(), 1);
}

#[test]
fn import_is_a_union_and_twice_is_once() {
    let (here, there) = (filled(), tempfile::tempdir().unwrap());
    let mut other = writer(there.path(), "second");
    other.put(&record("one"), AT).unwrap();
    other.put(&record("three"), AT).unwrap();
    drop(other);
    let from = Folder::new(there.path());
    let mut out = writer(here.path(), "third");
    let done = out.import(&from).unwrap();
    assert_eq!((done.new, done.known, done.logs), (1, 1, 1));
    let again = out.import(&from).unwrap();
    assert_eq!((again.new, again.known, again.logs), (0, 2, 0));
    assert_eq!(kinds(here.path()), []);
}

#[test]
fn import_refuses_an_edited_folder_whole() {
    let (here, there) = (filled(), filled());
    let path = first_record(there.path());
    let text = fs::read_to_string(&path).unwrap().replace("one", "0ne").replace("two", "tw0");
    fs::write(&path, text).unwrap();
    let before = Folder::new(here.path()).files().unwrap();
    let error = writer(here.path(), "third").import(&Folder::new(there.path())).unwrap_err();
    assert!(matches!(error, EvidenceError::Rejected { count: 1, .. }), "{error:?}");
    assert_eq!(Folder::new(here.path()).files().unwrap(), before);
}

#[test]
fn import_refuses_a_log_that_neither_side_continues() {
    let (here, there) = (filled(), tempfile::tempdir().unwrap());
    writer(there.path(), "first").put(&record("other"), AT).unwrap();
    let error = writer(here.path(), "third").import(&Folder::new(there.path())).unwrap_err();
    assert!(matches!(error, EvidenceError::Diverged { .. }), "{error:?}");
}

#[test]
fn a_folder_that_is_not_there_is_empty() {
    let dir = tempfile::tempdir().unwrap();
    let folder = Folder::new(dir.path().join("none"));
    assert!(folder.read_all().unwrap().is_empty());
}

#[test]
fn a_name_that_is_not_utf8_is_a_typed_error() {
    use std::os::unix::ffi::OsStrExt as _;
    let dir = filled();
    let name = std::ffi::OsStr::from_bytes(b"selftest/\xff.json");
    fs::write(dir.path().join(name), b"{}").unwrap();
    let error = Folder::new(dir.path()).files().unwrap_err();
    assert!(matches!(error, EvidenceError::Path { .. }), "{error:?}");
}

#[test]
fn a_full_disk_is_a_typed_error_and_loses_nothing() {
    let dir = filled();
    let mut out = writer(dir.path(), "second");
    let before = out.folder().files().unwrap();
    // Writing to /dev/full fails with ENOSPC: it stands where the temporary file would be.
    let bytes = proofhouse_schema::canonical::to_bytes(&record("three")).unwrap();
    let temporary = dir.path().join(format!("selftest/.new-{}", Digest::of(&bytes)));
    std::os::unix::fs::symlink("/dev/full", &temporary).unwrap();
    let error = out.put(&record("three"), AT).unwrap_err();
    assert!(matches!(error, EvidenceError::Full { .. }), "{error:?}");
    assert_eq!(out.folder().files().unwrap(), before);
    assert_eq!(kinds(dir.path()), []);
    out.put(&record("three"), AT).unwrap();
    assert_eq!(out.folder().files().unwrap().len(), before.len() + 1);
    assert_eq!(kinds(dir.path()), []);
}

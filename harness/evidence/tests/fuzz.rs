//! Spoiled folders: logs, records, blobs and names that nobody should trust.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on panics")]

#[path = "../../schema/tests/mutation/mod.rs"]
mod mutation;

use std::error::Error;
use std::ffi::OsStr;
use std::fs;
use std::io::Read as _;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use mutation::{cases, mutants, peak_memory, timely};
use proofhouse_evidence::{EvidenceError, FindingKind, Folder, LogLine, Verification, Writer};
use proofhouse_schema::canonical::{self, Digest};
use proofhouse_schema::evidence::{BlobRef, Record};
use proofhouse_schema::ids::WriterId;
use proofhouse_schema::samples::{Sample, Samples};
use proofhouse_schema::units::{Bytes, Wide};
use proptest::prelude::*;
use proptest::test_runner::{TestCaseResult, TestError, TestRunner};

const AT: Wide = Wide(1_764_550_800_000_000_000);
const RECORDS: [&str; 7] = [
    include_str!("../../schema/tests/seeds/cell_correctness.json"),
    include_str!("../../schema/tests/seeds/cell_baseline.json"),
    include_str!("../../schema/tests/seeds/cell_errored.json"),
    include_str!("../../schema/tests/seeds/verdict.json"),
    include_str!("../../schema/tests/seeds/session.json"),
    include_str!("../../schema/tests/seeds/selftest.json"),
    include_str!("../../schema/tests/seeds/selftest-cuda.json"),
];
const LOG: &str = "log/first.jsonl";

fn holds(usual: u32, seeds: Vec<Vec<u8>>, property: impl Fn(&[u8]) -> TestCaseResult) {
    let run =
        TestRunner::new(cases(usual)).run(&mutants(seeds), |bytes| timely(|| property(&bytes)));
    if let Err(error) = run {
        if let TestError::Fail(reason, bytes) = &error {
            panic!("{reason}\nfor {:?}", String::from_utf8_lossy(bytes));
        }
        panic!("{error}");
    }
}

fn shown(error: &dyn Error) {
    let mut next = Some(error);
    while let Some(error) = next {
        assert!(!error.to_string().is_empty());
        next = error.source();
    }
}

fn samples(rows: usize) -> Samples {
    let row = Sample {
        provider: 0,
        replicate: 0,
        block: 1,
        position: 0,
        measured: true,
        calls: 4,
        elapsed_ns: 1000.0,
    };
    Samples { providers: vec!["cpu".parse().unwrap()], rows: vec![row; rows], ..Samples::default() }
}

/// A folder below a folder of its own, with two records, a blob and the log that names them.
fn filled() -> (tempfile::TempDir, Folder) {
    let outside = tempfile::tempdir().unwrap();
    let folder = Folder::new(outside.path().join("evidence"));
    let mut out = Writer::open(folder.clone(), &WriterId::new("first").unwrap()).unwrap();
    for text in &RECORDS[4..] {
        let record: Record = canonical::parse(text.as_bytes()).unwrap();
        out.put(&record, AT).unwrap();
    }
    out.put_samples(&samples(20), AT).unwrap();
    (outside, folder)
}

fn names(path: &Path) -> Vec<std::ffi::OsString> {
    let mut names: Vec<_> = fs::read_dir(path).unwrap().map(|e| e.unwrap().file_name()).collect();
    names.sort();
    names
}

fn has(checked: &Verification, kind: FindingKind) -> bool {
    checked.findings.iter().any(|finding| finding.kind == kind)
}

#[test]
fn a_log_that_is_accepted_is_written_again_alike() {
    let (_outside, folder) = filled();
    assert!(folder.verify().unwrap().findings.is_empty(), "the seed is sound");
    let path = folder.root().join(LOG);
    let log = fs::read(&path).unwrap();
    holds(600, vec![log.clone()], |bytes| {
        fs::write(&path, bytes).unwrap();
        let checked = folder.verify().unwrap();
        if has(&checked, FindingKind::BrokenChain) {
            return Ok(());
        }
        let whole = bytes.iter().rposition(|&b| b == b'\n').map_or(0, |at| at + 1);
        prop_assert_eq!(has(&checked, FindingKind::TornLog), whole < bytes.len());
        let mut again = Vec::new();
        let mut previous = Digest::from_hash([0; 32]);
        for (n, text) in bytes[..whole].split_inclusive(|&b| b == b'\n').enumerate() {
            let line: LogLine = canonical::parse(text).unwrap();
            prop_assert!(line.n == n as u64 && line.previous == previous);
            let written = canonical::to_bytes(&line).unwrap();
            previous = Digest::of(&written);
            again.extend(written);
            again.push(b'\n');
        }
        prop_assert_eq!(&again, &bytes[..whole]);
        // Only the last line is not under the chain; all that came before it is as it was, or something is missed.
        let last = log[..log.len() - 1].iter().rposition(|&b| b == b'\n').map_or(0, |at| at + 1);
        prop_assert!(bytes.starts_with(&log[..last]) || !checked.findings.is_empty());
        Ok(())
    });
}

/// A chain of one line that names any file.
fn one_line(file: &str, content: &[u8]) -> Vec<u8> {
    let line = LogLine {
        n: 0,
        previous: Digest::from_hash([0; 32]),
        at: AT,
        file: file.to_owned(),
        sha256: Digest::of(content),
    };
    let mut bytes = canonical::to_bytes(&line).unwrap();
    bytes.push(b'\n');
    bytes
}

#[test]
fn recovery_renames_nothing_to_a_place_outside_its_folder() {
    let outside = tempfile::tempdir().unwrap();
    let content = b"anything";
    let left = format!(".new-{}", Digest::of(content));
    let absolute = outside.path().join("absolute.json");
    let seeds = [
        "rms_norm/a.json",
        "../escaped.json",
        "rms_norm/../../b.json",
        absolute.to_str().unwrap(),
        "x",
    ];
    holds(300, seeds.map(|seed| seed.as_bytes().to_vec()).to_vec(), |name| {
        let Ok(name) = std::str::from_utf8(name) else { return Ok(()) };
        // What an earlier input left outside must not be laid at this one's door.
        fs::remove_dir_all(outside.path()).unwrap();
        let root = outside.path().join("evidence");
        fs::create_dir_all(root.join("log")).unwrap();
        fs::create_dir_all(root.join("rms_norm")).unwrap();
        fs::write(root.join("log/other.jsonl"), one_line(name, content)).unwrap();
        fs::write(root.join("rms_norm").join(&left), content).unwrap();
        if let Err(error) = Writer::open(Folder::new(&root), &WriterId::new("next").unwrap()) {
            shown(&error);
        }
        prop_assert_eq!(names(outside.path()), ["evidence"]);
        Ok(())
    });
}

#[test]
fn a_record_that_is_accepted_keeps_its_meaning() {
    let outside = tempfile::tempdir().unwrap();
    let folder = Folder::new(outside.path());
    fs::create_dir(outside.path().join("a.b")).unwrap();
    let seeds = RECORDS.map(|text| {
        canonical::value_to_bytes(&canonical::parse_value(text.as_bytes()).unwrap()).unwrap()
    });
    holds(1500, seeds.to_vec(), |bytes| {
        let file = format!("a.b/2026-12-01-{}.json", Digest::of(bytes).short());
        fs::write(outside.path().join(&file), bytes).unwrap();
        match folder.read(&file) {
            Ok(stored) => {
                let written = canonical::to_bytes(&stored.record).unwrap();
                let again: Record = canonical::parse(&written).unwrap();
                prop_assert_eq!(canonical::to_bytes(&again).unwrap(), written);
                prop_assert_eq!(stored.digest, Digest::of(bytes));
            }
            Err(error) => shown(&error),
        }
        prop_assert!(folder.verify().is_ok());
        fs::remove_file(outside.path().join(&file)).unwrap();
        Ok(())
    });
}

/// Writes a blob under its digest and reads it with a promise of `rows`.
fn read_blob(folder: &Folder, bytes: &[u8], rows: u64) -> Result<Samples, EvidenceError> {
    let sha256 = Digest::of(bytes);
    let path = folder.root().join("blobs").join(sha256.as_str());
    fs::write(&path, bytes).unwrap();
    let read = folder.samples(&BlobRef { sha256, size: Bytes(bytes.len() as u64), rows });
    fs::remove_file(path).unwrap();
    read
}

fn blobs() -> (tempfile::TempDir, Folder) {
    let outside = tempfile::tempdir().unwrap();
    fs::create_dir(outside.path().join("blobs")).unwrap();
    let folder = Folder::new(outside.path());
    (outside, folder)
}

#[test]
fn a_blob_that_is_accepted_holds_what_its_columns_say() {
    let (_outside, folder) = blobs();
    let columns = [0, 1, 20].map(|rows| samples(rows).encode().unwrap());
    let packed = columns.clone().map(|columns| zstd::encode_all(&columns[..], 3).unwrap());
    let holds_its_columns = |bytes: &[u8]| match read_blob(&folder, bytes, 20) {
        Ok(samples) => {
            prop_assert_eq!(samples.encode().unwrap(), zstd::decode_all(bytes).unwrap());
            Ok(())
        }
        Err(error) => {
            shown(&error);
            Ok(())
        }
    };
    holds(1000, packed.to_vec(), holds_its_columns);
    holds(1000, columns.to_vec(), |columns| {
        holds_its_columns(&zstd::encode_all(columns, 1).unwrap())
    });
}

#[test]
fn a_bomb_is_refused_before_it_fills_the_memory() {
    let (_outside, folder) = blobs();
    let before = peak_memory();
    let bomb = zstd::encode_all(std::io::repeat(0).take(1 << 30), 1).unwrap();
    assert!(bomb.len() < 1 << 20, "{} bytes", bomb.len());
    let error = read_blob(&folder, &bomb, 20).unwrap_err();
    assert!(matches!(error, EvidenceError::TooLarge { limit, .. } if limit < 2 << 20), "{error}");
    assert!(peak_memory() < before + (128 << 20), "{} bytes of memory", peak_memory());
    let error = read_blob(&folder, &bomb, u64::MAX).unwrap_err();
    assert!(matches!(error, EvidenceError::TooLarge { .. }), "{error}");
    assert!(peak_memory() < before + (1 << 30), "{} bytes of memory", peak_memory());
}

#[test]
fn names_that_no_writer_makes_are_findings_or_errors() {
    let (_outside, folder) = filled();
    let sound = folder.verify().unwrap();
    let seeds = [
        "session",
        "a.b",
        "log",
        "2026-12-01-0123456789ab.json",
        ".new-",
        "first.jsonl",
        &"0f".repeat(32),
    ];
    holds(400, seeds.map(|seed| seed.as_bytes().to_vec()).to_vec(), |name| {
        let known = name.is_empty() || name == b"." || name == b".." || name.len() > 200;
        if known || name.contains(&b'/') || name.contains(&0) {
            return Ok(());
        }
        for room in ["", "session", "blobs", "log", "new.gate"] {
            let path = folder.root().join(room).join(OsStr::from_bytes(name));
            if path.exists() {
                continue;
            }
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(&path, b"{}").unwrap();
            match folder.verify() {
                // A file that is no record, blob or log is nobody's business.
                Ok(checked) => prop_assert_eq!(checked.records, sound.records),
                Err(error) => {
                    prop_assert!(matches!(error, EvidenceError::Path { .. }), "{error}");
                    shown(&error);
                }
            }
            if let Err(error) = folder.read_all() {
                shown(&error);
            }
            fs::remove_file(&path).unwrap();
        }
        let _ = fs::remove_dir(folder.root().join("new.gate"));
        Ok(())
    });
}

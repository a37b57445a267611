//! The index as its users meet it: filled, opened, refused.
#![allow(clippy::unwrap_used, reason = "a test's helper fails as the test does")]

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use proofhouse_evidence::Stored;
use proofhouse_schema::evidence::BlobRef;
use proofhouse_schema::samples::Samples;
use proofhouse_store::synthetic::Synthetic;
use proofhouse_store::{Source, SourceError, Store, StoreError};
use serde_json::json;

const SMALL: Synthetic = Synthetic { cells: 5, samples: 100 };

fn index(folder: &tempfile::TempDir) -> PathBuf {
    folder.path().join("index.duckdb")
}

fn one(store: &Store, sql: &str) -> serde_json::Value {
    store.query(sql).unwrap().rows.remove(0).remove(0)
}

/// A source with some files hidden, some broken, that keeps count of what is read.
struct Edited {
    inner: Synthetic,
    hidden: BTreeSet<String>,
    broken: BTreeSet<String>,
    short_blobs: bool,
    loads: RefCell<u32>,
}

impl Edited {
    fn new(inner: Synthetic) -> Edited {
        Edited {
            inner,
            hidden: BTreeSet::new(),
            broken: BTreeSet::new(),
            short_blobs: false,
            loads: RefCell::new(0),
        }
    }
}

impl Source for Edited {
    fn files(&self) -> Result<Vec<String>, SourceError> {
        let files = self.inner.files()?;
        Ok(files.into_iter().filter(|file| !self.hidden.contains(file)).collect())
    }

    fn load(&self, file: &str) -> Result<Stored, SourceError> {
        *self.loads.borrow_mut() += 1;
        if self.broken.contains(file) {
            return Err("the file was cut".into());
        }
        self.inner.load(file)
    }

    fn samples(&self, blob: &BlobRef) -> Result<Samples, SourceError> {
        let mut samples = self.inner.samples(blob)?;
        if self.short_blobs {
            samples.rows.pop();
        }
        Ok(samples)
    }
}

#[test]
fn an_ingest_fills_every_table_and_a_second_one_reads_nothing() {
    let mut store = Store::in_memory().unwrap();
    let source = Edited::new(SMALL);
    let done = store.ingest(&source).unwrap();
    assert_eq!((done.added, done.known, done.samples), (11, 0, 500));
    for (table, rows) in [
        ("evidence", 5),
        ("attempts", 10),
        ("samples", 500),
        ("arms", 10),
        ("verdicts", 5),
        ("comparisons", 5),
        ("sessions", 1),
        ("claims", 0),
        ("latest_cells", 5),
        ("speeds", 5),
    ] {
        assert_eq!(store.count(table).unwrap(), rows, "{table}");
    }
    *source.loads.borrow_mut() = 0;
    let done = store.ingest(&source).unwrap();
    assert_eq!((done.added, done.known, done.rebuilt), (0, 11, false));
    assert_eq!(*source.loads.borrow(), 0);
}

#[test]
fn only_what_is_new_is_read() {
    let mut store = Store::in_memory().unwrap();
    let mut source = Edited::new(SMALL);
    source.hidden.insert("rms_norm.baseline/cell-3.json".to_owned());
    store.ingest(&source).unwrap();
    assert_eq!(store.count("evidence").unwrap(), 4);
    source.hidden.clear();
    *source.loads.borrow_mut() = 0;
    assert_eq!(store.ingest(&source).unwrap().added, 1);
    assert_eq!(*source.loads.borrow(), 1);
    assert_eq!(one(&store, "SELECT count(DISTINCT record) FROM evidence"), json!(5));
    assert_eq!(one(&store, "SELECT max(record) FROM samples"), json!(4));
}

#[test]
fn a_record_that_is_gone_from_the_folder_is_gone_from_the_index() {
    let mut store = Store::in_memory().unwrap();
    let mut source = Edited::new(SMALL);
    store.ingest(&source).unwrap();
    source.hidden.insert("rms_norm.baseline/cell-3.json".to_owned());
    let done = store.ingest(&source).unwrap();
    assert!(done.rebuilt);
    assert_eq!((done.known, done.added), (0, 10));
    assert_eq!(store.count("evidence").unwrap(), 4);
    assert_eq!(store.count("samples").unwrap(), 400);
}

#[test]
fn a_broken_record_is_told_left_out_and_tried_again() {
    let mut store = Store::in_memory().unwrap();
    let mut source = Edited::new(SMALL);
    source.broken.insert("rms_norm.baseline/cell-1.json".to_owned());
    let done = store.ingest(&source).unwrap();
    assert_eq!(done.added, 10);
    assert_eq!(done.refused.len(), 1);
    assert_eq!(done.refused[0].file, "rms_norm.baseline/cell-1.json");
    assert_eq!(done.refused[0].source.to_string(), "the file was cut");
    source.broken.clear();
    assert_eq!(store.ingest(&source).unwrap().added, 1);
    assert_eq!(store.count("evidence").unwrap(), 5);
}

#[test]
fn a_blob_of_another_length_than_its_record_says_leaves_no_row_behind() {
    let mut store = Store::in_memory().unwrap();
    let source = Edited { short_blobs: true, ..Edited::new(SMALL) };
    let done = store.ingest(&source).unwrap();
    assert_eq!(done.refused.len(), 5);
    assert_eq!(store.count("evidence").unwrap(), 0);
    assert_eq!(store.count("samples").unwrap(), 0);
    assert_eq!(store.count("attempts").unwrap(), 0);
}

#[test]
fn an_index_survives_being_closed_and_a_rebuild_gives_the_same() {
    let folder = tempfile::tempdir().unwrap();
    let path = index(&folder);
    let sum = "SELECT sum(elapsed_ns) FROM samples";
    let mut store = Store::open(&path).unwrap();
    store.ingest(&SMALL).unwrap();
    let before = one(&store, sum);
    drop(store);
    let mut store = Store::open(&path).unwrap();
    assert_eq!(one(&store, sum), before);
    assert!(store.rebuild(&SMALL).unwrap().rebuilt);
    assert_eq!(one(&store, sum), before);
    assert_eq!(store.count("samples").unwrap(), 500);
}

#[test]
fn a_second_writer_and_a_reader_are_told_who_holds_the_index() {
    let folder = tempfile::tempdir().unwrap();
    let path = index(&folder);
    let store = Store::open(&path).unwrap();
    for second in [Store::open(&path), Store::open_read_only(&path)] {
        match second.unwrap_err() {
            StoreError::Locked { holder, .. } => {
                assert_eq!(holder, Some(std::process::id().to_string()));
            }
            other => panic!("{other}"),
        }
    }
    drop(store);
    let first = Store::open_read_only(&path).unwrap();
    let _second = Store::open_read_only(&path).unwrap();
    assert!(matches!(Store::open(&path), Err(StoreError::Locked { .. })));
    drop(first);
}

#[test]
fn two_processes_at_once_get_a_typed_error() {
    const NAME: &str = "two_processes_at_once_get_a_typed_error";
    if let Some(path) = std::env::var_os("PROOFHOUSE_TEST_INDEX") {
        // This is the second process; the first reads what it prints.
        println!("told: {}", Store::open(Path::new(&path)).unwrap_err());
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let path = index(&folder);
    let _store = Store::open(&path).unwrap();
    let output = Command::new(std::env::current_exe().unwrap())
        .args([NAME, "--exact", "--nocapture"])
        .env("PROOFHOUSE_TEST_INDEX", &path)
        .stderr(Stdio::inherit())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}");
    assert!(said.contains(&format!("in use by process {}", std::process::id())), "{said}");
}

/// Ends the process in the middle of an ingest.
struct Dying;

impl Source for Dying {
    fn files(&self) -> Result<Vec<String>, SourceError> {
        Synthetic { cells: 50, samples: 10_000 }.files()
    }

    fn load(&self, file: &str) -> Result<Stored, SourceError> {
        if file.ends_with("cell-40.json") {
            std::process::abort();
        }
        Synthetic { cells: 50, samples: 10_000 }.load(file)
    }

    fn samples(&self, blob: &BlobRef) -> Result<Samples, SourceError> {
        Synthetic { cells: 50, samples: 10_000 }.samples(blob)
    }
}

#[test]
fn a_process_that_dies_in_an_ingest_leaves_the_last_whole_one() {
    const NAME: &str = "a_process_that_dies_in_an_ingest_leaves_the_last_whole_one";
    if let Some(path) = std::env::var_os("PROOFHOUSE_TEST_INDEX") {
        let done = Store::open(Path::new(&path)).unwrap().ingest(&Dying);
        unreachable!("the process goes on after its end: {done:?}");
    }
    let folder = tempfile::tempdir().unwrap();
    let path = index(&folder);
    let mut store = Store::open(&path).unwrap();
    store.ingest(&Synthetic { cells: 5, samples: 10_000 }).unwrap();
    drop(store);
    let output = Command::new(std::env::current_exe().unwrap())
        .args([NAME, "--exact", "--nocapture"])
        .env("PROOFHOUSE_TEST_INDEX", &path)
        .output()
        .unwrap();
    assert_eq!(std::os::unix::process::ExitStatusExt::signal(&output.status), Some(6));
    let mut store = Store::open(&path).unwrap();
    assert_eq!(store.count("samples").unwrap(), 50_000);
    let done = store.ingest(&Synthetic { cells: 50, samples: 10_000 }).unwrap();
    assert_eq!((done.known, done.added), (11, 90));
    assert_eq!(store.count("samples").unwrap(), 500_000);
}

#[test]
fn a_file_that_is_no_database_is_refused_and_kept() {
    let folder = tempfile::tempdir().unwrap();
    let path = index(&folder);
    std::fs::write(&path, b"my thesis").unwrap();
    for opened in [Store::open(&path), Store::open_read_only(&path)] {
        let error = opened.unwrap_err();
        assert!(matches!(error, StoreError::NotAnIndex { .. }), "{error}");
        assert!(error.to_string().contains("import again"), "{error}");
    }
    assert_eq!(std::fs::read(&path).unwrap(), b"my thesis");
}

#[test]
fn a_cut_index_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = index(&folder);
    let mut store = Store::open(&path).unwrap();
    store.ingest(&Synthetic { cells: 50, samples: 1000 }).unwrap();
    drop(store);
    let bytes = std::fs::read(&path).unwrap();
    std::fs::write(&path, &bytes[..bytes.len() / 2]).unwrap();
    let error = Store::open(&path).unwrap_err();
    assert!(matches!(error, StoreError::NotAnIndex { .. }), "{error}");
}

#[test]
fn somebody_elses_database_is_left_as_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let path = index(&folder);
    let foreign = duckdb::Connection::open(&path).unwrap();
    foreign.execute_batch("CREATE TABLE recipes AS SELECT 42 AS salt").unwrap();
    drop(foreign);
    assert!(matches!(Store::open(&path), Err(StoreError::ForeignDatabase { .. })));
    assert!(matches!(Store::open_read_only(&path), Err(StoreError::ForeignDatabase { .. })));
    let foreign = duckdb::Connection::open(&path).unwrap();
    let salt: i32 = foreign.query_row("SELECT salt FROM recipes", [], |row| row.get(0)).unwrap();
    assert_eq!(salt, 42);
}

fn set_layout(path: &Path, layout: i64) {
    let connection = duckdb::Connection::open(path).unwrap();
    connection.execute("UPDATE index_layout SET layout = ?", [layout]).unwrap();
}

#[test]
fn an_index_of_a_newer_layout_is_refused_with_both_numbers() {
    let folder = tempfile::tempdir().unwrap();
    let path = index(&folder);
    drop(Store::open(&path).unwrap());
    set_layout(&path, 999);
    for opened in [Store::open(&path), Store::open_read_only(&path)] {
        let error = opened.unwrap_err();
        assert!(matches!(error, StoreError::NewerLayout { found: 999, .. }), "{error}");
    }
}

#[test]
fn an_index_of_an_older_layout_is_made_again_by_a_writer_and_refused_by_a_reader() {
    let folder = tempfile::tempdir().unwrap();
    let path = index(&folder);
    let mut store = Store::open(&path).unwrap();
    store.ingest(&SMALL).unwrap();
    drop(store);
    set_layout(&path, 0);
    let error = Store::open_read_only(&path).unwrap_err();
    assert!(matches!(error, StoreError::OlderLayout { found: 0, .. }), "{error}");
    let mut store = Store::open(&path).unwrap();
    assert_eq!(store.count("evidence").unwrap(), 0);
    assert_eq!(store.ingest(&SMALL).unwrap().added, 11);
}

#[test]
fn a_reader_cannot_ingest_and_needs_an_index() {
    let folder = tempfile::tempdir().unwrap();
    let path = index(&folder);
    assert!(matches!(Store::open_read_only(&path), Err(StoreError::NotFound { .. })));
    drop(Store::open(&path).unwrap());
    let mut store = Store::open_read_only(&path).unwrap();
    assert!(matches!(store.ingest(&SMALL), Err(StoreError::ReadOnly)));
    assert!(matches!(store.rebuild(&SMALL), Err(StoreError::ReadOnly)));
}

#[test]
fn a_folder_that_cannot_be_made_is_a_typed_error() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("blocked"), b"").unwrap();
    let error = Store::open(&folder.path().join("blocked/index.duckdb")).unwrap_err();
    assert!(matches!(error, StoreError::Unwritable { .. }), "{error}");
}

#[cfg(target_os = "linux")]
#[test]
fn a_path_that_is_not_utf8_is_a_typed_error() {
    use std::os::unix::ffi::OsStrExt;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(std::ffi::OsStr::from_bytes(b"index-\xff.duckdb"));
    assert!(matches!(Store::open(&path), Err(StoreError::PathNotUtf8 { .. })));
}

#[test]
fn an_evidence_folder_is_a_source_and_a_cut_file_in_it_is_told() {
    use proofhouse_evidence::{Folder, Writer};
    use proofhouse_schema::evidence::{Observation, Record};
    use proofhouse_schema::ids::WriterId;
    use proofhouse_schema::units::Wide;
    use proofhouse_store::synthetic;

    let folder = tempfile::tempdir().unwrap();
    let evidence = Folder::new(folder.path().join("evidence"));
    let mut writer = Writer::open(evidence.clone(), &WriterId::new("test").unwrap()).unwrap();
    let at = Wide(1_700_000_000_000_000_000);
    writer.put(&Record::Session(Box::new(synthetic::session().unwrap())), at).unwrap();
    let mut files = Vec::new();
    for number in 0..2 {
        let blob = writer.put_samples(&synthetic::samples(number, 60).unwrap(), at).unwrap();
        let mut cell = synthetic::cell(number, 60).unwrap();
        if let Observation::Baseline(seen) = &mut cell.observation {
            seen.samples = blob;
        }
        files.push(writer.put(&Record::Cell(Box::new(cell)), at).unwrap().1);
    }
    let mut store = Store::in_memory().unwrap();
    let done = store.ingest(&evidence).unwrap();
    assert_eq!((done.added, done.samples, done.refused.len()), (3, 120, 0));
    let by_cell = "SELECT file FROM evidence ORDER BY cell";
    let indexed: Vec<_> = store.query(by_cell).unwrap().rows.into_iter().flatten().collect();
    assert_eq!(indexed, [json!(files[0]), json!(files[1])]);

    let cut = evidence.root().join(&files[1]);
    let bytes = std::fs::read(&cut).unwrap();
    std::fs::write(&cut, &bytes[..100]).unwrap();
    let done = Store::in_memory().unwrap().ingest(&evidence).unwrap();
    assert_eq!((done.added, done.refused.len()), (2, 1));
    assert_eq!(done.refused[0].file, files[1]);
}

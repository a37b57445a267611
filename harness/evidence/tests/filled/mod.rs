//! A small evidence folder for tests.

#![allow(dead_code, reason = "each test file uses its part")]

use std::path::Path;

use proofhouse_evidence::{Folder, Writer};
use proofhouse_schema::evidence::{HostFacts, Record, SelftestRecord, SourceFacts};
use proofhouse_schema::ids::WriterId;
use proofhouse_schema::probe::Probe;
use proofhouse_schema::samples::{Sample, Samples};
use proofhouse_schema::units::Wide;

/// When everything is written.
pub const AT: Wide = Wide(1_764_550_800_000_000_000);

fn unknown<T>() -> Probe<T> {
    Probe::Unavailable("a test".to_owned())
}

/// A record that is about nothing.
pub fn record(tool: &str) -> Record {
    Record::Selftest(Box::new(SelftestRecord {
        schema: proofhouse_schema::SCHEMA.to_owned(),
        tool: tool.to_owned(),
        started: AT,
        source: SourceFacts { revision: unknown(), tree: unknown(), dirty: unknown(), diff: None },
        host: HostFacts {
            machine: unknown(),
            kernel: unknown(),
            distribution: unknown(),
            cpu: unknown(),
            features: vec![],
            cores: unknown(),
            memory: unknown(),
            last_level_cache: unknown(),
            numa_nodes: unknown(),
            container: unknown(),
            governor: unknown(),
            load: unknown(),
        },
        device: None,
        exploits: vec![],
        batteries: Default::default(),
    }))
}

/// A blob's samples.
pub fn samples() -> Samples {
    let row = Sample {
        provider: 0,
        replicate: 0,
        block: 0,
        position: 0,
        measured: true,
        calls: 4,
        elapsed_ns: 1000.0,
    };
    Samples { providers: vec!["cpu".parse().unwrap()], rows: vec![row; 100], ..Samples::default() }
}

/// A writer to a folder.
pub fn writer(root: &Path, id: &str) -> Writer {
    Writer::open(Folder::new(root), &WriterId::new(id).unwrap()).unwrap()
}

/// A folder with two records and a blob.
pub fn filled() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    let mut out = writer(dir.path(), "first");
    out.put(&record("one"), AT).unwrap();
    out.put(&record("two"), AT).unwrap();
    out.put_samples(&samples(), AT).unwrap();
    dir
}

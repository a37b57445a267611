//! What the runner needs of others: a place for evidence and a judge.
//!
//! Both are traits so that a full disk, a read-only folder or a wrong judge can be planted in tests. The real ones are
//! [`FolderEvidence`] and [`GateJudge`].

use std::collections::HashMap;
use std::path::PathBuf;

use proofhouse_evidence::{Folder, Writer};
use proofhouse_schema::canonical::Digest;
use proofhouse_schema::evidence::{BlobRef, CellRecord, Observation, Record, SessionRecord};
use proofhouse_schema::ids::WriterId;
use proofhouse_schema::samples::Samples;
use proofhouse_schema::verdict::{Verdict, VerdictBody};

use crate::attempt::now;

/// Evidence could not be read or written.
#[derive(Debug, thiserror::Error)]
#[error("{what} in {folder}")]
pub struct EvidenceError {
    /// What was tried.
    pub what: String,
    /// The evidence folder.
    pub folder: PathBuf,
    /// Why it failed.
    #[source]
    pub source: Box<dyn std::error::Error + Send + Sync>,
}

/// A record that is there already, with its verdict.
#[derive(Debug, Clone, PartialEq)]
pub struct Finished {
    /// The record.
    pub evidence: Digest,
    /// Its verdict.
    pub verdict: VerdictBody,
    /// Whether the verdict is not stored yet: the stored one is by another judge.
    pub rejudged: bool,
}

/// A place for evidence. What [`put`](Evidence::put) returned is on disk for good.
pub trait Evidence {
    /// Writes a record and gives its id.
    ///
    /// # Errors
    /// When it could not be written whole: a full disk, a read-only folder.
    fn put(&mut self, record: &Record) -> Result<Digest, EvidenceError>;

    /// Writes a column blob.
    ///
    /// # Errors
    /// As [`put`](Evidence::put).
    fn put_samples(&mut self, samples: &Samples) -> Result<BlobRef, EvidenceError>;

    /// The newest record with this reuse key and its verdict by the present judge, if there are both.
    ///
    /// # Errors
    /// When the folder could not be read.
    fn finished(&self, key: &Digest) -> Result<Option<Finished>, EvidenceError>;

    /// Keeps a part of a record that is not done, under its reuse key, for a later run. It is no evidence, and a place may
    /// keep nothing.
    ///
    /// # Errors
    /// As [`put`](Evidence::put).
    fn keep(&mut self, _key: &Digest, _number: u32, _part: &[u8]) -> Result<(), EvidenceError> {
        Ok(())
    }

    /// The parts that are kept under a reuse key.
    fn kept(&self, _key: &Digest) -> Vec<Vec<u8>> {
        Vec::new()
    }

    /// Forgets what is kept under a reuse key: the record is done, or is to be made from nothing.
    ///
    /// # Errors
    /// When it cannot be removed.
    fn forget(&mut self, _key: &Digest) -> Result<(), EvidenceError> {
        Ok(())
    }
}

/// Judges what was seen. Pure: the same evidence gets the same verdict.
pub trait Judge {
    /// Name and version; verdicts by another version are judged again.
    fn name(&self) -> String;

    /// The verdict on a record.
    fn judge(&self, seen: &Seen<'_>) -> VerdictBody;
}

/// What a judge looks at.
#[derive(Debug, Clone, Copy)]
pub struct Seen<'a> {
    /// The record's id.
    pub evidence: &'a Digest,
    /// The record.
    pub record: &'a CellRecord,
    /// The samples, of a baseline cell.
    pub samples: Option<&'a Samples>,
    /// The session that the record names.
    pub session: &'a SessionRecord,
}

/// The judge of the gate crate.
#[derive(Debug, Clone, Copy, Default)]
pub struct GateJudge;

impl Judge for GateJudge {
    fn name(&self) -> String {
        proofhouse_gate::judge::JUDGE.to_owned()
    }

    fn judge(&self, seen: &Seen<'_>) -> VerdictBody {
        let evidence = proofhouse_gate::judge::Evidence {
            digest: seen.evidence,
            samples: seen.samples,
            session: Some(seen.session),
        };
        proofhouse_gate::judge::judge(seen.record, &evidence)
    }
}

/// An evidence folder, with an index of what can be used again.
#[derive(Debug)]
pub struct FolderEvidence {
    folder: Folder,
    /// Absent when the folder is only read.
    writer: Option<Writer>,
    index: HashMap<Digest, Entry>,
    sessions: HashMap<Digest, String>,
}

/// A cell record by its reuse key.
#[derive(Debug)]
struct Entry {
    evidence: Digest,
    file: String,
    verdict: Option<VerdictBody>,
}

impl FolderEvidence {
    /// Takes the folder's lock, to write to it.
    ///
    /// # Errors
    /// When another run writes there, the folder cannot be written, or evidence in it cannot be read.
    pub fn open(folder: Folder, writer: &WriterId) -> Result<Self, EvidenceError> {
        let root = folder.root().to_owned();
        let writer = Writer::open(folder.clone(), writer)
            .map_err(|source| fault("opening for writing", root, source))?;
        Ok(Self { writer: Some(writer), ..Self::read(folder)? })
    }

    /// Only reads the folder: for `list` and `plan`.
    ///
    /// # Errors
    /// When evidence in it cannot be read: edited evidence is an error, and not something to measure over.
    pub fn read(folder: Folder) -> Result<Self, EvidenceError> {
        let mut index: HashMap<Digest, Entry> = HashMap::new();
        let mut sessions = HashMap::new();
        let mut verdicts: HashMap<Digest, VerdictBody> = HashMap::new();
        let failed = |source| fault("reading", folder.root().to_owned(), source);
        let logged = folder.logged().map_err(failed)?;
        for file in folder.files().map_err(failed)? {
            let stored = folder.read(&file).map_err(failed)?;
            // What no log names was added by hand: it is never used again, and `verify` tells it.
            if logged.get(&file) != Some(&stored.digest) {
                continue;
            }
            match stored.record {
                Record::Cell(cell) => {
                    let entry = Entry { evidence: stored.digest, file, verdict: None };
                    index.insert(cell.key, entry);
                }
                Record::Verdict(verdict) => {
                    verdicts.insert(verdict.evidence.clone(), *verdict);
                }
                Record::Session(_) => {
                    sessions.insert(stored.digest, file);
                }
                Record::Selftest(_) | Record::Calibration(_) => {}
            }
        }
        for entry in index.values_mut() {
            entry.verdict = verdicts.remove(&entry.evidence);
        }
        Ok(Self { folder, writer: None, index, sessions })
    }

    fn fault(
        &self,
        what: &str,
        source: impl Into<Box<dyn std::error::Error + Send + Sync>>,
    ) -> EvidenceError {
        fault(what, self.folder.root().to_owned(), source)
    }

    fn writer(&mut self) -> Result<&mut Writer, EvidenceError> {
        let root = self.folder.root().to_owned();
        self.writer.as_mut().ok_or_else(|| fault("writing", root, "it was opened for reading only"))
    }

    /// Judges a stored record again; nothing is measured. None where a part of it is not there.
    fn rejudge(&self, entry: &Entry) -> Result<Option<VerdictBody>, EvidenceError> {
        let failed = |source| self.fault("reading", source);
        let Record::Cell(record) = self.folder.read(&entry.file).map_err(failed)?.record else {
            return Ok(None);
        };
        let Some(file) = self.sessions.get(&record.session) else { return Ok(None) };
        let Record::Session(session) = self.folder.read(file).map_err(failed)?.record else {
            return Ok(None);
        };
        let samples = match &record.observation {
            Observation::Baseline(seen) => {
                Some(self.folder.samples(&seen.samples).map_err(failed)?)
            }
            _ => None,
        };
        let (evidence, samples) = (&entry.evidence, samples.as_ref());
        Ok(Some(GateJudge.judge(&Seen { evidence, record: &record, samples, session: &session })))
    }
}

impl Evidence for FolderEvidence {
    fn put(&mut self, record: &Record) -> Result<Digest, EvidenceError> {
        let written = self.writer()?.put(record, now());
        written.map(|(digest, _)| digest).map_err(|source| self.fault("writing a record", source))
    }

    fn put_samples(&mut self, samples: &Samples) -> Result<BlobRef, EvidenceError> {
        let written = self.writer()?.put_samples(samples, now());
        written.map_err(|source| self.fault("writing samples", source))
    }

    fn finished(&self, key: &Digest) -> Result<Option<Finished>, EvidenceError> {
        let Some(entry) = self.index.get(key) else { return Ok(None) };
        let stored = entry.verdict.as_ref().filter(|verdict| verdict.judge == GateJudge.name());
        let (verdict, rejudged) = match stored {
            Some(verdict) => (Some(verdict.clone()), false),
            None => (self.rejudge(entry)?, true),
        };
        let evidence = entry.evidence.clone();
        // Only what is decided is used again; everything else is worth another try.
        Ok(verdict
            .filter(|verdict| matches!(verdict.verdict, Verdict::Pass | Verdict::Fail))
            .map(|verdict| Finished { evidence, verdict, rejudged }))
    }

    fn keep(&mut self, key: &Digest, number: u32, part: &[u8]) -> Result<(), EvidenceError> {
        let kept = self.writer()?.keep(key, number, part);
        kept.map_err(|source| self.fault("keeping a part of a record", source))
    }

    fn kept(&self, key: &Digest) -> Vec<Vec<u8>> {
        self.folder.kept(key)
    }

    fn forget(&mut self, key: &Digest) -> Result<(), EvidenceError> {
        let forgotten = self.writer()?.forget(key);
        forgotten.map_err(|source| self.fault("removing parts of a record", source))
    }
}

fn fault(
    what: &str,
    folder: PathBuf,
    source: impl Into<Box<dyn std::error::Error + Send + Sync>>,
) -> EvidenceError {
    EvidenceError { what: what.to_owned(), folder, source: source.into() }
}

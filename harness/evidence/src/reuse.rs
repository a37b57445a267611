//! Finding evidence that can be used again.

use std::collections::HashMap;

use proofhouse_schema::canonical::Digest;
use proofhouse_schema::evidence::{CellRecord, Record};
use proofhouse_schema::verdict::VerdictBody;

use crate::error::EvidenceError;
use crate::folder::Folder;

/// A cell with its evidence's digest and the newest verdict on it.
#[derive(Debug, Clone)]
pub struct Reusable {
    /// The evidence.
    pub evidence: Digest,
    /// The file, relative to the folder.
    pub file: String,
    /// The cell.
    pub cell: Box<CellRecord>,
    /// The verdict that is stored.
    pub verdict: Option<Box<VerdictBody>>,
}

/// Records by their reuse key.
#[derive(Debug, Default)]
pub struct ReuseIndex {
    by_key: HashMap<Digest, Reusable>,
}

impl ReuseIndex {
    /// Reads the folder once. Of several records with one key the last file's wins.
    ///
    /// # Errors
    /// When a record cannot be read: edited evidence is an error, not something to measure over.
    pub fn build(folder: &Folder) -> Result<Self, EvidenceError> {
        let mut by_key = HashMap::new();
        let mut verdicts: HashMap<Digest, Box<VerdictBody>> = HashMap::new();
        for stored in folder.read_all()? {
            match stored.record {
                Record::Cell(cell) => {
                    let key = cell.key.clone();
                    let found = Reusable {
                        evidence: stored.digest,
                        file: stored.file,
                        cell,
                        verdict: None,
                    };
                    by_key.insert(key, found);
                }
                Record::Verdict(verdict) => {
                    verdicts.insert(verdict.evidence.clone(), verdict);
                }
                Record::Session(_) | Record::Selftest(_) => {}
            }
        }
        for found in by_key.values_mut() {
            found.verdict = verdicts.remove(&found.evidence);
        }
        Ok(Self { by_key })
    }

    /// The record with this key.
    #[must_use]
    pub fn get(&self, key: &Digest) -> Option<&Reusable> {
        self.by_key.get(key)
    }

    /// How many records there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.by_key.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.by_key.is_empty()
    }
}

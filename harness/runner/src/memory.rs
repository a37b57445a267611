//! Evidence in memory, for runs whose single records are not kept: self-tests and calibrations.

use std::collections::BTreeMap;
use std::path::PathBuf;

use proofhouse_schema::canonical::{self, Digest};
use proofhouse_schema::evidence::{BlobRef, QualificationScore, Record, SessionRecord};
use proofhouse_schema::provider::ProviderFacts;
use proofhouse_schema::samples::Samples;
use proofhouse_schema::units::Bytes;

use crate::ports::{Evidence, EvidenceError, Finished};

/// What is remembered of the records that passed by.
#[derive(Debug, Default)]
pub(crate) struct Memory {
    /// The last session.
    pub(crate) session: Option<SessionRecord>,
    /// The last candidate.
    pub(crate) candidate: Option<ProviderFacts>,
    /// The batteries of every session, by `operator dtype`.
    pub(crate) batteries: BTreeMap<String, QualificationScore>,
}

impl Evidence for Memory {
    fn put(&mut self, record: &Record) -> Result<Digest, EvidenceError> {
        match record {
            Record::Session(session) => {
                self.batteries.extend(session.qualification.clone());
                self.session = Some((**session).clone());
            }
            Record::Cell(cell) => self.candidate = Some(cell.candidate.clone()),
            _ => {}
        }
        canonical::digest(record).map_err(|source| fault("giving a record its digest", source))
    }

    fn put_samples(&mut self, samples: &Samples) -> Result<BlobRef, EvidenceError> {
        let bytes = samples.encode().map_err(|source| fault("encoding samples", source))?;
        let rows = samples.rows.len() as u64;
        Ok(BlobRef { sha256: Digest::of(&bytes), size: Bytes(bytes.len() as u64), rows })
    }

    fn finished(&self, _key: &Digest) -> Result<Option<Finished>, EvidenceError> {
        Ok(None)
    }
}

fn fault(what: &str, source: canonical::CanonicalError) -> EvidenceError {
    EvidenceError {
        what: what.to_owned(),
        folder: PathBuf::from("memory"),
        source: Box::new(source),
    }
}

//! Evidence in memory, for runs whose single records are not kept: self-tests and calibrations.

use std::collections::BTreeMap;
use std::path::PathBuf;

use proofhouse_gate::stats::median;
use proofhouse_schema::canonical::{self, Digest};
use proofhouse_schema::evidence::{
    BlobRef, CellRecord, Observation, QualificationScore, Record, SessionRecord,
};
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
    /// The candidates' median times of a call in nanoseconds, by gate and cell.
    pub(crate) times: BTreeMap<(String, String), f64>,
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
            Record::Cell(cell) => {
                self.candidate = Some(cell.candidate.clone());
                let cell_of = (cell.gate.id.to_string(), cell.cell.clone());
                self.times.extend(time(cell).map(|time| (cell_of, time)));
            }
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

/// The median over replicates of a timed candidate's median call.
fn time(cell: &CellRecord) -> Option<f64> {
    let Observation::Baseline(seen) = &cell.observation else { return None };
    let own = seen.arms.iter().filter(|arm| arm.provider == cell.candidate.id);
    median(&own.map(|arm| arm.summary.p50_ns.0).collect::<Vec<_>>()).ok()
}

fn fault(what: &str, source: canonical::CanonicalError) -> EvidenceError {
    EvidenceError {
        what: what.to_owned(),
        folder: PathBuf::from("memory"),
        source: Box::new(source),
    }
}

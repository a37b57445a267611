//! From evidence to a verdict. Pure, and fail-closed: what is missing is never a pass.
//!
//! A verdict is made from stored evidence alone, so that a changed judge judges again without measuring again; its name
//! and version are in every verdict.

pub(crate) mod baseline;
mod clocks;
mod correctness;
mod grade;
mod graph;
mod identity;
pub(crate) mod notes;
mod outputs;
mod sanitizer;
pub(crate) mod speed;
mod total;

pub use baseline::satisfies;
pub use grade::grade;
pub use identity::{IncomparableError, SpeedIdentity, contract_of, ensure_comparable};
pub use total::{Adjusted, Total, adjust, exit_of, gate_total, total};

use proofhouse_schema::SCHEMA;
use proofhouse_schema::canonical::Digest;
use proofhouse_schema::evidence::{CellRecord, Ending, Observation, SessionRecord};
use proofhouse_schema::gate::{GateKind, Level};
use proofhouse_schema::samples::Samples;
use proofhouse_schema::verdict::{Comparison, Verdict, VerdictBody};

use notes::Notes;

/// Name and version of this judge. The version counts changes of what it decides.
pub const JUDGE: &str = "proofhouse-judge/2";

/// The code of a reason that says that a worker broke the protocol.
pub const PROTOCOL: &str = "protocol";

/// What a record is judged with.
#[derive(Debug, Clone, Copy)]
pub struct Evidence<'a> {
    /// The record's digest.
    pub digest: &'a Digest,
    /// The decoded sample blob, where the record names one.
    pub samples: Option<&'a Samples>,
    /// The session that the record names: its controls and ceilings.
    pub session: Option<&'a SessionRecord>,
}

/// Judges one cell.
#[must_use]
pub fn judge(record: &CellRecord, evidence: &Evidence<'_>) -> VerdictBody {
    let mut notes = Notes::default();
    let comparisons = observe(record, evidence, &mut notes);
    let (verdict, reasons) = notes.rule();
    let (grade, _) = grade(record, evidence.session);
    VerdictBody {
        schema: SCHEMA.to_owned(),
        evidence: evidence.digest.clone(),
        gate: record.gate.id.clone(),
        cell: record.cell.clone(),
        provider: record.candidate.id.clone(),
        judge: JUDGE.to_owned(),
        verdict,
        reasons,
        comparisons,
        grade,
        required: record.gate.level == Level::Required,
    }
}

fn observe(record: &CellRecord, evidence: &Evidence<'_>, notes: &mut Notes) -> Vec<Comparison> {
    if record.schema != SCHEMA {
        let detail = format!("the record's schema is {:?}; accepted: {SCHEMA:?}", record.schema);
        notes.add(Verdict::Invalid, "other-schema", detail);
        return Vec::new();
    }
    match (&record.observation, record.gate.kind) {
        (Observation::Correctness(seen), GateKind::Correctness) => {
            correctness::judge(record, seen, notes);
        }
        (Observation::Baseline(seen), GateKind::Baseline) => {
            return baseline::judge(record, seen, evidence.samples, evidence.session, notes);
        }
        (Observation::Graph(seen), GateKind::Graph) => graph::judge(record, seen, notes),
        (Observation::Sanitizer(seen), GateKind::Sanitizer) => {
            sanitizer::judge(record, seen, notes);
        }
        (
            Observation::Correctness(_)
            | Observation::Baseline(_)
            | Observation::Graph(_)
            | Observation::Sanitizer(_),
            kind,
        ) => {
            let detail = format!("the observation is not one of a {kind} gate");
            notes.add(Verdict::Invalid, "other-observation", detail);
        }
        (Observation::Unsupported { reason }, _) => {
            notes.add(Verdict::Unsupported, "unsupported", reason);
        }
        (Observation::NotRun { reason }, _) => notes.add(Verdict::NotRun, "not-run", reason),
        (Observation::Errored { ending, provider, detail }, _) => {
            notes.add(Verdict::Errored, ending_code(ending), format!("{provider}: {detail}"));
        }
    }
    Vec::new()
}

fn ending_code(ending: &Ending) -> &'static str {
    match ending {
        Ending::Exit(_) => "exited",
        Ending::Signal(_) => "killed-by-signal",
        Ending::Timeout => "timeout",
        Ending::MemoryLimit => "memory-limit",
        Ending::Protocol => PROTOCOL,
        Ending::NotStarted => "not-started",
        Ending::Interrupted => "interrupted",
    }
}

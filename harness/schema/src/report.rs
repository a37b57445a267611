//! The rows that reports are made of: what the store gives and the report crate draws.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::canonical::Digest;
use crate::dtype::Dtype;
use crate::evidence::{Grade, SessionRecord, Summary};
use crate::gate::GateKind;
use crate::ids::{GateId, OperatorName, ProviderId};
use crate::units::Bytes;
use crate::verdict::{Comparison, Reason, Verdict};

/// Everything a report says, and the digests it was made from.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ReportModel {
    /// The title.
    pub title: String,
    /// When it was made, RFC 3339 in UTC.
    pub generated: String,
    /// The tool's version.
    pub tool: String,
    /// The sessions that the cells name.
    pub sessions: BTreeMap<Digest, SessionRecord>,
    /// The cells, sorted by operator, gate kind, gate and cell.
    pub cells: Vec<CellRow>,
}

/// One cell of a report.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CellRow {
    /// The gate.
    pub gate: GateId,
    /// Its kind.
    pub kind: GateKind,
    /// The operator.
    pub operator: OperatorName,
    /// The cell's key.
    pub cell: String,
    /// The shape part of the key, e.g. `rows=8 hidden=4096`.
    pub shape: String,
    /// The activation dtype.
    pub dtype: Dtype,
    /// The layout.
    pub layout: String,
    /// The value class, the input file's name, or `refusal: NAME`.
    pub values: String,
    /// The candidate.
    pub provider: ProviderId,
    /// The verdict.
    pub verdict: Verdict,
    /// Why.
    pub reasons: Vec<Reason>,
    /// The grade.
    pub grade: Grade,
    /// Whether it decides the exit code.
    pub required: bool,
    /// Largest error over all outputs, in ulps, where outputs were compared.
    pub max_ulp: Option<f64>,
    /// Baseline gates: one comparison per baseline.
    pub comparisons: Vec<Comparison>,
    /// Baseline gates: time per call by provider over all replicates.
    pub times: BTreeMap<ProviderId, Summary>,
    /// Baseline gates: measured samples for the scatter, thinned evenly to a bound.
    pub samples: Vec<SamplePoint>,
    /// Bytes that any implementation must move (read, written).
    pub traffic: Option<(Bytes, Bytes)>,
    /// The timing contract in words, e.g. `hot eager host 1 thread`.
    pub contract: Option<String>,
    /// The evidence.
    pub evidence: Digest,
    /// The evidence file, relative to the evidence folder.
    pub file: String,
    /// The session.
    pub session: Digest,
    /// The command that runs it again.
    pub reproduce: Vec<String>,
}

/// One sample in a scatter plot.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SamplePoint {
    /// The provider.
    pub provider: ProviderId,
    /// The replicate.
    pub replicate: u32,
    /// The block.
    pub block: u32,
    /// The place within the block.
    pub position: u32,
    /// Nanoseconds per call.
    pub per_call_ns: f64,
}

//! The run's event stream: what the terminal shows and `--format json` prints, one object a line.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::canonical::Digest;
use crate::exit::Exit;
use crate::ids::{GateId, ProviderId};
use crate::verdict::{Comparison, Reason, Verdict};

/// An event of a run. The set is closed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum Event {
    /// The plan is made.
    Planned {
        /// Gates.
        gates: u64,
        /// Cells (a cell counts once per candidate).
        cells: u64,
        /// Cells whose evidence is used again.
        reused: u64,
        /// Cells that gates exclude, with a reason each.
        excluded: u64,
    },
    /// A step that may take a while began: an environment is made, a control runs.
    StepStarted {
        /// What.
        step: String,
    },
    /// The step ended.
    StepFinished {
        /// What.
        step: String,
        /// How.
        outcome: String,
        /// How long, in milliseconds.
        elapsed_ms: f64,
    },
    /// A provider is not available; its cells are not-run.
    ProviderAbsent {
        /// Who.
        provider: ProviderId,
        /// Why.
        reason: String,
    },
    /// Work on a cell began.
    CellStarted {
        /// The gate.
        gate: GateId,
        /// The cell.
        cell: String,
        /// The candidate.
        provider: ProviderId,
    },
    /// A cell is judged and its evidence written.
    CellFinished(CellFinished),
    /// Something a person should know.
    Warning {
        /// The sentence.
        message: String,
    },
    /// The run ended.
    Finished {
        /// Cells by verdict, required ones and others.
        passed: u64,
        /// Cells that did not pass.
        not_passed: u64,
        /// How the run ends.
        exit: Exit,
        /// How long, in milliseconds.
        elapsed_ms: f64,
    },
}

/// A judged cell.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CellFinished {
    /// The gate.
    pub gate: GateId,
    /// The cell.
    pub cell: String,
    /// The candidate.
    pub provider: ProviderId,
    /// The verdict.
    pub verdict: Verdict,
    /// Whether it decides the exit code.
    pub required: bool,
    /// Why.
    pub reasons: Vec<Reason>,
    /// Baseline gates: one comparison per baseline.
    pub comparisons: Vec<Comparison>,
    /// The evidence.
    pub evidence: Digest,
    /// Whether the evidence was there before.
    pub reused: bool,
}

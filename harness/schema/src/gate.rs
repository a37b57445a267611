//! Gates after resolution: what is asked, with nothing left to default. This is what evidence holds; the form that
//! people write is in the gate crate.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::canonical::Digest;
use crate::catalog::ParamValue;
use crate::device::DeviceKind;
use crate::dtype::Dtype;
use crate::ids::{GateId, OperatorName, ProfileId, ProviderId};
use crate::timing::TimingContract;
use crate::units::Wide;
use crate::verdict::Require;

/// The one list of gate kinds.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum GateKind {
    /// Outputs against the oracle.
    Correctness,
    /// Time against named baselines.
    Baseline,
    /// Capture and replay in a device graph.
    Graph,
    /// Memory and race checkers.
    Sanitizer,
    /// Bytes moved.
    Traffic,
    /// Which operator an adapter dispatches to.
    Dispatcher,
    /// A whole model's outputs.
    Model,
    /// A kernel inside an engine.
    Engine,
    /// An engine under load.
    Serving,
}

impl GateKind {
    /// The word in TOML, JSON and reports.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            GateKind::Correctness => "correctness",
            GateKind::Baseline => "baseline",
            GateKind::Graph => "graph",
            GateKind::Sanitizer => "sanitizer",
            GateKind::Traffic => "traffic",
            GateKind::Dispatcher => "dispatcher",
            GateKind::Model => "model",
            GateKind::Engine => "engine",
            GateKind::Serving => "serving",
        }
    }
}

impl std::fmt::Display for GateKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Whether a gate decides the exit code.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Level {
    /// It must pass.
    Required,
    /// It is told and decides nothing.
    Informative,
}

/// A gate with its cells, resolved against catalog, providers and profile.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ResolvedGate {
    /// What holds for every cell.
    pub header: GateHeader,
    /// The cells, in order.
    pub cells: Vec<Cell>,
    /// Cells that the gate excludes on purpose, with the reason.
    pub exclusions: Vec<Exclusion>,
}

/// What holds for every cell of a gate. Its digest is the gate's digest: cells have digests of their own.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct GateHeader {
    /// The gate's id.
    pub id: GateId,
    /// Its kind.
    pub kind: GateKind,
    /// Whether it decides the exit code.
    pub level: Level,
    /// One sentence.
    pub about: String,
    /// Where the candidates run.
    #[serde(default, skip_serializing_if = "DeviceKind::is_cpu")]
    pub device: DeviceKind,
    /// The operator.
    pub operator: OperatorName,
    /// Who is judged.
    pub candidates: Vec<ProviderId>,
    /// Who the candidates are compared with (baseline gates).
    pub baselines: Vec<ProviderId>,
    /// The timing contract and its rule (baseline gates).
    pub timing: Option<TimingRule>,
}

/// How a baseline gate measures and what it requires.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TimingRule {
    /// The contract.
    pub contract: TimingContract,
    /// The margin, a fraction declared before data are seen.
    pub margin: f64,
    /// The speed verdict that is required against each baseline.
    pub require: Require,
}

/// How much is measured.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Profile {
    /// Its id.
    pub id: ProfileId,
    /// Fresh processes per provider in a baseline gate.
    pub replicates: u32,
    /// Blocks per replicate, each with every provider once.
    pub blocks: u32,
    /// Samples per turn.
    pub samples: u32,
    /// Least duration of a sample, in microseconds.
    pub min_sample_us: f64,
}

/// One cell: one case of one gate.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Cell {
    /// Readable and unique in its gate: `rows=8 hidden=4096 BF16 contiguous normal`.
    pub key: String,
    /// The case.
    pub case: CaseSpec,
}

/// A case as the checker takes it: enough to make every input again.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CaseSpec {
    /// The operator.
    pub operator: OperatorName,
    /// Extents by dimension name.
    pub dims: BTreeMap<String, u64>,
    /// The activation dtype.
    pub dtype: Dtype,
    /// The layout's name in the catalog.
    pub layout: String,
    /// Parameters, every one of the operator's.
    pub params: BTreeMap<String, ParamValue>,
    /// Where the inputs come from.
    pub inputs: Inputs,
    /// What is expected.
    pub expect: Expect,
}

impl CaseSpec {
    /// The product of its extents, at most the largest number: by it cases are compared in size.
    #[must_use]
    pub fn size(&self) -> u64 {
        self.dims.values().fold(1, |product, dim| product.saturating_mul(*dim))
    }
}

/// Where inputs come from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Inputs {
    /// Made from a seed.
    Seeded {
        /// The value class in the catalog.
        values: String,
        /// The seed.
        seed: Wide,
    },
    /// Read from a safetensors file.
    File {
        /// The path, relative to the gates folder.
        path: String,
        /// The file's digest.
        sha256: Digest,
        /// Operator tensor name to name in the file.
        tensors: BTreeMap<String, String>,
        /// The seed of the tensors that the file lacks.
        seed: Wide,
    },
}

/// What is expected of a case.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Expect {
    /// The oracle's outputs.
    Outputs,
    /// A typed refusal.
    Refusal {
        /// The refusal's name in the catalog.
        name: String,
        /// The expected kind of error.
        kind: String,
        /// The expected argument.
        argument: String,
    },
}

/// A cell that is excluded on purpose.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Exclusion {
    /// The cell's key.
    pub cell: String,
    /// Why.
    pub reason: String,
}

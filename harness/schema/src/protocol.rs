//! The lines between supervisor and worker.
//!
//! One JSON object a line over a Unix socket that the worker connects to (`PROOFHOUSE_SOCKET`). The supervisor asks,
//! the worker answers; there is one request under way at a time. Every answer echoes the nonce
//! (`PROOFHOUSE_NONCE`), the request's `seq` and the worker's provider id, so that a late, foreign or mislabeled answer
//! is seen. Tensors never travel over the socket: they lie in files that both sides map. `docs/workers.md` is the
//! description for people.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::canonical::Digest;
use crate::catalog::{Catalog, ParamValue, Role};
use crate::device::{OpenedDevice, Reuse, Telemetry};
use crate::dtype::Dtype;
use crate::evidence::{Finding, MappedLibrary, QualificationScore, TensorComparison};
use crate::gate::CaseSpec;
use crate::ids::{OperatorName, ProviderId};
use crate::timing::{Cache, Launch};
use crate::units::Nanos;

/// The protocol's version; both sides must have the same.
pub const PROTOCOL: u32 = 1;

/// The environment variable with the socket's path.
pub const SOCKET_VARIABLE: &str = "PROOFHOUSE_SOCKET";
/// The environment variable with the nonce.
pub const NONCE_VARIABLE: &str = "PROOFHOUSE_NONCE";
/// The longest line that either side accepts, in bytes.
pub const MAX_LINE: usize = 16 << 20;

/// A request with its number.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RequestLine {
    /// Counts up from 1.
    pub seq: u64,
    /// What is asked.
    #[serde(flatten)]
    pub request: Request,
}

/// An answer with the echoes that bind it to its request and its sender.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ReplyLine {
    /// The nonce from the environment.
    pub nonce: String,
    /// The request's number; 0 for the hello.
    pub seq: u64,
    /// Who answers.
    pub provider: ProviderId,
    /// The answer.
    #[serde(flatten)]
    pub reply: Reply,
}

/// What a supervisor asks.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "verb", rename_all = "snake_case")]
pub enum Request {
    /// Map the tensors of a case and get ready (compile, tune). Answer: `prepared`, `refused` or `unsupported`.
    Prepare(Prepare),
    /// Run the operator once in the mapped tensors. Answer: `checked`, `refused` or `unsupported`.
    Check {
        /// The case.
        case: String,
        /// Whether values that live on the device are checked.
        checked: bool,
    },
    /// Warm up, or take one turn of samples. Answer: `measured`.
    Measure(Measure),
    /// Capture one call over the tensors that `check` uses in a device graph. Answer: `captured`, or `unsupported` where
    /// the provider or the device says that it cannot be captured.
    Capture {
        /// The case.
        case: String,
    },
    /// Load the mapped file's contents into the same device buffers, replay the captured graph, and store what it wrote
    /// in the file. Answer: `replayed`.
    Replay {
        /// The case.
        case: String,
    },
    /// Measure what the device can do at most. Answer: `ceilings`. Only our own worker on a device knows it.
    Ceilings,
    /// Say what really ran. Answer: `witnessed`.
    Witness,
    /// Forget a case and unmap its tensors. Answer: `released`.
    Release {
        /// The case.
        case: String,
    },
    /// End. Answer: `bye`, then exit 0.
    Bye,
    /// Checker only: the catalog. Answer: `catalog`.
    Catalog,
    /// Checker only: make a case's tensors in a file. Answer: `posed` or `refused`.
    Pose(Pose),
    /// Checker only: compare a case's tensors with the oracle's. Answer: `judged`.
    Judge(Judge),
    /// Checker only: run the mutation battery of an operator. Answer: `qualified`.
    Qualify {
        /// The case that is mutated.
        case: CaseSpec,
        /// The folder that paths of input files are relative to.
        gates: String,
    },
}

/// What a worker answers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "verb", rename_all = "snake_case")]
pub enum Reply {
    /// The first line, unasked.
    Hello(Hello),
    /// The case is ready.
    Prepared {
        /// The case.
        case: String,
    },
    /// The operator ran.
    Checked {
        /// The case.
        case: String,
    },
    /// The call is in a graph.
    Captured {
        /// The case.
        case: String,
        /// Nodes of the graph, of every kind.
        nodes: u64,
        /// Its kernel nodes, each as `name grid=(x,y,z) block=(x,y,z)`.
        kernels: Vec<String>,
    },
    /// The graph was replayed.
    Replayed {
        /// The case.
        case: String,
    },
    /// The samples of a turn.
    Measured(Measured),
    /// What the device can do at most.
    Ceilings {
        /// By name, with the unit at its end: `read_bytes_per_s`, `empty_node_ns`, `cold_over_hot`.
        measured: BTreeMap<String, f64>,
    },
    /// What really ran.
    Witnessed(Witnessed),
    /// The case is forgotten.
    Released {
        /// The case.
        case: String,
    },
    /// The last line.
    Bye,
    /// A typed refusal of an invalid input.
    Refused {
        /// The case.
        case: String,
        /// The error.
        error: TypedError,
    },
    /// The provider does not do this case.
    Unsupported {
        /// The case.
        case: String,
        /// Why.
        reason: String,
    },
    /// The request failed for a reason that is no refusal: the cell is errored.
    Failed {
        /// What went wrong.
        detail: String,
    },
    /// The catalog.
    Catalog(Box<Catalog>),
    /// The tensors are made.
    Posed(Posed),
    /// The comparison.
    Judged(Judged),
    /// The battery's score.
    Qualified(QualificationScore),
}

/// The first line of a worker.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Hello {
    /// [`PROTOCOL`].
    pub protocol: u32,
    /// The provider's version.
    pub version: String,
    /// The worker's process id.
    pub pid: u32,
    /// The language and its version, e.g. `rust 1.95`, `python 3.11.7`.
    pub language: String,
    /// Packages and versions.
    #[serde(default)]
    pub packages: BTreeMap<String, String>,
    /// Operators and the activation dtypes of each.
    pub operators: BTreeMap<OperatorName, Vec<Dtype>>,
    /// What it can do.
    #[serde(default)]
    pub capabilities: Capabilities,
    /// The device that it opened; none: the host's processor.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device: Option<OpenedDevice>,
}

/// What a worker can do beside running an operator on contiguous tensors.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Capabilities {
    /// It answers `measure`.
    #[serde(default)]
    pub measure: bool,
    /// It answers invalid inputs with typed refusals.
    #[serde(default)]
    pub refusals: bool,
    /// It honors strides and storage offsets.
    #[serde(default)]
    pub strided: bool,
    /// It poses and judges: it is the checker.
    #[serde(default)]
    pub checker: bool,
    /// It honors `refresh` in `measure`; without it the check for remembered results (P34) cannot be made.
    #[serde(default)]
    pub refresh: bool,
    /// It answers `capture` and `replay`.
    #[serde(default)]
    pub graph: bool,
}

/// A tensor in a mapped file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TensorRef {
    /// Its name in the operator's contract.
    pub name: String,
    /// in, out or in_out.
    pub role: Role,
    /// Its element type.
    pub dtype: Dtype,
    /// Extents.
    pub shape: Vec<u64>,
    /// Elements between neighbors along each axis.
    pub strides: Vec<u64>,
    /// The file, an absolute path; empty for a null pointer (refusal cases only).
    pub file: String,
    /// Bytes from the file's start to element 0.
    pub offset: u64,
    /// Bytes from element 0 to the end of the last element.
    pub span: u64,
    /// Guard bytes on each side of the allocation; never to be touched.
    pub guard: u64,
}

/// Make a case ready.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Prepare {
    /// The case's name in this attempt; the worker echoes it.
    pub case: String,
    /// The operator.
    pub operator: OperatorName,
    /// The activation dtype.
    pub dtype: Dtype,
    /// Extents by dimension name.
    pub dims: BTreeMap<String, u64>,
    /// Parameters.
    pub params: BTreeMap<String, ParamValue>,
    /// Tensors, in the contract's order.
    pub tensors: Vec<TensorRef>,
}

/// Warm up, or take one turn.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Measure {
    /// The case.
    pub case: String,
    /// Warm-up or turn.
    pub phase: Phase,
    /// The block that this turn belongs to (0 while warming).
    pub block: u32,
    /// The place within the block, 0 first.
    pub position: u32,
    /// Samples to take (turn), or at most (warm-up).
    pub samples: u32,
    /// Least duration of a sample in nanoseconds; the worker's timer chooses calls per sample once, while warming.
    pub min_sample_ns: f64,
    /// cold or hot.
    pub cache: Cache,
    /// Calls from the host, or captured in a device graph.
    #[serde(default)]
    pub launch: Launch,
    /// For cold: bytes to be touched between two uses of a buffer.
    pub footprint: u64,
    /// Copy the tensors of the last timed call back into the mapped file, for the checker.
    pub publish: bool,
    /// Slow every sample down by this fraction of itself (the planted slowdown of the A/B control); 0 for none.
    #[serde(default)]
    pub slowdown: f64,
    /// Before the samples, outside the timed region, copy the mapped file's tensors into every buffer set again: the
    /// same pointers with the contents that the checker has put there since. Asked only of workers that declare
    /// [`Capabilities::refresh`].
    #[serde(default)]
    pub refresh: bool,
}

/// The phase of a measurement.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// Until nothing is loaded any more and samples stop drifting.
    Warm,
    /// One turn of a block.
    Turn,
}

/// The samples of one request.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Measured {
    /// The case.
    pub case: String,
    /// Warm-up or turn.
    pub phase: Phase,
    /// The block.
    pub block: u32,
    /// The place within the block.
    pub position: u32,
    /// Calls in a sample.
    pub calls: u32,
    /// Buffer sets that the calls rotate through.
    pub sets: u32,
    /// Elapsed nanoseconds of each sample (all its calls).
    pub elapsed_ns: Vec<f64>,
    /// Sum of the samples.
    pub timed: Nanos,
    /// Time spent on restoring and evicting, outside the samples.
    pub untimed: Nanos,
    /// The whole request by the worker's clock.
    pub wall: Nanos,
    /// Modules mapped before and after.
    pub modules: [u64; 2],
    /// Why the turn cannot be trusted, if it cannot.
    #[serde(default)]
    pub invalid: Vec<Finding>,
    /// On a device, launched from the host: nanoseconds that the host needed to enqueue each sample's calls.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub enqueue_ns: Vec<f64>,
    /// What was read off the device around each sample.
    #[serde(default, skip_serializing_if = "Telemetry::is_empty")]
    pub telemetry: Telemetry,
    /// Kernel nodes of the replayed graph, each as `name grid=(x,y,z) block=(x,y,z)`, in order, without repeats.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub kernels: Vec<String>,
    /// How buffers were kept in or out of the caches; none on a worker that does not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reuse: Option<Reuse>,
    /// Regions that were taken again because the host was late after them.
    #[serde(default)]
    pub retaken: u32,
}

/// What really ran.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Witnessed {
    /// Shared objects mapped in the worker.
    #[serde(default)]
    pub libraries: Vec<MappedLibrary>,
    /// Packages and versions that were imported.
    #[serde(default)]
    pub packages: BTreeMap<String, String>,
    /// Kernel names with grid and block, from a device graph.
    #[serde(default)]
    pub kernels: Vec<String>,
    /// The instruction set or path that was chosen, e.g. `avx512`.
    #[serde(default)]
    pub dispatch: String,
}

/// A typed refusal.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TypedError {
    /// The kind, snake_case, from the contract: `zero_dimension`, `length_mismatch`, ...
    pub kind: String,
    /// The operator.
    pub operator: String,
    /// The argument.
    pub argument: String,
    /// What was found.
    pub found: String,
    /// What is accepted.
    pub accepted: String,
}

/// Make a case's tensors.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Pose {
    /// The case's name in this attempt.
    pub case: String,
    /// The case.
    pub spec: CaseSpec,
    /// The folder that paths of input files are relative to.
    pub gates: String,
    /// The file to write; if it exists with the same layout it is rewritten in place (same pointer, new contents).
    pub file: String,
    /// Which poison fills the outputs.
    pub poison: Poison,
    /// Which contents: 0 is the case's own seed; 1, 2, ... derive others.
    pub contents: u32,
    /// Keep only this row of the case (batch invariance), or all.
    pub row: Option<u64>,
}

/// The byte pattern in outputs before a run.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Poison {
    /// 0xa5.
    A,
    /// 0x5a.
    B,
}

/// The tensors of a posed case.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Posed {
    /// The case.
    pub case: String,
    /// The tensors as the candidate gets them (a refusal case has its defect in here).
    pub tensors: Vec<TensorRef>,
    /// The activation dtype as the candidate gets it; none where it is the case's own (a refusal case may change it).
    #[serde(default)]
    pub dtype: Option<Dtype>,
    /// Whether the inputs hold values that checked mode must refuse (a NaN logit): the case is then run unchecked.
    #[serde(default)]
    pub device_faults: bool,
    /// Dims as the candidate gets them.
    pub dims: BTreeMap<String, u64>,
    /// Parameters as the candidate gets them.
    pub params: BTreeMap<String, ParamValue>,
    /// sha256 of each input's logical bytes.
    pub inputs: BTreeMap<String, Digest>,
    /// Bytes that any implementation must read.
    pub bytes_read: u64,
    /// Bytes that any implementation must write.
    pub bytes_written: u64,
    /// The tolerance of each output, in words, as applied to this case.
    pub tolerance: BTreeMap<String, String>,
}

/// Compare a case's tensors with the oracle's.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Judge {
    /// The case, posed before.
    pub case: String,
    /// Rows whose outputs are digested one by one (batch invariance).
    pub rows: Vec<u64>,
}

/// What the checker found.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Judged {
    /// The case.
    pub case: String,
    /// One comparison per output.
    pub outputs: Vec<TensorComparison>,
    /// Guards overwritten, inputs changed, cells unwritten.
    pub findings: Vec<Finding>,
    /// sha256 of each output's logical bytes.
    pub digests: BTreeMap<String, Digest>,
    /// For each row asked for, the sha256 over that row of all outputs.
    pub rows: Vec<Digest>,
}

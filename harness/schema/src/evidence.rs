//! Evidence: immutable records of what was asked, what ran, where, on what, and what came out.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::canonical::Digest;
use crate::device::{DeviceKind, Reuse};
use crate::gate::{CaseSpec, GateHeader, GateKind, Profile};
use crate::ids::{ProviderId, WriterId};
use crate::probe::Probe;
use crate::protocol::{TypedError, Witnessed};
use crate::provider::ProviderFacts;
use crate::real::Real;
use crate::units::{Bytes, Nanos, Wide};

/// How much a record is worth.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Grade {
    /// One replicate, or anything missing.
    Exploratory,
    /// Three replicates.
    Qualified,
    /// Five or more, a clean tree, every required field known.
    Claim,
}

impl Grade {
    /// The word as it is printed and stored.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Grade::Exploratory => "exploratory",
            Grade::Qualified => "qualified",
            Grade::Claim => "claim",
        }
    }
}

/// Any record of an evidence folder.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "record", rename_all = "snake_case")]
pub enum Record {
    /// One cell.
    Cell(Box<CellRecord>),
    /// One session.
    Session(Box<SessionRecord>),
    /// One verdict.
    Verdict(Box<crate::verdict::VerdictBody>),
    /// One self-test.
    Selftest(Box<SelftestRecord>),
    /// One calibration.
    Calibration(Box<CalibrationRecord>),
}

/// One cell: what was asked of a candidate, and what was seen.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CellRecord {
    /// [`crate::SCHEMA`].
    pub schema: String,
    /// The digest of everything that decides whether this record can be used again (see [`ReuseKey`]).
    pub key: Digest,
    /// The gate's declaration.
    pub gate: GateHeader,
    /// Its digest.
    pub gate_digest: Digest,
    /// The cell's readable key.
    pub cell: String,
    /// The case.
    pub case: CaseSpec,
    /// How much was asked to be measured.
    pub profile: Profile,
    /// Who is judged.
    pub candidate: ProviderFacts,
    /// Who it is compared with.
    pub baselines: Vec<ProviderFacts>,
    /// The checker that posed and compared.
    pub checker: ProviderFacts,
    /// sha256 of every input.
    pub inputs: BTreeMap<String, Digest>,
    /// The tolerance of each output, as applied.
    pub tolerance: BTreeMap<String, String>,
    /// Bytes that any implementation must move, if the catalog declares them.
    pub traffic: Option<Traffic>,
    /// The device that the candidate ran on; none: the host's processor.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device: Option<DeviceFacts>,
    /// The session.
    pub session: Digest,
    /// The source tree.
    pub source: SourceFacts,
    /// The processes that took part.
    pub attempts: Vec<Attempt>,
    /// What was seen.
    pub observation: Observation,
    /// What really ran, by provider.
    pub witness: BTreeMap<ProviderId, Witnessed>,
    /// Exploratory, qualified or claim.
    pub grade: Grade,
    /// The command that runs it again.
    pub reproduce: Vec<String>,
}

/// A device as it was found; nothing on it is ever set.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DeviceFacts {
    /// Its kind.
    pub kind: DeviceKind,
    /// Its UUID.
    pub uuid: String,
    /// Its name.
    pub name: Probe<String>,
    /// Compute capability, e.g. `9.0`.
    pub architecture: Probe<String>,
    /// The driver's version.
    pub driver: Probe<String>,
    /// The newest CUDA version that the driver supports.
    pub cuda: Probe<String>,
    /// The VBIOS's version.
    pub vbios: Probe<String>,
    /// Whether memory errors are corrected.
    pub ecc: Probe<bool>,
    /// Whether it is cut into instances.
    pub mig: Probe<bool>,
    /// The power limit in milliwatts.
    pub power_limit_mw: Probe<u32>,
    /// The largest clock of the multiprocessors in MHz.
    pub max_sm_mhz: Probe<u32>,
    /// Memory.
    pub memory: Probe<Bytes>,
    /// The PCI address.
    pub pci: Probe<String>,
    /// What holds the clocks; read, never set.
    pub clock_policy: String,
}

/// Bytes read and written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Traffic {
    /// Bytes read.
    pub read: Bytes,
    /// Bytes written.
    pub written: Bytes,
}

/// What decides whether a record can be used again: by content, never by name.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ReuseKey {
    /// The gate's digest.
    pub gate: Digest,
    /// The case's digest.
    pub case: Digest,
    /// The profile's digest.
    pub profile: Digest,
    /// Source and binary digests of every provider that takes part, the checker's too.
    pub providers: BTreeMap<ProviderId, Vec<Digest>>,
    /// The host's class: salted machine id, CPU model, kernel.
    pub host: Digest,
    /// The device's class: name, architecture, driver; none on the host's processor.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device: Option<Digest>,
}

/// What was seen in a cell.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Observation {
    /// A correctness cell that ran.
    Correctness(CorrectnessObservation),
    /// A baseline cell that ran.
    Baseline(BaselineObservation),
    /// A graph cell that ran.
    Graph(GraphObservation),
    /// A sanitizer cell that ran.
    Sanitizer(SanitizerObservation),
    /// The candidate says that it does not do this.
    Unsupported {
        /// Why.
        reason: String,
    },
    /// It did not run.
    NotRun {
        /// Why.
        reason: String,
    },
    /// A crash, a hang, a limit, a broken protocol.
    Errored {
        /// Which way it went wrong.
        ending: Ending,
        /// Who: the candidate, a baseline or the checker.
        provider: ProviderId,
        /// The sentence.
        detail: String,
    },
}

/// What was seen in a correctness cell.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CorrectnessObservation {
    /// Each run of the candidate, in order.
    pub passes: Vec<Pass>,
    /// The checker's mutation battery on this operator and dtype in this session.
    pub qualification: QualificationScore,
}

/// What was seen in a graph cell.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct GraphObservation {
    /// Whether the call could be captured.
    pub capture: Capture,
    /// Replays with other contents in the same buffers, each beside an eager run on the same contents.
    pub replays: Vec<ReplayPair>,
    /// The checker's mutation battery on this operator and dtype in this session.
    pub qualification: QualificationScore,
}

/// What became of a capture.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Capture {
    /// It is a graph.
    Captured {
        /// Nodes of every kind.
        nodes: u64,
        /// Kernel nodes, each as `name grid=(x,y,z) block=(x,y,z)`.
        kernels: Vec<String>,
    },
    /// The provider or the device says that it cannot be captured.
    Unsupported {
        /// Why.
        reason: String,
    },
    /// It broke: the process died, or what it said was no answer.
    Broken {
        /// How.
        detail: String,
    },
}

/// A replay and the eager run that it must equal bit for bit.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ReplayPair {
    /// The replay.
    pub replay: Pass,
    /// The eager run on the same contents.
    pub eager: Pass,
}

/// What was seen in a sanitizer cell.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SanitizerObservation {
    /// Each tool's run, in order.
    pub tools: Vec<SanitizerRun>,
    /// The checker's mutation battery on this operator and dtype in this session.
    pub qualification: QualificationScore,
}

/// One tool of the sanitizer over one process of the candidate.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SanitizerRun {
    /// memcheck, racecheck, initcheck or synccheck.
    pub tool: String,
    /// The sanitizer's version.
    pub version: Probe<String>,
    /// Errors in its summary; none when it gave no summary.
    pub errors: Option<u64>,
    /// The first lines that report an error.
    pub report: Vec<String>,
    /// The candidate's run under it.
    pub pass: Pass,
}

/// One run of the candidate.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Pass {
    /// What this run is for.
    pub purpose: Purpose,
    /// What the candidate did.
    pub outcome: Outcome,
    /// One comparison per output.
    pub outputs: Vec<TensorComparison>,
    /// Guards overwritten, inputs changed, cells unwritten.
    pub findings: Vec<Finding>,
    /// sha256 of each output.
    pub digests: BTreeMap<String, Digest>,
    /// sha256 of single rows (batch invariance).
    pub rows: Vec<Digest>,
}

/// What a run of the candidate is for.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Purpose {
    /// Poison A, checked mode.
    First,
    /// Poison B, new buffers with the same contents, unchecked mode: must equal the first bit for bit.
    Repeat,
    /// The same buffers with new contents.
    Renewed,
    /// One row alone: must equal that row of the first.
    SingleRow,
    /// An invalid input.
    Refusal,
    /// The outputs of a timed call.
    Timed,
    /// A replayed graph.
    Replay,
    /// An eager run beside a replay.
    Eager,
    /// A run under a sanitizer.
    Sanitized,
}

/// What a candidate did.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// It ran.
    Ran,
    /// It refused with a typed error.
    Refused(TypedError),
    /// It said that it does not do this.
    Unsupported(String),
    /// It failed with an untyped error.
    Failed(String),
}

/// One output against the oracle's.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TensorComparison {
    /// The tensor.
    pub tensor: String,
    /// Elements compared.
    pub elements: u64,
    /// Elements that are finite in the oracle.
    pub finite: u64,
    /// Elements whose class (NaN, +inf, -inf, finite) differs.
    pub class_mismatches: u64,
    /// Finite elements outside the tolerance.
    pub out_of_tolerance: u64,
    /// Largest distance in ulps.
    pub max_ulp: Real,
    /// Largest absolute error.
    pub max_abs: Real,
    /// Largest relative error.
    pub max_rel: Real,
    /// The first bad elements.
    pub bad: Vec<BadElement>,
}

/// A bad element.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct BadElement {
    /// Its index in the logical tensor.
    pub index: Vec<u64>,
    /// The oracle's value.
    pub expected: Real,
    /// The candidate's value.
    pub found: Real,
}

/// A finding: code and sentence.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Finding {
    /// Stable, kebab-case: `guard-overwritten`, `input-changed`, `unwritten`, `module-loaded`, `clock-backwards`.
    pub code: String,
    /// The sentence.
    pub detail: String,
}

/// How a checker did on planted faults.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct QualificationScore {
    /// Mutants that changed the output, and were found.
    pub killed: u32,
    /// Mutants that changed the output.
    pub mutants: u32,
    /// Mutants that did not change the output: they prove nothing.
    pub equivalent: u32,
    /// Honest outputs that were called wrong.
    pub false_alarms: u32,
    /// Mutants that were not found.
    pub survivors: Vec<String>,
}

impl QualificationScore {
    /// Whether the checker is qualified: at least one mutant, all found, no false alarm.
    #[must_use]
    pub fn qualified(&self) -> bool {
        self.mutants > 0 && self.killed == self.mutants && self.false_alarms == 0
    }
}

/// What was seen in a baseline cell.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct BaselineObservation {
    /// One arm per provider and replicate.
    pub arms: Vec<Arm>,
    /// The column blob with every sample, warm-up samples tagged.
    pub samples: BlobRef,
    /// The checker's comparison of the outputs of timed calls, by provider.
    pub timed: BTreeMap<ProviderId, Vec<Pass>>,
    /// Baselines that took no part, and why.
    pub absent: BTreeMap<ProviderId, String>,
    /// The checker's mutation battery on this operator and dtype in this session.
    pub qualification: QualificationScore,
}

/// One provider in one replicate.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Arm {
    /// The provider.
    pub provider: ProviderId,
    /// The replicate, from 0.
    pub replicate: u32,
    /// Calls in a sample.
    pub calls: u32,
    /// Buffer sets.
    pub sets: u32,
    /// The median per block of the time per call, in block order.
    pub block_median_ns: Vec<Real>,
    /// Place of this provider in each block.
    pub positions: Vec<u32>,
    /// Over all measured samples: time per call.
    pub summary: Summary,
    /// The supervisor's wall time of all turns, less what worker or supervisor waited for a core by the kernel's account
    /// (P35: near the worker's, never below).
    pub supervisor_wall_ns: Nanos,
    /// The worker's own account of the same turns: samples, restoring, evicting.
    pub worker_wall_ns: Nanos,
    /// Why the arm cannot be trusted, if it cannot.
    pub invalid: Vec<Finding>,
    /// How buffers were kept in or out of the caches, where the worker says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reuse: Option<Reuse>,
    /// Kernel nodes of the replayed graph.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub kernels: Vec<String>,
    /// The host's time to enqueue a call, where calls are launched from the host onto a device.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub enqueue: Option<Summary>,
    /// The median clock of the multiprocessors over the measured samples, in MHz.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sm_mhz: Option<Real>,
    /// Regions that were taken again because the host was late after them; each time is that of the last try.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub retaken: u32,
}

fn is_zero(count: &u32) -> bool {
    *count == 0
}

/// A summary of times per call.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Summary {
    /// Samples.
    pub count: u64,
    /// The least.
    pub min_ns: Real,
    /// The 10th percentile (type 7).
    pub p10_ns: Real,
    /// The median.
    pub p50_ns: Real,
    /// The 90th percentile.
    pub p90_ns: Real,
    /// The largest.
    pub max_ns: Real,
    /// The mean.
    pub mean_ns: Real,
    /// The standard deviation over the mean.
    pub cv: Real,
}

/// A blob in `evidence/blobs/`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct BlobRef {
    /// sha256 of the file, which is its name.
    pub sha256: Digest,
    /// Its size.
    pub size: Bytes,
    /// Rows in it.
    pub rows: u64,
}

/// How a process ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Ending {
    /// With an exit code.
    Exit(i32),
    /// By a signal that the runner did not send.
    Signal(i32),
    /// At its deadline; the runner ended it.
    Timeout,
    /// Over its memory limit; the runner ended it.
    MemoryLimit,
    /// It broke the protocol; the runner ended it.
    Protocol,
    /// It could not be started.
    NotStarted,
    /// The run was interrupted; the runner ended it.
    Interrupted,
}

/// One process.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Attempt {
    /// Its provider.
    pub provider: ProviderId,
    /// Its replicate (baseline), else 0.
    pub replicate: u32,
    /// Program and arguments, with machine paths made relative.
    pub argv: Vec<String>,
    /// The allow-listed environment by name; values of ours are kept, others only named.
    pub environment: BTreeMap<String, String>,
    /// Start, nanoseconds since 1970.
    pub started: Wide,
    /// End; the attempt may go on after the record is written, then absent.
    pub ended: Option<Wide>,
    /// From spawn to hello.
    pub hello: Option<Nanos>,
    /// How it ended; absent while it goes on.
    pub ending: Option<Ending>,
    /// The last lines of its stderr.
    pub stderr: String,
    /// Peak resident memory.
    pub peak_memory: Probe<Bytes>,
    /// Processes it left behind, which the runner ended.
    pub orphans: u32,
}

/// A shared object that was mapped.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub struct MappedLibrary {
    /// The file's name, without its folder.
    pub name: String,
    /// sha256 of the file, where it could be read.
    pub sha256: Option<Digest>,
}

/// The source tree that was measured.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SourceFacts {
    /// The git revision.
    pub revision: Probe<String>,
    /// The git tree hash.
    pub tree: Probe<String>,
    /// Whether the tree outside `evidence/` and `reports/` differs from the revision.
    pub dirty: Probe<bool>,
    /// sha256 of the difference, when dirty.
    pub diff: Option<Digest>,
}

/// One session: one run of the tool on one device.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SessionRecord {
    /// [`crate::SCHEMA`].
    pub schema: String,
    /// Who writes.
    pub writer: WriterId,
    /// The tool's version.
    pub tool: String,
    /// Start, nanoseconds since 1970.
    pub started: Wide,
    /// The host.
    pub host: HostFacts,
    /// The devices beside the host's processor; empty on a CPU session.
    pub devices: Vec<DeviceFacts>,
    /// The profile.
    pub profile: Profile,
    /// The source tree.
    pub source: SourceFacts,
    /// Controls that were run, absent when no timing gate was selected.
    pub controls: Vec<Control>,
    /// Ceilings, by name, e.g. `copy_bytes_per_s`.
    pub ceilings: BTreeMap<String, Probe<Real>>,
    /// The checkers' scores by `operator dtype`.
    pub qualification: BTreeMap<String, QualificationScore>,
    /// Command and arguments of the run.
    pub command: Vec<String>,
}

/// A control of a session: a comparison whose answer is known.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Control {
    /// `a-a` or `a-b`.
    pub name: String,
    /// The device that it was measured on.
    #[serde(default, skip_serializing_if = "DeviceKind::is_cpu")]
    pub device: DeviceKind,
    /// The planted slowdown, as a fraction; 0 for A/A.
    pub planted: f64,
    /// What was measured.
    pub estimate: Option<crate::verdict::Estimate>,
    /// What was called.
    pub speed: crate::verdict::Speed,
    /// Whether this is the right answer.
    pub right: bool,
}

/// The host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct HostFacts {
    /// The machine id, salted and hashed.
    pub machine: Probe<String>,
    /// Kernel and release.
    pub kernel: Probe<String>,
    /// The distribution.
    pub distribution: Probe<String>,
    /// The CPU's model.
    pub cpu: Probe<String>,
    /// Instruction sets that matter to our kernels.
    pub features: Vec<String>,
    /// Cores that may be used.
    pub cores: Probe<u32>,
    /// Memory.
    pub memory: Probe<Bytes>,
    /// The last-level cache.
    pub last_level_cache: Probe<Bytes>,
    /// NUMA nodes.
    pub numa_nodes: Probe<u32>,
    /// Container or virtual machine, where known.
    pub container: Probe<String>,
    /// The frequency governor, as found.
    pub governor: Probe<String>,
    /// The load average over the last minute at the start.
    pub load: Probe<String>,
}

/// One self-test: planted faults and exploits against every checker.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SelftestRecord {
    /// [`crate::SCHEMA`].
    pub schema: String,
    /// The tool's version.
    pub tool: String,
    /// Start, nanoseconds since 1970.
    pub started: Wide,
    /// The source tree.
    pub source: SourceFacts,
    /// The host.
    pub host: HostFacts,
    /// The device beside the host's processor on which the faults were planted; none: the processor.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device: Option<DeviceFacts>,
    /// One line per exploit.
    pub exploits: Vec<ExploitResult>,
    /// The checkers' mutation batteries by `operator dtype`.
    pub batteries: BTreeMap<String, QualificationScore>,
}

/// One exploit and what became of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ExploitResult {
    /// Its name: the defect.
    pub name: String,
    /// The pitfall it stands for, e.g. `P34`.
    pub pitfall: String,
    /// The verdict that it must get.
    pub expected: Vec<crate::verdict::Verdict>,
    /// Codes of reasons, at least one of which it must get; empty: any does.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub expected_codes: Vec<String>,
    /// The kind of gate that must see it; absent in records that are older than this field.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<GateKind>,
    /// The verdict that it got.
    pub found: crate::verdict::Verdict,
    /// The reasons' codes.
    pub codes: Vec<String>,
    /// Whether it is an honest control, which must pass.
    pub control: bool,
    /// Whether it got what it must get.
    pub right: bool,
}

/// One calibration: many comparisons whose answers are known, and how often the right thing was called.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CalibrationRecord {
    /// [`crate::SCHEMA`].
    pub schema: String,
    /// The tool's version.
    pub tool: String,
    /// Name and version of the judge.
    pub judge: String,
    /// Start, nanoseconds since 1970.
    pub started: Wide,
    /// The source tree.
    pub source: SourceFacts,
    /// The session that measured: host, controls, profile.
    pub session: Box<SessionRecord>,
    /// The provider that was compared with its twins.
    pub provider: ProviderFacts,
    /// One line per comparison.
    pub comparisons: Vec<CalibrationLine>,
    /// One rate per planted slowdown.
    pub rates: Vec<CalibrationRate>,
}

/// One comparison of a provider with a twin.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CalibrationLine {
    /// The gate whose cell was used.
    pub gate: String,
    /// The cell.
    pub cell: String,
    /// How much slower the twin is made, as a fraction.
    pub planted: f64,
    /// What was called of the provider.
    pub speed: crate::verdict::Speed,
    /// The ratio; absent when the comparison was invalid.
    pub ratio: Option<Real>,
    /// The 95 % interval's lower end.
    pub low: Option<Real>,
    /// The 95 % interval's upper end.
    pub high: Option<Real>,
    /// Why nothing was called, as codes.
    pub codes: Vec<String>,
    /// The provider's median time of one call in nanoseconds; absent when nothing was measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time_ns: Option<Real>,
    /// One ratio per replicate: what differs between them differs between processes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub replicates: Vec<Real>,
}

/// How often something was called where a slowdown was planted.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CalibrationRate {
    /// How much slower the twin is made, as a fraction; 0: not at all.
    pub planted: f64,
    /// Of comparisons whose call takes at least so many nanoseconds; absent: of all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from_ns: Option<f64>,
    /// ... and less than so many.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub below_ns: Option<f64>,
    /// Comparisons.
    pub comparisons: u32,
    /// Called win.
    pub wins: u32,
    /// Called loss.
    pub losses: u32,
    /// Called parity.
    pub parities: u32,
    /// Nothing was called.
    pub undecided: u32,
    /// Of the right kind (planted 0: win or loss, which is false; else: win).
    pub rate: f64,
    /// The exact binomial 95 % interval of the rate, lower end.
    pub low: f64,
    /// The exact binomial 95 % interval of the rate, upper end.
    pub high: f64,
    /// The median half-width of the ratios' 95 % intervals.
    pub median_half_width: Option<Real>,
}

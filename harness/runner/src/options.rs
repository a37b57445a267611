//! What a run is asked to do.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use proofhouse_schema::device::DeviceKind;
use proofhouse_schema::evidence::{HostFacts, SourceFacts};
use proofhouse_schema::gate::{Profile, ResolvedGate};
use proofhouse_schema::ids::{ProviderId, WriterId};
use proofhouse_schema::units::Bytes;

use crate::attempt::ReaperProgram;
use crate::device::Devices;
use crate::provider::ProviderHome;
use crate::selection::Selection;

/// What a run is asked to do. Nothing here is read from the environment; the caller does that.
#[derive(Debug, Clone)]
pub struct RunOptions {
    /// The gates, resolved.
    pub gates: Vec<ResolvedGate>,
    /// The folder that paths of input files are relative to; absolute.
    pub gates_folder: PathBuf,
    /// How much is measured.
    pub profile: Profile,
    /// Every provider that gates may name, the checker too.
    pub providers: Vec<ProviderHome>,
    /// Who poses and judges.
    pub checker: ProviderId,
    /// The folder that `{bin}` stands for.
    pub binaries: PathBuf,
    /// Where environments are kept, e.g. `~/.cache/proofhouse`.
    pub cache: PathBuf,
    /// Where the locks lie by which runs on one device exclude each other; one folder per machine.
    pub custody: PathBuf,
    /// Where tensors lie; a memory file system, `/dev/shm`.
    pub shared_memory: PathBuf,
    /// Which cells.
    pub selection: Selection,
    /// Whether evidence that is there is used again.
    pub reuse: Reuse,
    /// Correctness executors at a time; timing always runs alone.
    pub jobs: usize,
    /// Orders, rows and published blocks are drawn from it.
    pub seed: u64,
    /// Limits of attempts.
    pub limits: Limits,
    /// What is known of this session before it starts.
    pub facts: SessionFacts,
    /// The native timer that workers in other languages load, if there is one.
    pub timer_library: Option<PathBuf>,
    /// As `timer_library`, for workers on a CUDA device.
    pub timer_cuda_library: Option<PathBuf>,
    /// Devices beside the host's processor.
    pub devices: Devices,
    /// The folder with packages that were carried to this machine: `{set}` in provider.toml.
    pub package_set: Option<PathBuf>,
    /// Where compilers on a device keep what they made (NVRTC, Triton, Inductor); private to this tool.
    pub kernel_cache: PathBuf,
    /// The caller's variables from which attempts get the allow-listed ones (`PATH`, `HOME`, `TMPDIR`, ...).
    pub environment: BTreeMap<String, String>,
    /// Whether package registries must not be asked.
    pub offline: bool,
    /// Begin nothing that would pass this time, and stop hard when it is over; what finished is kept, of timed cells every
    /// replicate.
    pub time_budget: Option<Duration>,
    /// Where to write a trace of every request; it is for finding where the time goes.
    pub trace: Option<PathBuf>,
    /// The program that ends what workers started when the run is killed; none: it may live on.
    pub reaper: Option<ReaperProgram>,
    /// Whether SIGINT, SIGTERM and SIGHUP stop the run cleanly (a library user may have handlers of its own).
    pub handle_signals: bool,
}

/// Whether evidence that is there is used again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reuse {
    /// A decided record of the same content digests is used again.
    ByContent,
    /// Everything is measured again.
    Fresh,
}

/// What is known of a session before it starts; the caller probes it.
#[derive(Debug, Clone)]
pub struct SessionFacts {
    /// Who writes.
    pub writer: WriterId,
    /// The tool's version.
    pub tool: String,
    /// The host.
    pub host: HostFacts,
    /// The source tree.
    pub source: SourceFacts,
    /// Command and arguments of the run.
    pub command: Vec<String>,
}

/// Limits of attempts.
#[derive(Debug, Clone, PartialEq)]
pub struct Limits {
    /// From spawn to hello.
    pub hello: Duration,
    /// From spawn to hello on a device: a Python process with its libraries takes many seconds.
    pub device_hello: Duration,
    /// For any request but `measure`.
    pub request: Duration,
    /// For one `measure` request.
    pub measure: Duration,
    /// From SIGTERM to SIGKILL, and from `bye` to the process's end.
    pub grace: Duration,
    /// Resident memory of an attempt's processes together.
    pub memory: Bytes,
    /// As `memory`, on a device: its driver and libraries alone take gigabytes.
    pub device_memory: Bytes,
    /// How often memory is looked at.
    pub memory_poll: Duration,
    /// Processes lost by one provider in one gate before its other cells are given up.
    pub losses: u32,
    /// How long a run waits for another one that holds the device.
    pub custody_wait: Duration,
    /// Threads that a provider gets in correctness cells.
    pub correctness_threads: u32,
    /// Processes of one provider that tune side by side, before anything is timed.
    pub tuners: usize,
    /// For making an environment.
    pub environment: Duration,
}

impl Limits {
    /// The limits of an attempt on a device.
    #[must_use]
    pub fn on(&self, device: DeviceKind) -> Self {
        match device {
            DeviceKind::Cpu => self.clone(),
            DeviceKind::Cuda => {
                // Python with a device and its compilers takes seconds to end, too.
                let grace = self.grace.max(Duration::from_secs(20).min(self.device_hello));
                let (hello, memory) = (self.device_hello, self.device_memory);
                Self { hello, memory, grace, ..self.clone() }
            }
        }
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            hello: Duration::from_secs(60),
            device_hello: Duration::from_secs(180),
            request: Duration::from_secs(120),
            measure: Duration::from_secs(120),
            grace: Duration::from_secs(2),
            memory: Bytes(8 << 30),
            device_memory: Bytes(48 << 30),
            memory_poll: Duration::from_millis(20),
            losses: 5,
            custody_wait: Duration::from_secs(60),
            correctness_threads: 2,
            // Half of the cores, and not so many that their shares of a device's memory count.
            tuners: (std::thread::available_parallelism().map_or(1, |cores| cores.get()) / 2)
                .min(8),
            environment: Duration::from_secs(600),
        }
    }
}

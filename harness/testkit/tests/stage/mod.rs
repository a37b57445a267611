//! A stage for runs: the real checker, fake workers, a gate made in code, an evidence folder of its own.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use proofhouse_evidence::Folder;
use proofhouse_runner::device::{Devices, Occupancy, Process};
use proofhouse_runner::ports::{Evidence, FolderEvidence, GateJudge};
use proofhouse_runner::{
    Exploit, Fixture, Limits, Outcome, ProviderHome, Reuse, RunError, RunOptions, Selection,
    SessionFacts, Stop, run,
};
use proofhouse_schema::canonical;
use proofhouse_schema::catalog::Catalog;
use proofhouse_schema::device::DeviceKind;
use proofhouse_schema::dtype::Dtype;
use proofhouse_schema::event::Event;
use proofhouse_schema::evidence::{CellRecord, DeviceFacts, HostFacts, Record, SourceFacts};
use proofhouse_schema::gate::{
    CaseSpec, Cell, Expect, GateHeader, GateKind, Inputs, Level, Profile, ResolvedGate, TimingRule,
};
use proofhouse_schema::probe::Probe;
use proofhouse_schema::provider::{Environment, Provider};
use proofhouse_schema::timing::{Cache, Clock, ClockPolicy, Launch, Statistic, TimingContract};
use proofhouse_schema::units::{Bytes, Wide};
use proofhouse_schema::verdict::{Require, VerdictBody};
use proofhouse_testkit::Defect;

/// Where this build puts programs: the folder of the running test, or its parent.
fn build_folder() -> PathBuf {
    let me = std::env::current_exe().unwrap();
    let folder = me.parent().unwrap();
    let nested = folder.ends_with("deps") || folder.ends_with("examples");
    if nested { folder.parent().unwrap().to_owned() } else { folder.to_owned() }
}

/// A program of this workspace; one that the test command at hand does not build is built first.
pub fn program(package: &str) -> PathBuf {
    built(build_folder().join(package), &["--package", package])
}

/// The program that makes one run in a process of its own.
pub fn one_run() -> PathBuf {
    let path = build_folder().join("examples/one_run");
    built(path, &["--package", "proofhouse-testkit", "--example", "one_run"])
}

fn built(path: PathBuf, what: &[&str]) -> PathBuf {
    static BUILDING: Mutex<()> = Mutex::new(());
    let _one_at_a_time = BUILDING.lock().unwrap();
    if !path.is_file() {
        let mut build = std::process::Command::new(env!("CARGO"));
        build.args(["build", "--quiet"]).args(what);
        if !cfg!(debug_assertions) {
            build.arg("--release");
        }
        assert!(build.status().unwrap().success(), "{what:?} could not be built");
    }
    assert!(path.is_file(), "{} is not there", path.display());
    path
}

pub fn fake_worker() -> PathBuf {
    program("proofhouse-fake-worker")
}

/// Folders and options of a run.
pub struct Stage {
    pub folder: tempfile::TempDir,
    pub options: RunOptions,
}

impl Stage {
    /// A stage whose candidate `fake` has a defect, with a gate of two cells.
    pub fn new(defect: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let options = options(folder.path(), defect);
        Stage { folder, options }
    }

    pub fn evidence(&self) -> PathBuf {
        self.folder.path().join("evidence")
    }

    /// Runs with an evidence folder, and gives the outcome and the events.
    pub fn run(&self) -> (Outcome, Vec<Event>) {
        let mut evidence = open(&self.evidence());
        let (outcome, events) = self.run_with(&mut evidence, &Stop::new());
        (outcome.unwrap(), events)
    }

    pub fn run_with(
        &self,
        evidence: &mut dyn Evidence,
        stop: &Stop,
    ) -> (Result<Outcome, RunError>, Vec<Event>) {
        let (sender, receiver): (_, Receiver<Event>) = channel();
        let outcome = run(self.options.clone(), evidence, &GateJudge, stop, &sender);
        drop(sender);
        (outcome, receiver.into_iter().collect())
    }

    /// Every cell record with its verdict.
    pub fn records(&self) -> Vec<(CellRecord, VerdictBody)> {
        let stored = Folder::new(self.evidence()).read_all().unwrap();
        let verdicts: BTreeMap<_, _> = stored
            .iter()
            .filter_map(|s| match &s.record {
                Record::Verdict(v) => Some((v.evidence.clone(), (**v).clone())),
                _ => None,
            })
            .collect();
        let mut cells: Vec<_> = stored
            .into_iter()
            .filter_map(|s| match s.record {
                Record::Cell(cell) => Some((*cell, verdicts.get(&s.digest)?.clone())),
                _ => None,
            })
            .collect();
        cells.sort_by(|a, b| a.0.cell.cmp(&b.0.cell));
        cells
    }
}

pub fn open(folder: &Path) -> FolderEvidence {
    FolderEvidence::open(Folder::new(folder), &"tester".parse().unwrap()).unwrap()
}

pub fn options(folder: &Path, defect: &str) -> RunOptions {
    let unknown = || "not probed in tests".to_owned();
    RunOptions {
        gates: vec![gate(2)],
        gates_folder: folder.join("gates"),
        profile: Profile {
            id: "quick".parse().unwrap(),
            replicates: 1,
            blocks: 4,
            samples: 3,
            min_sample_us: 200.0,
        },
        providers: vec![oracle(folder), fake(folder, defect)],
        checker: "oracle".parse().unwrap(),
        binaries: build_folder(),
        cache: folder.join("cache"),
        custody: folder.join("custody"),
        shared_memory: PathBuf::from("/dev/shm"),
        selection: Selection::default(),
        reuse: Reuse::ByContent,
        jobs: 1,
        seed: 1,
        limits: Limits {
            hello: Duration::from_secs(5),
            device_hello: Duration::from_secs(5),
            request: Duration::from_secs(3),
            measure: Duration::from_secs(5),
            grace: Duration::from_millis(400),
            memory: Bytes(400 << 20),
            device_memory: Bytes(400 << 20),
            memory_poll: Duration::from_millis(5),
            losses: 5,
            custody_wait: Duration::from_millis(200),
            correctness_threads: 1,
            tuners: 2,
            environment: Duration::from_secs(60),
        },
        facts: SessionFacts {
            writer: "tester".parse().unwrap(),
            tool: "test".to_owned(),
            host: host(unknown),
            source: SourceFacts {
                revision: Probe::Unavailable(unknown()),
                tree: Probe::Unavailable(unknown()),
                dirty: Probe::Unavailable(unknown()),
                diff: None,
            },
            command: vec!["proofhouse".to_owned(), "run".to_owned()],
        },
        timer_library: None,
        timer_cuda_library: None,
        devices: Devices { left_out: vec![DeviceKind::Cuda], ..Devices::default() },
        package_set: None,
        kernel_cache: folder.join("kernels"),
        environment: std::env::vars().filter(|(name, _)| name == "PATH").collect(),
        offline: true,
        time_budget: None,
        trace: None,
        reaper: None,
        handle_signals: false,
    }
}

fn host(unknown: impl Fn() -> String) -> HostFacts {
    HostFacts {
        machine: Probe::Unavailable(unknown()),
        kernel: Probe::Unavailable(unknown()),
        distribution: Probe::Unavailable(unknown()),
        cpu: Probe::Unavailable(unknown()),
        features: vec![],
        cores: Probe::Unavailable(unknown()),
        memory: Probe::Unavailable(unknown()),
        last_level_cache: Probe::Unavailable(unknown()),
        numa_nodes: Probe::Unavailable(unknown()),
        container: Probe::Unavailable(unknown()),
        governor: Probe::Unavailable(unknown()),
        load: Probe::Unavailable(unknown()),
    }
}

fn home(folder: &Path, id: &str, command: Vec<String>) -> ProviderHome {
    let home = folder.join("providers").join(id);
    std::fs::create_dir_all(&home).unwrap();
    std::fs::write(home.join("provider.toml"), command.join(" ")).unwrap();
    let provider = Provider {
        id: id.parse().unwrap(),
        about: "a provider of the tests".to_owned(),
        command,
        environment: Environment::Binary,
        lock: None,
        packages: BTreeMap::new(),
        devices: vec![DeviceKind::Cpu],
        operators: BTreeMap::from([("rms_norm".parse().unwrap(), vec![Dtype::F32])]),
        refusals: true,
        strided: false,
        includes: vec![],
        expect_libraries: vec![],
        expect_kernels: vec![],
        tunes: false,
        thread_variables: vec![],
        variables: BTreeMap::from([
            ("PROOFHOUSE_FAKE_ID".to_owned(), id.to_owned()),
            ("PROOFHOUSE_FAKE_STAGE".to_owned(), folder.display().to_string()),
        ]),
    };
    ProviderHome { provider, folder: home }
}

fn oracle(folder: &Path) -> ProviderHome {
    let program = program("proofhouse-worker-oracle");
    home(folder, "oracle", vec![program.to_string_lossy().into_owned()])
}

pub fn fake(folder: &Path, defect: &str) -> ProviderHome {
    let program = fake_worker().to_string_lossy().into_owned();
    home(folder, "fake", vec![program, "--defect".to_owned(), defect.to_owned()])
}

/// A correctness gate over rms_norm with some cells.
pub fn gate(cells: u64) -> ResolvedGate {
    let header = GateHeader {
        id: "rms_norm.correctness".parse().unwrap(),
        kind: GateKind::Correctness,
        level: Level::Required,
        about: "the fake agrees with the oracle".to_owned(),
        device: DeviceKind::Cpu,
        operator: "rms_norm".parse().unwrap(),
        candidates: vec!["fake".parse().unwrap()],
        baselines: vec![],
        timing: None,
    };
    let cells = (0..cells).map(|i| cell(2 + i, 16)).collect();
    ResolvedGate { header, cells, exclusions: vec![] }
}

pub fn cell(rows: u64, hidden: u64) -> Cell {
    Cell {
        key: format!("rows={rows:04} hidden={hidden} F32 contiguous normal"),
        case: CaseSpec {
            operator: "rms_norm".parse().unwrap(),
            dims: BTreeMap::from([("rows".to_owned(), rows), ("hidden".to_owned(), hidden)]),
            dtype: Dtype::F32,
            layout: "contiguous".to_owned(),
            params: BTreeMap::from([(
                "eps".to_owned(),
                proofhouse_schema::catalog::ParamValue::Float(1e-6),
            )]),
            inputs: Inputs::Seeded { values: "normal".to_owned(), seed: Wide(1) },
            expect: Expect::Outputs,
        },
    }
}

impl Stage {
    /// A stage with a baseline gate of two cells: `fake`, which has a defect, against the honest `other`, in three replicates.
    pub fn timed(defect: &str) -> Self {
        let mut stage = Self::new(defect);
        let command = vec![fake_worker().to_string_lossy().into_owned()];
        stage.options.providers.push(home(stage.folder.path(), "other", command));
        stage.options.profile.replicates = 3;
        let timing = TimingRule {
            contract: TimingContract {
                cache: Cache::Hot,
                launch: Launch::Eager,
                clock: Clock::Host,
                includes: vec![],
                threads: 1,
                statistic: Statistic::MedianPerCall,
                clock_policy: ClockPolicy::AsFound,
            },
            margin: 0.03,
            require: Require::Measured,
        };
        let gate = &mut stage.options.gates[0];
        gate.header.id = "rms_norm.baseline".parse().unwrap();
        gate.header.kind = GateKind::Baseline;
        gate.header.baselines = vec!["other".parse().unwrap()];
        gate.header.timing = Some(timing);
        stage
    }
}

impl Stage {
    /// A stage on a fake device: `fake` against `other`, which tunes, in so many cells and one replicate.
    pub fn on_a_device(cells: u64) -> (Self, PathBuf) {
        let mut stage = Self::timed("none");
        let folder = stage.folder.path().to_owned();
        let trace = folder.join("trace.json");
        let options = &mut stage.options;
        options.devices = device(&folder.join("beside"));
        options.devices.uncontrolled = vec![DeviceKind::Cuda];
        options.binaries = own_binaries(&folder, &fake_worker());
        options.trace = Some(trace.clone());
        options.profile.replicates = 1;
        options.reuse = Reuse::Fresh;
        let gate = &mut options.gates[0];
        gate.header.device = DeviceKind::Cuda;
        gate.cells = (0..cells).map(|rows| cell(2 + rows, 16)).collect();
        let contract = &mut gate.header.timing.as_mut().unwrap().contract;
        (contract.launch, contract.clock) = (Launch::Graph, Clock::Device);
        for home in &mut options.providers {
            if home.provider.id.as_str() != "oracle" {
                home.provider.devices = vec![DeviceKind::Cuda];
                home.provider.tunes = home.provider.id.as_str() == "other";
            }
        }
        (stage, trace)
    }
}

/// What a worker leaves behind before it serves: a process in a session of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Leaves {
    Child,
    /// One that has dropped the worker's environment, too.
    ScrubbedChild,
}

impl Leaves {
    pub fn name(self) -> &'static str {
        match self {
            Leaves::Child => "child",
            Leaves::ScrubbedChild => "scrubbed-child",
        }
    }
}

/// Lets the candidate's worker leave something behind; the folder is among the arguments of what it leaves.
pub fn leave(options: &mut RunOptions, folder: &Path, leaves: &str) {
    let scrubbed = if leaves == Leaves::ScrubbedChild.name() { "env -i " } else { "" };
    let command = &mut options.providers[1].provider.command;
    let script = format!(
        "{scrubbed}\"$0\" --linger {} </dev/null >/dev/null 2>&1 & exec \"$0\" \"$@\"",
        folder.display()
    );
    command.splice(0..0, ["/bin/sh".to_owned(), "-c".to_owned(), script]);
}

/// A defect as the self-test plays it.
pub(crate) fn exploit(defect: &Defect) -> Exploit {
    Exploit {
        name: defect.name.to_owned(),
        pitfall: defect.pitfall.to_owned(),
        expected: defect.expected.to_vec(),
        codes: defect.codes.iter().map(|code| (*code).to_owned()).collect(),
        kind: defect.kind,
        control: defect.control,
        cache: defect.cache,
        launch: defect.launch,
        followed: defect.followed,
        neighbor: defect.neighbor,
    }
}

/// The fake worker as the one that plays defects.
pub(crate) fn fixture(device: DeviceKind) -> Fixture {
    Fixture {
        device,
        command: vec![fake_worker().to_string_lossy().into_owned()],
        folder: None,
        environment: Environment::Binary,
        packages: BTreeMap::new(),
        variables: BTreeMap::new(),
        includes: Vec::new(),
        dtypes: vec![Dtype::F32],
        refusals: true,
        neighbor: Vec::new(),
    }
}

/// The catalog as the checker exports it.
pub(crate) fn catalog() -> Catalog {
    let oracle = program("proofhouse-worker-oracle");
    let output = std::process::Command::new(oracle).arg("--catalog").output().unwrap();
    canonical::parse(&output.stdout).unwrap()
}

const UUID: &str = "GPU-fake";

/// A device on which this process computes, and whoever a file names.
#[derive(Debug)]
struct Listed(PathBuf);

impl Occupancy for Listed {
    fn processes(&self, uuid: &str) -> Result<Vec<Process>, String> {
        assert_eq!(uuid, UUID);
        let beside = std::fs::read_to_string(&self.0).ok().and_then(|text| text.parse().ok());
        let named = |pid| Process { pid, name: "a process".to_owned() };
        Ok(std::iter::once(std::process::id()).chain(beside).map(named).collect())
    }

    fn elsewhere(&self, uuid: &str) -> Result<Vec<(String, Process)>, String> {
        assert_eq!(uuid, UUID);
        let astray = std::fs::read_to_string(self.0.with_extension("astray")).ok();
        let astray = astray.and_then(|text| text.parse().ok());
        let named = |pid| ("GPU-other".to_owned(), Process { pid, name: "a process".to_owned() });
        Ok(astray.into_iter().map(named).collect())
    }
}

/// What is known of the device that is a fake.
fn facts() -> DeviceFacts {
    fn unknown<T>() -> Probe<T> {
        Probe::Unavailable("a test".to_owned())
    }
    DeviceFacts {
        kind: DeviceKind::Cuda,
        uuid: UUID.to_owned(),
        name: unknown(),
        architecture: unknown(),
        driver: unknown(),
        cuda: unknown(),
        vbios: unknown(),
        ecc: unknown(),
        mig: unknown(),
        power_limit_mw: unknown(),
        max_sm_mhz: unknown(),
        memory: unknown(),
        pci: unknown(),
        clock_policy: "as found".to_owned(),
    }
}

/// A folder of binaries in which our own worker on a device is this program.
pub fn own_binaries(folder: &Path, own: &Path) -> PathBuf {
    let binaries = folder.join("bin");
    std::fs::create_dir_all(&binaries).unwrap();
    std::os::unix::fs::symlink(own, binaries.join("proofhouse-worker-cuda")).unwrap();
    binaries
}

/// A device that is a fake; beside this process computes there whoever the file names.
pub fn device(beside: &Path) -> Devices {
    Devices {
        found: BTreeMap::from([(DeviceKind::Cuda, facts())]),
        occupancy: Some(Arc::new(Listed(beside.to_owned()))),
        ..Devices::default()
    }
}

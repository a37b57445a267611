//! One exploit: a gate, a candidate that plays it, honest providers beside it, and what came of it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::mpsc::Receiver;
use std::time::Duration;

use proofhouse_schema::device::DeviceKind;
use proofhouse_schema::dtype::Dtype;
use proofhouse_schema::event::Event;
use proofhouse_schema::evidence::{ExploitResult, QualificationScore};
use proofhouse_schema::gate::{
    CaseSpec, Cell, Expect, GateHeader, GateKind, Inputs, Level, Profile, ResolvedGate, TimingRule,
};
use proofhouse_schema::ids::{GateId, IdError, OperatorName, ProviderId};
use proofhouse_schema::provider::Provider;
use proofhouse_schema::timing::{Clock, ClockPolicy, Statistic, TimingContract};
use proofhouse_schema::units::{Bytes, Wide};
use proofhouse_schema::verdict::{Reason, Require, Verdict, VerdictBody};

use super::neighbor::Neighbor;
use super::{Exploit, SelftestOptions};
use crate::dispatch::run;
use crate::error::RunError;
use crate::interrupt::Stop;
use crate::memory::Memory;
use crate::options::{Limits, RunOptions};
use crate::ports::Judge;
use crate::provider::ProviderHome;
use crate::selection::Selection;

/// Who plays the exploit, and who is honest beside it.
const PLAYER: &str = "fake";
const HONEST: &str = "honest";
/// The defect that breaks a promise of `provider.toml`.
const FALLBACK: &str = "silent-fallback";
/// The code that a result gets where the honest provider that came next did not pass.
const NEXT: &str = "next-did-not-pass";

/// One exploit and where it is played.
pub(super) struct Stage<'a> {
    pub(super) options: &'a SelftestOptions,
    pub(super) exploit: &'a Exploit,
    pub(super) folder: PathBuf,
}

/// Scores of checkers, by `operator dtype`.
pub(super) type Batteries = BTreeMap<String, QualificationScore>;

/// What came of an exploit.
pub(super) struct Played {
    pub(super) result: ExploitResult,
    pub(super) batteries: Batteries,
    /// Where the result is wrong: what the run warned of, and every reason of its verdicts.
    pub(super) told: Vec<String>,
}

fn told(events: &Receiver<Event>, verdicts: &[VerdictBody]) -> Vec<String> {
    let warnings = events.try_iter().filter_map(|event| match event {
        Event::Warning { message } => Some(message),
        _ => None,
    });
    let reasons = verdicts.iter().flat_map(|body| {
        let who = format!("{} {}: {}", body.provider, body.cell, body.verdict);
        let reason = |reason: &Reason| format!("{who}: {}: {}", reason.code, reason.detail);
        let reasons: Vec<String> = body.reasons.iter().map(reason).collect();
        if reasons.is_empty() { vec![who] } else { reasons }
    });
    warnings.chain(reasons).collect()
}

impl Stage<'_> {
    pub(super) fn play(&self, judge: &dyn Judge, stop: &Stop) -> Result<Played, RunError> {
        let bad = |error: IdError| RunError::Setup {
            what: "name the self-test's gate".to_owned(),
            source: std::io::Error::other(error),
        };
        let mut shelf = Memory::default();
        let (sender, receiver) = std::sync::mpsc::channel();
        let run_options = self.run_options().map_err(bad)?;
        let neighbor = self.neighbor(&run_options)?;
        let outcome = run(run_options, &mut shelf, judge, stop, &sender)?;
        drop((sender, neighbor));
        if let Some(problem) = outcome.problem {
            return Err(problem);
        }
        let result = self.result(&outcome.verdicts);
        let told = if result.right { Vec::new() } else { told(&receiver, &outcome.verdicts) };
        Ok(Played { result, batteries: shelf.batteries, told })
    }

    fn neighbor(&self, run: &RunOptions) -> Result<Option<Neighbor>, RunError> {
        if !self.exploit.neighbor {
            return Ok(None);
        }
        let started = Neighbor::start(&self.options.fixture.neighbor, run);
        started.map(Some).map_err(|source| RunError::Setup {
            what: "start a process beside the run".to_owned(),
            source,
        })
    }

    fn result(&self, verdicts: &[VerdictBody]) -> ExploitResult {
        let exploit = self.exploit;
        let (own, next): (Vec<&VerdictBody>, Vec<&VerdictBody>) =
            verdicts.iter().partition(|body| body.provider.as_str() == PLAYER);
        let worst = own.iter().min_by_key(|body| body.verdict.exit());
        let found = worst.map_or(Verdict::NotRun, |body| body.verdict);
        let mut codes: BTreeSet<String> = own
            .iter()
            .filter(|body| body.verdict == found)
            .flat_map(|body| body.reasons.iter().map(|reason| reason.code.clone()))
            .collect();
        let reason = exploit.codes.is_empty() || exploit.codes.iter().any(|c| codes.contains(c));
        let passed = !next.is_empty() && next.iter().all(|body| body.verdict == Verdict::Pass);
        let suffered = exploit.followed && !passed;
        if suffered {
            codes.insert(NEXT.to_owned());
        }
        ExploitResult {
            name: exploit.name.clone(),
            pitfall: exploit.pitfall.clone(),
            expected: exploit.expected.clone(),
            expected_codes: exploit.codes.clone(),
            kind: Some(exploit.kind),
            found,
            codes: codes.into_iter().collect(),
            control: exploit.control,
            right: exploit.expected.contains(&found) && reason && !suffered,
        }
    }

    fn device(&self) -> DeviceKind {
        self.options.fixture.device
    }

    fn run_options(&self) -> Result<RunOptions, IdError> {
        let base = &self.options.run;
        // The checker, and on a device the worker of ours that knows its ceilings.
        let own = |home: &&ProviderHome| {
            home.provider.id == base.checker || (!self.device().is_cpu() && home.is_own_worker())
        };
        let mut providers: Vec<ProviderHome> = base.providers.iter().filter(own).cloned().collect();
        providers.push(self.fixture(PLAYER, &self.exploit.name)?);
        providers.push(self.fixture(HONEST, "none")?);
        let mut devices = base.devices.clone();
        devices.left_out = DeviceKind::ALL.into_iter().filter(|k| *k != self.device()).collect();
        if !self.device().is_cpu() {
            devices.uncontrolled.push(self.device());
        }
        Ok(RunOptions {
            gates: vec![self.gate()?],
            profile: self.profile()?,
            providers,
            devices,
            selection: Selection::default(),
            jobs: 1,
            limits: self.limits(),
            time_budget: None,
            ..base.clone()
        })
    }

    /// On a device one replicate of few blocks: a process takes many seconds there, and what must be seen is seen in one.
    fn profile(&self) -> Result<Profile, IdError> {
        let timed = self.exploit.kind == GateKind::Baseline;
        let (replicates, blocks) = match (self.device(), timed) {
            (DeviceKind::Cpu, true) => (3, 8),
            (DeviceKind::Cpu, false) => (1, 8),
            (DeviceKind::Cuda, _) => (1, 4),
        };
        let id = "selftest".parse()?;
        Ok(Profile { id, replicates, blocks, samples: 5, min_sample_us: 2000.0 })
    }

    fn limits(&self) -> Limits {
        let base = &self.options.run.limits;
        let common = Limits { correctness_threads: 1, ..base.clone() };
        match self.device() {
            DeviceKind::Cpu => Limits {
                hello: Duration::from_secs(3).min(base.hello),
                request: Duration::from_secs(2).min(base.request),
                measure: Duration::from_secs(4).min(base.measure),
                grace: Duration::from_millis(300),
                memory: Bytes(512 << 20),
                losses: 2,
                ..common
            },
            // A kernel that hangs is waited for as long as a request may take; nothing here takes a tenth of it.
            DeviceKind::Cuda => Limits {
                request: Duration::from_secs(20).min(base.request),
                measure: Duration::from_secs(60).min(base.measure),
                losses: 1,
                ..common
            },
        }
    }

    fn fixture(&self, id: &str, defect: &str) -> Result<ProviderHome, IdError> {
        let fixture = &self.options.fixture;
        let id: ProviderId = id.parse()?;
        let state = self.folder.join(format!("{id}-{defect}"));
        // The folder's one file is what tells fakes apart by digest; a failure to write shows when it is digested.
        let _ = std::fs::create_dir_all(&state);
        let _ = std::fs::write(state.join("defect"), defect);
        let missing = |name: &str| match defect == FALLBACK {
            true => vec![name.to_owned()],
            false => vec![],
        };
        let (libraries, kernels) = match fixture.device {
            DeviceKind::Cpu => (missing("lib-that-is-not-there"), vec![]),
            DeviceKind::Cuda => (vec![], missing("kernel-that-is-not-there")),
        };
        let mut variables = fixture.variables.clone();
        variables.insert("PROOFHOUSE_FAKE_ID".to_owned(), id.to_string());
        variables.insert("PROOFHOUSE_FAKE_STATE".to_owned(), state.to_string_lossy().into_owned());
        let plays = ["--defect".to_owned(), defect.to_owned()];
        let provider = Provider {
            id,
            about: format!("a fake worker whose defect is {defect}"),
            command: fixture.command.iter().cloned().chain(plays).collect(),
            environment: fixture.environment.clone(),
            lock: None,
            packages: fixture.packages.clone(),
            devices: vec![fixture.device],
            operators: BTreeMap::from([(OperatorName::new("rms_norm")?, fixture.dtypes.clone())]),
            refusals: fixture.refusals,
            strided: false,
            includes: fixture.includes.clone(),
            expect_libraries: libraries,
            expect_kernels: kernels,
            tunes: false,
            thread_variables: vec![],
            variables,
        };
        Ok(ProviderHome { provider, folder: fixture.folder.clone().unwrap_or(state) })
    }

    fn gate(&self) -> Result<ResolvedGate, IdError> {
        let timing = (self.exploit.kind == GateKind::Baseline).then(|| self.rule());
        let baselines = if timing.is_some() { vec![HONEST.parse()?] } else { vec![] };
        let mut candidates = vec![PLAYER.parse()?];
        if self.exploit.followed {
            candidates.push(HONEST.parse()?);
        }
        let header = GateHeader {
            id: GateId::new(format!("selftest.{}", self.exploit.kind))?,
            kind: self.exploit.kind,
            level: Level::Required,
            about: "planted faults are seen".to_owned(),
            device: self.device(),
            operator: "rms_norm".parse()?,
            candidates,
            baselines,
            timing,
        };
        let cells = match (self.exploit.kind, self.device()) {
            (GateKind::Baseline, DeviceKind::Cpu) => vec![self.plain(16, 4096, Dtype::F32)?],
            (GateKind::Baseline, DeviceKind::Cuda) => vec![self.plain(64, 4096, self.widest())?],
            (GateKind::Graph, _) => vec![self.plain(8, 4096, self.widest())?],
            (_, DeviceKind::Cpu) => self.correctness_cells()?,
            (_, DeviceKind::Cuda) => {
                vec![self.plain(3, 64, Dtype::F32)?, self.plain(5, 96, self.widest())?]
            }
        };
        Ok(ResolvedGate { header, cells, exclusions: vec![] })
    }

    /// The last of the fixture's dtypes: the one that models use.
    fn widest(&self) -> Dtype {
        self.options.fixture.dtypes.last().copied().unwrap_or(Dtype::F32)
    }

    /// An exploit that is to leave the data undecided must not be able to pass by being measured: it has to win.
    fn rule(&self) -> TimingRule {
        let undecided = self.exploit.expected.contains(&Verdict::Inconclusive);
        TimingRule {
            contract: TimingContract {
                cache: self.exploit.cache,
                launch: self.exploit.launch,
                clock: if self.device().is_cpu() { Clock::Host } else { Clock::Device },
                includes: self.options.fixture.includes.clone(),
                threads: 1,
                statistic: Statistic::MedianPerCall,
                clock_policy: ClockPolicy::AsFound,
            },
            margin: 0.03,
            require: if undecided { Require::Win } else { Require::Measured },
        }
    }

    fn correctness_cells(&self) -> Result<Vec<Cell>, IdError> {
        let mut cells = vec![self.plain(3, 64, Dtype::F32)?, self.plain(5, 33, Dtype::F32)?];
        let operator = self.options.catalog.operators.get(&"rms_norm".parse()?);
        let has = |class: &str| operator.is_some_and(|op| op.values.iter().any(|v| v == class));
        for class in ["inf", "nan"].into_iter().filter(|class| has(class)) {
            cells.push(self.cell((4, 64), Dtype::F32, class, Expect::Outputs)?);
        }
        let refusals = operator.map(|op| op.refusals.as_slice()).unwrap_or_default();
        for refusal in refusals.iter().filter(|refusal| !refusal.device_value) {
            let expect = Expect::Refusal {
                name: refusal.name.clone(),
                kind: refusal.kind.clone(),
                argument: refusal.argument.clone(),
            };
            cells.push(self.cell((4, 64), Dtype::F32, "normal", expect)?);
        }
        Ok(cells)
    }

    fn plain(&self, rows: u64, hidden: u64, dtype: Dtype) -> Result<Cell, IdError> {
        self.cell((rows, hidden), dtype, "normal", Expect::Outputs)
    }

    fn cell(
        &self,
        (rows, hidden): (u64, u64),
        dtype: Dtype,
        class: &str,
        expect: Expect,
    ) -> Result<Cell, IdError> {
        let operator: OperatorName = "rms_norm".parse()?;
        let spec = self.options.catalog.operators.get(&operator);
        let params = spec.map(|op| op.params.iter().map(|p| (p.name.clone(), p.default)).collect());
        let told = match &expect {
            Expect::Outputs => class.to_owned(),
            Expect::Refusal { name, .. } => format!("refusal: {name}"),
        };
        let case = CaseSpec {
            operator,
            dims: BTreeMap::from([("rows".to_owned(), rows), ("hidden".to_owned(), hidden)]),
            dtype,
            layout: "contiguous".to_owned(),
            params: params.unwrap_or_default(),
            inputs: Inputs::Seeded { values: class.to_owned(), seed: Wide(7) },
            expect,
        };
        Ok(Cell { key: format!("rows={rows} hidden={hidden} {dtype} contiguous {told}"), case })
    }
}

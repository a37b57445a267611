//! The self-test: planted faults and exploits go through the very same runner, checker and judge as everything else.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::mpsc::Sender;
use std::time::Duration;

use proofhouse_schema::catalog::Catalog;
use proofhouse_schema::device::DeviceKind;
use proofhouse_schema::dtype::Dtype;
use proofhouse_schema::event::Event;
use proofhouse_schema::evidence::{ExploitResult, QualificationScore};
use proofhouse_schema::gate::{
    CaseSpec, Cell, Expect, GateHeader, GateKind, Inputs, Level, Profile, ResolvedGate, TimingRule,
};
use proofhouse_schema::ids::{GateId, IdError, OperatorName, ProviderId};
use proofhouse_schema::provider::{Environment, Provider};
use proofhouse_schema::timing::{Cache, Clock, ClockPolicy, Launch, Statistic, TimingContract};
use proofhouse_schema::units::{Bytes, Wide};
use proofhouse_schema::verdict::{Require, Verdict};

use crate::dispatch::run;
use crate::error::RunError;
use crate::interrupt::Stop;
use crate::memory::Memory;
use crate::options::{Limits, RunOptions};
use crate::ports::Judge;
use crate::provider::ProviderHome;
use crate::selection::Selection;

/// A planted fault, as the testkit declares it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Exploit {
    /// Its name, which is its defect's.
    pub name: String,
    /// The pitfall it stands for.
    pub pitfall: String,
    /// Verdicts that are right; the worst verdict over the gate's cells must be among them.
    pub expected: Vec<Verdict>,
    /// The kind of gate that must see it.
    pub kind: GateKind,
    /// Whether it is an honest control, which must pass.
    pub control: bool,
}

/// What a self-test needs.
#[derive(Debug, Clone)]
pub struct SelftestOptions {
    /// A run's options; its gates and its selection are not used.
    pub run: RunOptions,
    /// The fake worker's program; it takes `--defect NAME`.
    pub fake_worker: PathBuf,
    /// The catalog, for the parameters and refusals of the operator that the fakes implement.
    pub catalog: Catalog,
}

/// What a self-test found.
#[derive(Debug, Clone, PartialEq)]
pub struct SelftestFindings {
    /// One line per exploit.
    pub exploits: Vec<ExploitResult>,
    /// The checkers' batteries that ran on the way, by `operator dtype`.
    pub batteries: BTreeMap<String, QualificationScore>,
}

/// Runs every exploit through a gate of its kind; one that is stopped and those after it have no line.
///
/// # Errors
/// When a run could not begin.
pub fn selftest(
    options: &SelftestOptions,
    exploits: &[Exploit],
    judge: &dyn Judge,
    stop: &Stop,
    events: &Sender<Event>,
) -> Result<SelftestFindings, RunError> {
    let folder = tempfile::tempdir().map_err(|source| RunError::Setup {
        what: "make a folder for the self-test".to_owned(),
        source,
    })?;
    let mut findings = SelftestFindings { exploits: Vec::new(), batteries: BTreeMap::new() };
    for exploit in exploits {
        if stop.requested() {
            break;
        }
        let step = format!("self-test: {}", exploit.name);
        // Nobody may be listening.
        let _ = events.send(Event::StepStarted { step: step.clone() });
        let begun = std::time::Instant::now();
        let stage = Stage { options, exploit, folder: folder.path().to_owned() };
        let (result, batteries) = stage.play(judge, stop)?;
        if stop.requested() {
            // What was stopped got no verdict of its own.
            break;
        }
        let _ = events.send(Event::StepFinished {
            step,
            outcome: format!(
                "{}{}",
                result.found,
                if result.right { "" } else { ", which is wrong" }
            ),
            elapsed_ms: begun.elapsed().as_secs_f64() * 1e3,
        });
        findings.exploits.push(result);
        findings.batteries.extend(batteries);
    }
    Ok(findings)
}

struct Stage<'a> {
    options: &'a SelftestOptions,
    exploit: &'a Exploit,
    folder: PathBuf,
}

type Batteries = BTreeMap<String, QualificationScore>;

impl Stage<'_> {
    fn play(&self, judge: &dyn Judge, stop: &Stop) -> Result<(ExploitResult, Batteries), RunError> {
        let bad = |error: IdError| RunError::Setup {
            what: "name the self-test's gate".to_owned(),
            source: std::io::Error::other(error),
        };
        let mut shelf = Memory::default();
        let (sender, receiver) = std::sync::mpsc::channel();
        let run_options = self.run_options().map_err(bad)?;
        let outcome = run(run_options, &mut shelf, judge, stop, &sender)?;
        drop((sender, receiver));
        if let Some(problem) = outcome.problem {
            return Err(problem);
        }
        let worst = outcome.verdicts.iter().min_by_key(|body| body.verdict.exit());
        let found = worst.map_or(Verdict::NotRun, |body| body.verdict);
        let mut codes: Vec<String> = outcome
            .verdicts
            .iter()
            .filter(|body| body.verdict == found)
            .flat_map(|body| body.reasons.iter().map(|reason| reason.code.clone()))
            .collect();
        codes.sort();
        codes.dedup();
        let result = ExploitResult {
            name: self.exploit.name.clone(),
            pitfall: self.exploit.pitfall.clone(),
            expected: self.exploit.expected.clone(),
            found,
            codes,
            control: self.exploit.control,
            right: self.exploit.expected.contains(&found),
        };
        Ok((result, shelf.batteries))
    }

    fn run_options(&self) -> Result<RunOptions, IdError> {
        let base = &self.options.run;
        let mut providers: Vec<ProviderHome> = base
            .providers
            .iter()
            .filter(|home| home.provider.id == base.checker)
            .cloned()
            .collect();
        providers.push(self.fake("fake", &self.exploit.name)?);
        providers.push(self.fake("honest", "none")?);
        Ok(RunOptions {
            gates: vec![self.gate()?],
            profile: Profile {
                id: "selftest".parse()?,
                replicates: if self.exploit.kind == GateKind::Baseline { 3 } else { 1 },
                blocks: 8,
                samples: 5,
                min_sample_us: 2000.0,
            },
            providers,
            selection: Selection::default(),
            jobs: 1,
            limits: Limits {
                hello: Duration::from_secs(3).min(base.limits.hello),
                request: Duration::from_secs(2).min(base.limits.request),
                measure: Duration::from_secs(4).min(base.limits.measure),
                grace: Duration::from_millis(300),
                memory: Bytes(512 << 20),
                losses: 2,
                correctness_threads: 1,
                ..base.limits.clone()
            },
            time_budget: None,
            ..base.clone()
        })
    }

    fn fake(&self, id: &str, defect: &str) -> Result<ProviderHome, IdError> {
        let id: ProviderId = id.parse()?;
        let folder = self.folder.join(format!("{id}-{defect}"));
        // The folder's one file is what tells fakes apart by digest; a failure to write shows when it is digested.
        let _ = std::fs::create_dir_all(&folder);
        let _ = std::fs::write(folder.join("defect"), defect);
        let program = self.options.fake_worker.to_string_lossy().into_owned();
        let expect_libraries = if defect == "silent-fallback" {
            vec!["lib-that-is-not-there".to_owned()]
        } else {
            vec![]
        };
        let said = id.to_string();
        let provider = Provider {
            id,
            about: format!("a fake worker whose defect is {defect}"),
            command: vec![program, "--defect".to_owned(), defect.to_owned()],
            environment: Environment::Binary,
            lock: None,
            packages: BTreeMap::new(),
            devices: vec![DeviceKind::Cpu],
            operators: BTreeMap::from([(OperatorName::new("rms_norm")?, vec![Dtype::F32])]),
            refusals: true,
            strided: false,
            includes: vec![],
            expect_libraries,
            expect_kernels: vec![],
            thread_variables: vec![],
            variables: BTreeMap::from([
                ("PROOFHOUSE_FAKE_ID".to_owned(), said),
                ("PROOFHOUSE_FAKE_STATE".to_owned(), folder.to_string_lossy().into_owned()),
            ]),
        };
        Ok(ProviderHome { provider, folder })
    }

    fn gate(&self) -> Result<ResolvedGate, IdError> {
        let timing = (self.exploit.kind == GateKind::Baseline).then(|| rule(self.exploit));
        let baselines = if timing.is_some() { vec!["honest".parse()?] } else { vec![] };
        let header = GateHeader {
            id: GateId::new(format!("selftest.{}", self.exploit.kind))?,
            kind: self.exploit.kind,
            level: Level::Required,
            about: "planted faults are seen".to_owned(),
            device: DeviceKind::Cpu,
            operator: "rms_norm".parse()?,
            candidates: vec!["fake".parse()?],
            baselines,
            timing,
        };
        let cells = match self.exploit.kind {
            GateKind::Baseline => vec![self.cell(16, 4096, "normal", Expect::Outputs)?],
            _ => self.correctness_cells()?,
        };
        Ok(ResolvedGate { header, cells, exclusions: vec![] })
    }

    fn correctness_cells(&self) -> Result<Vec<Cell>, IdError> {
        let mut cells = vec![
            self.cell(3, 64, "normal", Expect::Outputs)?,
            self.cell(5, 33, "normal", Expect::Outputs)?,
        ];
        let operator = self.options.catalog.operators.get(&"rms_norm".parse()?);
        let has = |class: &str| operator.is_some_and(|op| op.values.iter().any(|v| v == class));
        for class in ["inf", "nan"].into_iter().filter(|class| has(class)) {
            cells.push(self.cell(4, 64, class, Expect::Outputs)?);
        }
        let refusals = operator.map(|op| op.refusals.as_slice()).unwrap_or_default();
        for refusal in refusals.iter().filter(|refusal| !refusal.device_value) {
            let expect = Expect::Refusal {
                name: refusal.name.clone(),
                kind: refusal.kind.clone(),
                argument: refusal.argument.clone(),
            };
            cells.push(self.cell(4, 64, "normal", expect)?);
        }
        Ok(cells)
    }

    fn cell(&self, rows: u64, hidden: u64, class: &str, expect: Expect) -> Result<Cell, IdError> {
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
            dtype: Dtype::F32,
            layout: "contiguous".to_owned(),
            params: params.unwrap_or_default(),
            inputs: Inputs::Seeded { values: class.to_owned(), seed: Wide(7) },
            expect,
        };
        Ok(Cell { key: format!("rows={rows} hidden={hidden} F32 contiguous {told}"), case })
    }
}

/// An exploit that is to leave the data undecided must not be able to pass by being measured: it has to win.
fn rule(exploit: &Exploit) -> TimingRule {
    let undecided = exploit.expected.contains(&Verdict::Inconclusive);
    TimingRule {
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
        require: if undecided { Require::Win } else { Require::Measured },
    }
}

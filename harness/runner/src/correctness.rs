//! Cells that are not timed: the checker poses, the candidate runs, the checker compares; many cells a process.

mod graph;
mod sanitizer;

use std::cell::Cell as Counter;
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;
use std::time::{Duration, Instant};

use proofhouse_schema::canonical::Digest;
use proofhouse_schema::device::DeviceKind;
use proofhouse_schema::evidence::{
    Attempt, Capture, CorrectnessObservation, Ending, Finding, GraphObservation, Observation,
    Outcome, Pass, Purpose, QualificationScore, ReplayPair,
};
use proofhouse_schema::gate::{CaseSpec, Expect, GateKind};
use proofhouse_schema::ids::ProviderId;
use proofhouse_schema::protocol::{Poison, Posed, Prepare, Reply, Request, Witnessed};

use crate::attempt::{Answer, Loss, Placement, Worker, unexpected};
use crate::checker::{Checker, CheckerFault, PoseOf};
use crate::context::{Context, Desk};
use crate::draft::{Draft, Place, PosedFacts, Sight};
use crate::provider;
use crate::scratch::Scratch;
pub(crate) use graph::missing_kernels;

/// Cells of one gate and one candidate that one executor takes through one process.
#[derive(Debug)]
pub(crate) struct Batch {
    pub(crate) candidate: ProviderId,
    pub(crate) device: DeviceKind,
    pub(crate) places: Vec<Place>,
    /// Processes that this candidate has lost in this gate, over all batches.
    pub(crate) losses: Rc<Counter<u32>>,
}

/// Takes batches until there are none, or the run stops.
pub(crate) async fn executor(
    context: Rc<Context>,
    queue: Rc<std::cell::RefCell<VecDeque<Batch>>>,
) -> Result<(), crate::RunError> {
    let mut desk = Desk::open(&context)?;
    loop {
        let next = queue.borrow_mut().pop_front();
        let Some(batch) = next else { break };
        if context.stop.requested() || context.budget.spent() {
            break;
        }
        BatchRun { context: &context, desk: &mut desk, batch: &batch, worker: None }.run().await;
    }
    desk.close().await;
    Ok(())
}

/// Who failed, and how.
pub(crate) enum Broken {
    Candidate(Loss),
    /// The candidate, while it captured or replayed a graph.
    Capture(Loss),
    Checker(CheckerFault),
}

impl From<Loss> for Broken {
    fn from(loss: Loss) -> Self {
        Broken::Candidate(loss)
    }
}

impl From<CheckerFault> for Broken {
    fn from(fault: CheckerFault) -> Self {
        Broken::Checker(fault)
    }
}

/// A candidate's process with what was learned of it once.
struct Live {
    worker: Worker,
    witness: Option<Witnessed>,
}

struct BatchRun<'a> {
    context: &'a Rc<Context>,
    desk: &'a mut Desk,
    batch: &'a Batch,
    worker: Option<Live>,
}

/// What a cell gave.
struct Given {
    posed: PosedFacts,
    observation: Observation,
}

impl BatchRun<'_> {
    async fn run(mut self) {
        let count = self.batch.places.len();
        // The next cell is taken to last as long as the last one did.
        let mut last = Duration::ZERO;
        for (done, place) in self.batch.places.iter().enumerate() {
            if self.context.stop.requested() || !self.context.budget.allows(last) {
                break;
            }
            let begun = Instant::now();
            self.context.started(*place);
            let draft = self.cell(*place, done + 1 == count).await;
            last = begun.elapsed();
            match draft {
                Some(draft) => self.context.done(draft),
                None => break,
            }
        }
        if let Some(live) = self.worker.take() {
            // Only a batch that is stopped has a worker left here.
            live.worker.lose(&Loss::Interrupted).await;
        }
    }

    /// One cell; nothing when the run was interrupted in it.
    async fn cell(&mut self, place: Place, last: bool) -> Option<Draft> {
        let case = self.context.case(place).clone();
        if let Some(reason) = self.context.no_device(self.batch.device) {
            let observation = Observation::NotRun { reason };
            return Some(self.draft(place, observation, PosedFacts::default(), Vec::new(), None));
        }
        if self.batch.losses.get() >= self.context.options.limits.losses {
            return Some(self.draft(
                place,
                self.gave_up(),
                PosedFacts::default(),
                Vec::new(),
                None,
            ));
        }
        let kind = self.context.plan.gates[place.gate].gate.header.kind;
        if kind == GateKind::Sanitizer {
            return self.sanitizer_cell(&case, place).await;
        }
        if let Err((loss, attempt)) = self.ready().await {
            return self.lost(place, loss, attempt, PosedFacts::default());
        }
        if let Err(fault) = self.desk.ready(self.context).await {
            return self.unchecked(place, fault, last).await;
        }
        match self.take(&case, place).await {
            Ok(given) => Some(self.given(place, given, last).await),
            Err(Broken::Candidate(loss)) => {
                let attempt = match self.worker.take() {
                    Some(live) => vec![live.worker.lose(&loss).await],
                    None => Vec::new(),
                };
                self.lost(place, loss, attempt, PosedFacts::default())
            }
            Err(Broken::Capture(loss)) => self.broke(place, &case, loss).await,
            Err(Broken::Checker(fault)) => self.unchecked(place, fault, last).await,
        }
    }

    /// A cell whose every tool has a process of its own.
    async fn sanitizer_cell(&mut self, case: &CaseSpec, place: Place) -> Option<Draft> {
        if let Err(fault) = self.desk.ready(self.context).await {
            return self.unchecked(place, fault, false).await;
        }
        match self.sanitized(case, place).await {
            Ok((given, attempts)) => {
                Some(self.draft(place, given.observation, given.posed, attempts, None))
            }
            Err(Broken::Candidate(loss) | Broken::Capture(loss)) => {
                self.lost(place, loss, Vec::new(), PosedFacts::default())
            }
            Err(Broken::Checker(fault)) => self.unchecked(place, fault, false).await,
        }
    }

    /// A process that broke over a graph; the next cell gets a fresh one.
    async fn broke(&mut self, place: Place, case: &CaseSpec, loss: Loss) -> Option<Draft> {
        let attempts = match self.worker.take() {
            Some(live) => vec![live.worker.lose(&loss).await],
            None => Vec::new(),
        };
        if loss == Loss::Interrupted {
            return None;
        }
        self.context.health.suspect(self.batch.device);
        let observation = Observation::Graph(GraphObservation {
            capture: Capture::Broken { detail: loss.to_string() },
            replays: Vec::new(),
            qualification: self.context.qualification(&case.operator, case.dtype),
        });
        Some(self.draft(place, observation, PosedFacts::default(), attempts, None))
    }

    /// Starts the candidate if there is none.
    async fn ready(&mut self) -> Result<(), (Loss, Vec<Attempt>)> {
        if self.worker.is_some() {
            return Ok(());
        }
        let placement = Placement {
            replicate: 0,
            cores: None,
            threads: self.context.options.limits.correctness_threads,
            device: self.batch.device,
            wrapper: Vec::new(),
        };
        match self.context.start(&self.batch.candidate, &placement).await {
            Ok(worker) => {
                self.worker = Some(Live { worker, witness: None });
                Ok(())
            }
            Err((loss, attempt)) => Err((loss, vec![*attempt])),
        }
    }

    fn lost(
        &mut self,
        place: Place,
        loss: Loss,
        attempts: Vec<Attempt>,
        posed: PosedFacts,
    ) -> Option<Draft> {
        if loss == Loss::Interrupted {
            return None;
        }
        self.batch.losses.set(self.batch.losses.get() + 1);
        self.context.health.suspect(self.batch.device);
        let observation = Observation::Errored {
            ending: loss.ending(),
            provider: self.batch.candidate.clone(),
            detail: loss.to_string(),
        };
        Some(self.draft(place, observation, posed, attempts, None))
    }

    fn gave_up(&self) -> Observation {
        Observation::Errored {
            ending: Ending::NotStarted,
            provider: self.batch.candidate.clone(),
            detail: format!(
                "gave-up: {} lost {} processes in this gate; its other cells are not tried",
                self.batch.candidate,
                self.batch.losses.get()
            ),
        }
    }

    /// A cell that the checker did not serve.
    async fn unchecked(&mut self, place: Place, fault: CheckerFault, last: bool) -> Option<Draft> {
        let observation = fault.observation(&self.context.options.checker);
        if let CheckerFault::Lost(loss) = fault {
            if loss == Loss::Interrupted {
                return None;
            }
            self.desk.lose(&loss).await;
        }
        let given = Given { posed: PosedFacts::default(), observation };
        let mut draft = self.given(place, given, last).await;
        draft.attempts.extend(self.desk.take_lost());
        Some(draft)
    }

    /// The draft of a cell that came to an observation; the batch's last cell carries the process's end.
    async fn given(&mut self, place: Place, given: Given, last: bool) -> Draft {
        let Given { posed, mut observation } = given;
        let mut witness = None;
        let mut hello = None;
        let mut attempts = Vec::new();
        if let Some(mut live) = self.worker.take() {
            hello = Some(live.worker.hello().clone());
            witness = live.witness.clone();
            if last {
                let (attempt, loss) = live.worker.end().await;
                attempts.push(attempt);
                if let Some(loss) = loss.filter(|loss| *loss != Loss::Interrupted) {
                    observation = Observation::Errored {
                        ending: loss.ending(),
                        provider: self.batch.candidate.clone(),
                        detail: loss.to_string(),
                    };
                }
            } else {
                attempts.push(live.worker.so_far());
                self.worker = Some(live);
            }
        }
        let mut draft = self.draft(place, observation, posed, attempts, witness);
        if let Some(hello) = &hello {
            draft.candidate = self.context.facts(&self.batch.candidate, Some(hello));
        }
        draft
    }

    fn draft(
        &self,
        place: Place,
        observation: Observation,
        posed: PosedFacts,
        attempts: Vec<Attempt>,
        witness: Option<Witnessed>,
    ) -> Draft {
        let candidate = self.batch.candidate.clone();
        Draft {
            place,
            candidate: self.context.facts(&candidate, None),
            baselines: Vec::new(),
            checker: self.context.facts(&self.context.options.checker, self.desk.hello()),
            posed,
            attempts,
            seen: Sight::Plain(observation),
            witness: witness.map(|w| BTreeMap::from([(candidate, w)])).unwrap_or_default(),
            carried: Vec::new(),
        }
    }

    /// Takes the candidate through one case.
    async fn take(&mut self, case: &CaseSpec, place: Place) -> Result<Given, Broken> {
        let Some(live) = self.worker.as_mut() else {
            return Err(Broken::Candidate(Loss::NotStarted { detail: "no process".to_owned() }));
        };
        if let Some(reason) = provider::declines(live.worker.hello(), case) {
            let observation = Observation::Unsupported { reason };
            return Ok(Given { posed: PosedFacts::default(), observation });
        }
        let (checker, scratch) = self.desk.parts()?;
        let kind = self.context.plan.gates[place.gate].gate.header.kind;
        let mut passes = Passes {
            live,
            checker,
            scratch,
            case,
            name: format!("c{}-{}", place.gate, place.cell),
            posed: None,
            poses: Vec::new(),
            bound: Vec::new(),
            expected: self.context.expected_libraries(&self.batch.candidate),
        };
        let seen = match kind {
            GateKind::Graph => {
                let expected = self.context.expected_kernels(&self.batch.candidate);
                passes.graph(&expected).await
            }
            _ => passes.all(self.context.options.seed).await,
        };
        let posed = passes.posed.as_ref().map(PosedFacts::from).unwrap_or_default();
        passes.forget(seen.as_ref().err()).await?;
        let observation = match seen? {
            Seen::Unsupported(reason) => Observation::Unsupported { reason },
            Seen::Passes(passes) => Observation::Correctness(CorrectnessObservation {
                passes,
                qualification: self.context.qualification(&case.operator, case.dtype),
            }),
            Seen::Graph(capture, replays) => Observation::Graph(GraphObservation {
                capture,
                replays,
                qualification: self.context.qualification(&case.operator, case.dtype),
            }),
        };
        Ok(Given { posed, observation })
    }
}

pub(crate) enum Seen {
    Unsupported(String),
    Passes(Vec<Pass>),
    Graph(Capture, Vec<ReplayPair>),
}

/// The passes of one cell.
pub(crate) struct Passes<'a> {
    live: &'a mut Live,
    checker: &'a mut Checker,
    scratch: &'a Scratch,
    case: &'a CaseSpec,
    name: String,
    posed: Option<Posed>,
    /// Case names that the checker knows.
    poses: Vec<String>,
    /// Case names that the candidate knows.
    bound: Vec<String>,
    expected: Vec<String>,
}

/// How a pass is made.
#[derive(Clone, Copy)]
pub(crate) struct Way {
    purpose: Purpose,
    /// Which of the cell's files and case names it uses.
    slot: &'static str,
    poison: Poison,
    contents: u32,
    row: Option<u64>,
    prepare: bool,
    checked: bool,
}

impl Passes<'_> {
    async fn all(&mut self, seed: u64) -> Result<Seen, Broken> {
        let way = |purpose, slot, poison| Way {
            purpose,
            slot,
            poison,
            contents: 0,
            row: None,
            prepare: true,
            checked: true,
        };
        if let Expect::Refusal { .. } = self.case.expect {
            let pass = self.refusal(way(Purpose::Refusal, "a", Poison::A)).await?;
            return Ok(Seen::Passes(vec![pass]));
        }
        let rows = self.case.dims.get("rows").copied().unwrap_or(1);
        let row = (rows > 1).then(|| draw(seed, &self.name) % rows);
        let first = way(Purpose::First, "a", Poison::A);
        let mut passes = vec![self.pass(first, row).await?];
        match &passes[0].outcome {
            Outcome::Ran => {}
            Outcome::Unsupported(reason) => return Ok(Seen::Unsupported(reason.clone())),
            _ => return Ok(Seen::Passes(passes)),
        }
        passes[0].findings.extend(self.witness().await?);
        let repeat = Way { checked: false, ..way(Purpose::Repeat, "b", Poison::B) };
        passes.push(self.pass(repeat, None).await?);
        let renewed = Way {
            purpose: Purpose::Renewed,
            contents: 1,
            prepare: false,
            poison: Poison::A,
            ..repeat
        };
        passes.push(self.pass(renewed, None).await?);
        if let Some(row) = row {
            let single = way(Purpose::SingleRow, "r", Poison::B);
            passes.push(self.pass(Way { row: Some(row), ..single }, Some(0)).await?);
        }
        Ok(Seen::Passes(passes))
    }

    fn case_name(&self, way: Way) -> String {
        format!("{}-{}", self.name, way.slot)
    }

    async fn pose(&mut self, way: Way) -> Result<Posed, Broken> {
        let case = self.case_name(way);
        let file = self.scratch.file(&case);
        let pose = PoseOf {
            case: &case,
            spec: self.case,
            file: &file,
            poison: way.poison,
            contents: way.contents,
            row: way.row,
        };
        let posed = self.checker.pose(pose).await?;
        if !self.poses.contains(&case) {
            self.poses.push(case);
        }
        self.posed.get_or_insert_with(|| posed.clone());
        Ok(posed)
    }

    async fn run(&mut self, way: Way, posed: Posed) -> Result<Outcome, Broken> {
        let case = self.case_name(way);
        // Checked mode must refuse inputs with values that no kernel may take (a NaN logit).
        let checked = way.checked && !posed.device_faults;
        if way.prepare {
            let request = prepare(&case, self.case, posed);
            let answer = self.live.worker.ask_case(request, &case).await?;
            if answer != Answer::Done {
                return Ok(outcome(answer));
            }
            self.bound.push(case.clone());
        }
        let request = Request::Check { case: case.clone(), checked };
        Ok(outcome(self.live.worker.ask_case(request, &case).await?))
    }

    /// Pose, run, compare. `row` is the row to digest.
    async fn pass(&mut self, way: Way, row: Option<u64>) -> Result<Pass, Broken> {
        let posed = self.pose(way).await?;
        let outcome = self.run(way, posed).await?;
        let mut pass = blank(way.purpose, outcome);
        if pass.outcome == Outcome::Ran {
            let judged =
                self.checker.judge(&self.case_name(way), row.into_iter().collect()).await?;
            pass.outputs = judged.outputs;
            pass.findings = judged.findings;
            pass.digests = judged.digests;
            pass.rows = judged.rows;
        }
        Ok(pass)
    }

    async fn refusal(&mut self, way: Way) -> Result<Pass, Broken> {
        let posed = self.pose(way).await?;
        let outcome = self.run(way, posed).await?;
        Ok(blank(way.purpose, outcome))
    }

    /// Asks once a process what really ran; a library that the provider promised and did not map is a finding.
    async fn witness(&mut self) -> Result<Vec<Finding>, Broken> {
        if self.live.witness.is_none() {
            match self.live.worker.ask(Request::Witness).await? {
                Reply::Witnessed(witnessed) => self.live.witness = Some(witnessed),
                Reply::Failed { detail } => {
                    return Ok(vec![Finding { code: "no-witness".to_owned(), detail }]);
                }
                other => return Err(unexpected("witness", &other, "witnessed").into()),
            }
        }
        let witnessed = self.live.witness.as_ref();
        Ok(witnessed.map(|w| fallbacks(&self.expected, w)).unwrap_or_default())
    }

    /// Forgets the cell's cases on both sides, but asks nothing of who is lost.
    async fn forget(&mut self, broken: Option<&Broken>) -> Result<(), Broken> {
        for case in &self.poses {
            self.scratch.remove(case);
        }
        if !matches!(broken, Some(Broken::Candidate(_) | Broken::Capture(_))) {
            for case in &self.bound {
                self.live.worker.ask_case(Request::Release { case: case.clone() }, case).await?;
            }
        }
        if !matches!(broken, Some(Broken::Checker(CheckerFault::Lost(_)))) {
            for case in &self.poses {
                self.checker.release(case).await?;
            }
        }
        Ok(())
    }
}

/// Expected libraries that are not mapped.
pub(crate) fn fallbacks(expected: &[String], witnessed: &Witnessed) -> Vec<Finding> {
    let mapped =
        |name: &String| witnessed.libraries.iter().any(|lib| lib.name.contains(name.as_str()));
    expected
        .iter()
        .filter(|name| !mapped(name))
        .map(|name| Finding {
            code: "silent-fallback".to_owned(),
            detail: format!(
                "no mapped library is named like {name:?}, which provider.toml expects"
            ),
        })
        .collect()
}

/// The request that binds a posed case.
pub(crate) fn prepare(case: &str, spec: &CaseSpec, posed: Posed) -> Request {
    Request::Prepare(Prepare {
        case: case.to_owned(),
        operator: spec.operator.clone(),
        dtype: posed.dtype.unwrap_or(spec.dtype),
        dims: posed.dims,
        params: posed.params,
        tensors: posed.tensors,
    })
}

/// A pass in which nothing was compared yet.
pub(crate) fn blank(purpose: Purpose, outcome: Outcome) -> Pass {
    Pass {
        purpose,
        outcome,
        outputs: Vec::new(),
        findings: Vec::new(),
        digests: BTreeMap::new(),
        rows: Vec::new(),
    }
}

fn outcome(answer: Answer) -> Outcome {
    match answer {
        Answer::Done => Outcome::Ran,
        Answer::Refused(error) => Outcome::Refused(error),
        Answer::Unsupported(reason) => Outcome::Unsupported(reason),
        Answer::Failed(detail) => Outcome::Failed(detail),
    }
}

/// A number drawn from a seed and a name.
pub(crate) fn draw(seed: u64, name: &str) -> u64 {
    let digest = Digest::of(format!("{seed} {name}").as_bytes());
    u64::from_str_radix(&digest.as_str()[..15], 16).unwrap_or(0)
}

/// The score of a battery that did not run: it qualifies nothing.
pub(crate) fn no_battery() -> QualificationScore {
    QualificationScore {
        killed: 0,
        mutants: 0,
        equivalent: 0,
        false_alarms: 0,
        survivors: Vec::new(),
    }
}

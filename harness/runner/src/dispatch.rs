//! The dispatcher: it plans, starts executors, and is the only one who writes evidence and sends events.

use std::cell::{Cell as Counter, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::sync::mpsc::Sender;
use std::time::Instant;

use proofhouse_gate::judge::{gate_total, total};
use proofhouse_schema::canonical::Digest;
use proofhouse_schema::device::DeviceKind;
use proofhouse_schema::event::{CellFinished, Event};
use proofhouse_schema::evidence::{Observation, Record, SessionRecord};
use proofhouse_schema::exit::Exit;
use proofhouse_schema::gate::{GateKind, TimingRule};
use proofhouse_schema::ids::{GateId, ProviderId};
use proofhouse_schema::samples::Samples;
use proofhouse_schema::verdict::{Verdict, VerdictBody};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

use crate::attempt::{Reaper, Watch, become_subreaper, now};
use crate::budget::Budget;
use crate::context::{Context, Desk};
use crate::correctness::executor;
use crate::custody::{Custody, CustodyError, Hold};
use crate::device::Health;
use crate::draft::{Draft, Message, Place, PosedFacts, Sight, record};
use crate::ending::Ended;
use crate::environment::{Environments, Progress};
use crate::error::RunError;
use crate::interrupt::{Stop, Watchers};
use crate::options::{Reuse, RunOptions};
use crate::plan::{Plan, plan};
use crate::ports::{Evidence, Judge, Seen};
use crate::scratch::Scratch;
use crate::session;
use crate::timing::{self, Slice};
use crate::trace::Trace;
use crate::worklist::{RUN_KINDS, batches, is_timed, needed, to_do};

/// How a run ended.
#[derive(Debug)]
pub struct Outcome {
    /// The worst of what required cells ask for and of what befell the run.
    pub exit: Exit,
    /// Every verdict, in the order in which cells finished; of cells whose evidence was used again, too.
    pub verdicts: Vec<VerdictBody>,
    /// Cells that were planned.
    pub planned: usize,
    /// Cells whose evidence was used again.
    pub reused: usize,
    /// Planned cells that have no verdict, since the run was stopped or its time was used up.
    pub left: usize,
    /// Those of them of which replicates are kept: the next run goes on with them.
    pub begun: usize,
    /// Whether a cell got its verdict in this run, or a replicate was kept.
    pub gained: bool,
    /// Whether any cell with a verdict decides; without one, an exit code of 0 proves nothing.
    pub decides: bool,
    /// The session, when anything was done.
    pub session: Option<Digest>,
    /// What stopped the run before its end; what finished before it is kept.
    pub problem: Option<RunError>,
}

/// Runs the selected cells. Everything that finishes is written at once, record and verdict.
///
/// # Errors
/// When the run could not begin. What happens later is in the outcome.
pub fn run(
    options: RunOptions,
    evidence: &mut dyn Evidence,
    judge: &dyn Judge,
    stop: &Stop,
    events: &Sender<Event>,
) -> Result<Outcome, RunError> {
    let begun = Instant::now();
    Scratch::clear_stale(&options.shared_memory);
    let plan = plan(&options, &*evidence)?;
    let budget = Rc::new(Budget::new(begun, options.time_budget));
    let mut desk = Dispatcher::new(evidence, judge, events, stop, &plan);
    desk.event(Event::Planned {
        gates: plan.gates.len() as u64,
        cells: plan.cells() as u64,
        reused: plan.reused() as u64,
        excluded: plan.excluded() as u64,
    });
    for (device, cells) in &plan.left_out {
        let message = format!(
            "{cells} cells on {device} are left out: this run is not on that device (`--device {device}` requires them)"
        );
        desk.event(Event::Warning { message });
    }
    desk.reused(&plan);
    if plan.cells() > plan.reused() {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(|source| RunError::Setup { what: "start its runtime".to_owned(), source })?;
        let local = tokio::task::LocalSet::new();
        local.block_on(&runtime, desk.drive(options, plan, Rc::clone(&budget)))?;
    }
    Ok(desk.finish(begun, budget.left_work()))
}

/// Processes that check on one device at a time: they take many seconds to start, and a fault of one ends its own
/// context only.
const DEVICE_JOBS: usize = 4;

struct Dispatcher<'a> {
    evidence: &'a mut dyn Evidence,
    judge: &'a dyn Judge,
    events: &'a Sender<Event>,
    stop: Stop,
    planned: usize,
    reused: usize,
    exit: Exit,
    verdicts: Vec<VerdictBody>,
    /// What each baseline gate requires.
    rules: BTreeMap<GateId, TimingRule>,
    session: Option<(Digest, SessionRecord)>,
    /// Keys of cells that wait for replicates and have some.
    begun: BTreeSet<Digest>,
    /// Whether a replicate was kept in this run.
    kept: bool,
    /// Required cells that were planned.
    required: usize,
    problem: Option<RunError>,
}

impl<'a> Dispatcher<'a> {
    fn new(
        evidence: &'a mut dyn Evidence,
        judge: &'a dyn Judge,
        events: &'a Sender<Event>,
        stop: &Stop,
        plan: &Plan,
    ) -> Self {
        Self {
            evidence,
            judge,
            events,
            stop: stop.clone(),
            planned: plan.cells(),
            reused: plan.reused(),
            exit: Exit::Passed,
            verdicts: Vec::new(),
            rules: rules(plan),
            session: None,
            begun: begun(plan),
            kept: false,
            required: plan.required(),
            problem: None,
        }
    }

    fn event(&self, event: Event) {
        // Nobody may be listening; the run does not depend on it.
        let _ = self.events.send(event);
    }

    fn reused(&mut self, plan: &Plan) {
        for finished in plan.gates.iter().flat_map(|g| &g.cells).filter_map(|c| c.reused.as_ref()) {
            if finished.rejudged && self.problem.is_none() {
                let record = Record::Verdict(Box::new(finished.verdict.clone()));
                if let Err(error) = self.evidence.put(&record) {
                    self.fail(error.into());
                }
            }
            self.judged(finished.verdict.clone(), true);
        }
    }

    async fn drive(
        &mut self,
        options: RunOptions,
        plan: Plan,
        budget: Rc<Budget>,
    ) -> Result<(), RunError> {
        let setup = |what: &str| {
            let what = what.to_owned();
            move |source| RunError::Setup { what, source }
        };
        become_subreaper().map_err(setup("become the reaper of its workers' children"))?;
        let _watchers =
            Watchers::start(&options, &budget, &self.stop).map_err(setup("watch for signals"))?;
        if options.reuse == Reuse::Fresh {
            self.forget_all(&plan);
        }
        let watch = self.watch(&options)?;
        let started = now();
        let (sender, mut receiver) = unbounded_channel();
        let (pythons, absent) = self.environments(&options, &plan).await;
        let places = to_do(&plan);
        let context = Rc::new(Context {
            options,
            plan,
            pythons,
            absent,
            stop: self.stop.clone(),
            watch,
            sender,
            budget,
            batteries: RefCell::default(),
            unwritten: Counter::new(0),
            health: Health::default(),
        });
        let mut desk = Desk::open(&context)?;
        session::qualify(&context, &mut desk, &places).await;
        let custody = self.custody(&context, &places).await;
        let (mut controls, mut ceilings) = (Vec::new(), BTreeMap::new());
        for (device, held) in &custody {
            if held.is_ok() && is_timed(&context, &places, *device) {
                timing::ahead::tune(&context, &mut desk, &places, *device).await;
                let (more, measured) = timing::controls(&context, &mut desk, *device).await;
                controls.extend(more);
                ceilings.extend(measured);
            }
        }
        desk.close().await;
        self.drain(&context, &mut receiver);
        if self.stop.requested() {
            return Ok(());
        }
        let batteries = context.batteries.borrow().clone();
        let record = session::record(&context.options, started, batteries, controls, ceilings);
        self.open_session(record);
        let places = self.not_run(&context, &places, &custody);
        self.correctness(&context, &places, &mut receiver).await?;
        self.timing(&context, &places, &mut receiver).await
    }

    /// Who watches over attempts. Without a reaper a run is as good, as long as nobody kills it.
    fn watch(&self, options: &RunOptions) -> Result<Watch, RunError> {
        let reaper = match options.reaper.as_ref().map(Reaper::start) {
            Some(Ok(reaper)) => reaper,
            Some(Err(error)) => {
                let message =
                    format!("no reaper: what workers start may outlive a killed run: {error}");
                self.event(Event::Warning { message });
                Reaper::default()
            }
            None => Reaper::default(),
        };
        let trace = options.trace.as_deref().map(|path| {
            Trace::create(path).map_err(|source| RunError::Write { path: path.to_owned(), source })
        });
        let trace = trace.transpose()?.map(Rc::new);
        Ok(Watch { stop: self.stop.clone(), reaper: Rc::new(reaper), trace })
    }

    /// Makes the environments of the providers that have cells to be done.
    async fn environments(
        &mut self,
        options: &RunOptions,
        plan: &Plan,
    ) -> (BTreeMap<ProviderId, Option<std::path::PathBuf>>, BTreeMap<ProviderId, String>) {
        let mut environments = Environments::default();
        let (mut pythons, mut absent) = (BTreeMap::new(), BTreeMap::new());
        for id in needed(options, plan) {
            let progress = |progress: Progress| self.step(progress);
            let home = &plan.homes[&id];
            match environments.ready(home, options, &self.stop, &progress).await {
                Ok(python) => {
                    pythons.insert(id, python);
                }
                Err(error) => {
                    let reason = error.to_string();
                    self.event(Event::ProviderAbsent {
                        provider: id.clone(),
                        reason: reason.clone(),
                    });
                    absent.insert(id, reason);
                }
            }
        }
        (pythons, absent)
    }

    /// Holds the devices that cells need: alone where time is measured. Every run on a device runs on the host, too.
    async fn custody(
        &self,
        context: &Context,
        places: &[Place],
    ) -> BTreeMap<DeviceKind, Result<Custody, CustodyError>> {
        let options = &context.options;
        let mut kinds: BTreeSet<DeviceKind> = BTreeSet::from([DeviceKind::Cpu]);
        kinds.extend(places.iter().map(|place| context.device(*place)));
        let mut held = BTreeMap::new();
        for kind in kinds {
            let Some(name) = options.devices.lock_name(kind) else { continue };
            let hold = if is_timed(context, places, kind) { Hold::Alone } else { Hold::Shared };
            let wait = options.limits.custody_wait;
            let taken = Custody::wait(&options.custody, &name, hold, wait, &self.stop).await;
            held.insert(kind, taken);
        }
        held
    }

    fn open_session(&mut self, record: SessionRecord) {
        match self.evidence.put(&Record::Session(Box::new(record.clone()))) {
            Ok(digest) => self.session = Some((digest, record)),
            Err(error) => self.fail(error.into()),
        }
    }

    /// Writes cells whose candidate or device is absent, or which need a device that another run holds; gives the others.
    fn not_run(
        &mut self,
        context: &Rc<Context>,
        places: &[Place],
        custody: &BTreeMap<DeviceKind, Result<Custody, CustodyError>>,
    ) -> Vec<Place> {
        let mut others = Vec::new();
        for place in places {
            let gate = &context.plan.gates[place.gate];
            let candidate = &gate.cells[place.cell].candidate;
            let (kind, device) = (gate.gate.header.kind, gate.gate.header.device);
            let held = custody.get(&device).and_then(|held| held.as_ref().err());
            let reason = match (context.absent.get(candidate), held) {
                (Some(reason), _) => format!("{candidate} is not available: {reason}"),
                _ if context.no_device(device).is_some() => {
                    context.no_device(device).unwrap_or_default()
                }
                (None, Some(error)) if kind == GateKind::Baseline => {
                    format!("time cannot be measured: {error}")
                }
                _ if !RUN_KINDS.contains(&kind) => format!("this version runs no {kind} gates"),
                _ => {
                    others.push(*place);
                    continue;
                }
            };
            self.done(context, plain(context, *place, Observation::NotRun { reason }));
        }
        others
    }

    async fn correctness(
        &mut self,
        context: &Rc<Context>,
        places: &[Place],
        receiver: &mut UnboundedReceiver<Message>,
    ) -> Result<(), RunError> {
        let mut executors = tokio::task::JoinSet::new();
        let on_device = context.options.jobs.min(DEVICE_JOBS);
        for (device, jobs) in
            [(DeviceKind::Cpu, context.options.jobs), (DeviceKind::Cuda, on_device)]
        {
            let batches = batches(context, places, device);
            let jobs = jobs.clamp(1, batches.len().max(1));
            let queue = Rc::new(RefCell::new(batches));
            if queue.borrow().is_empty() {
                continue;
            }
            for _ in 0..jobs {
                executors.spawn_local(executor(Rc::clone(context), Rc::clone(&queue)));
            }
        }
        if executors.is_empty() {
            return Ok(());
        }
        self.listen(context, receiver, &mut executors).await
    }

    async fn timing(
        &mut self,
        context: &Rc<Context>,
        places: &[Place],
        receiver: &mut UnboundedReceiver<Message>,
    ) -> Result<(), RunError> {
        let groups = timing::groups(context, places);
        if groups.is_empty() || self.stop.requested() || context.budget.spent() {
            return Ok(());
        }
        let mut executors = tokio::task::JoinSet::new();
        executors.spawn_local(timing::executor(Rc::clone(context), groups));
        self.listen(context, receiver, &mut executors).await
    }

    /// Takes messages until every executor is gone.
    async fn listen(
        &mut self,
        context: &Rc<Context>,
        receiver: &mut UnboundedReceiver<Message>,
        executors: &mut tokio::task::JoinSet<Result<(), RunError>>,
    ) -> Result<(), RunError> {
        let mut problem = None;
        loop {
            tokio::select! {
                biased;
                Some(message) = receiver.recv() => self.message(context, message),
                joined = executors.join_next() => match joined {
                    None => break,
                    Some(Ok(Ok(()))) => {}
                    Some(Ok(Err(error))) => problem = Some(error),
                    Some(Err(error)) => problem = Some(RunError::Setup {
                        what: "keep an executor alive".to_owned(),
                        source: std::io::Error::other(error),
                    }),
                },
            }
        }
        self.drain(context, receiver);
        problem.map_or(Ok(()), Err)
    }

    fn drain(&mut self, context: &Rc<Context>, receiver: &mut UnboundedReceiver<Message>) {
        while let Ok(message) = receiver.try_recv() {
            self.message(context, message);
        }
    }

    fn message(&mut self, context: &Rc<Context>, message: Message) {
        match message {
            Message::Started(place) => {
                let gate = &context.plan.gates[place.gate];
                let planned = &gate.cells[place.cell];
                self.event(Event::CellStarted {
                    gate: gate.gate.header.id.clone(),
                    cell: gate.cell(planned).key.clone(),
                    provider: planned.candidate.clone(),
                });
            }
            Message::Done(draft) => {
                self.done(context, *draft);
                context.unwritten.set(context.unwritten.get().saturating_sub(1));
            }
            Message::Kept(slice) => {
                self.keep(*slice);
                context.unwritten.set(context.unwritten.get().saturating_sub(1));
            }
            Message::Step(progress) => self.step(progress),
            Message::Warning(message) => self.event(Event::Warning { message }),
        }
    }

    fn step(&self, progress: Progress) {
        self.event(match progress {
            Progress::Started(step) => Event::StepStarted { step },
            Progress::Finished { step, outcome, elapsed } => {
                let elapsed_ms = elapsed.as_secs_f64() * 1e3;
                Event::StepFinished { step, outcome, elapsed_ms }
            }
        });
    }

    /// Writes a cell's record, judges it, writes the verdict. After a write error nothing more is written.
    fn done(&mut self, context: &Rc<Context>, draft: Draft) {
        if self.problem.is_some() {
            return;
        }
        if let Err(error) = self.write(context, draft) {
            self.fail(error);
        }
    }

    /// Keeps a replicate of a cell, with the session in which it was seen.
    fn keep(&mut self, mut slice: Slice) {
        let Some((digest, session)) = &self.session else { return };
        if self.problem.is_some() {
            return;
        }
        slice.made.session = Some(digest.clone());
        slice.made.controls = session.controls.clone();
        let unwritable = |source: serde_json::Error| RunError::Setup {
            what: "write a replicate down".to_owned(),
            source: source.into(),
        };
        let kept = slice
            .to_bytes()
            .map_err(unwritable)
            .and_then(|bytes| Ok(self.evidence.keep(&slice.key, slice.replicate, &bytes)?));
        match kept {
            Ok(()) => {
                self.kept = true;
                self.begun.insert(slice.key);
            }
            Err(error) => self.fail(error),
        }
    }

    /// Forgets the replicates of every cell that is to be measured from nothing.
    fn forget_all(&mut self, plan: &Plan) {
        for cell in plan.gates.iter().flat_map(|gate| &gate.cells) {
            if let Err(error) = self.evidence.forget(&cell.key) {
                return self.fail(error.into());
            }
        }
    }

    /// The session that a draft's record names: this one, or this one with the controls of earlier sessions in which a part
    /// of the record was seen.
    fn session_of(&mut self, draft: &Draft) -> Result<Option<(Digest, SessionRecord)>, RunError> {
        let Some(own) = self.session.clone().filter(|_| !draft.carried.is_empty()) else {
            return Ok(self.session.clone());
        };
        let mut joined = own.1;
        joined.controls.extend(draft.carried.iter().cloned());
        let digest = self.evidence.put(&Record::Session(Box::new(joined.clone())))?;
        Ok(Some((digest, joined)))
    }

    fn write(&mut self, context: &Rc<Context>, mut draft: Draft) -> Result<(), RunError> {
        let Some((session_digest, session)) = self.session_of(&draft)? else { return Ok(()) };
        let (session_digest, session) = (&session_digest, &session);
        let place = draft.place;
        let gate = &context.plan.gates[place.gate];
        let planned = &gate.cells[place.cell];
        let absent = || Sight::Plain(Observation::NotRun { reason: String::new() });
        let (observation, samples): (Observation, Option<Samples>) =
            match std::mem::replace(&mut draft.seen, absent()) {
                Sight::Plain(observation) => (observation, None),
                Sight::Timed(timed) => {
                    let blob = self.evidence.put_samples(&timed.samples)?;
                    let (observation, samples) = timed.observation(blob);
                    (observation, Some(samples))
                }
            };
        let cell = record(draft, observation, gate, planned, (session_digest, session));
        let record = Record::Cell(Box::new(cell));
        let digest = self.evidence.put(&record)?;
        let Record::Cell(cell) = record else { return Ok(()) };
        let verdict = self.judge.judge(&Seen {
            evidence: &digest,
            record: &cell,
            samples: samples.as_ref(),
            session,
        });
        self.evidence.put(&Record::Verdict(Box::new(verdict.clone())))?;
        // A cell that could not be run now may be run later, with the replicates that it has.
        let made = !matches!(cell.observation, Observation::NotRun { .. });
        if self.begun.remove(&planned.key) && made {
            self.evidence.forget(&planned.key)?;
        }
        self.judged(verdict, false);
        Ok(())
    }

    fn judged(&mut self, verdict: VerdictBody, reused: bool) {
        self.event(Event::CellFinished(CellFinished {
            gate: verdict.gate.clone(),
            cell: verdict.cell.clone(),
            provider: verdict.provider.clone(),
            verdict: verdict.verdict,
            required: verdict.required,
            reasons: verdict.reasons.clone(),
            comparisons: verdict.comparisons.clone(),
            evidence: verdict.evidence.clone(),
            reused,
        }));
        self.verdicts.push(verdict);
    }

    fn fail(&mut self, problem: RunError) {
        self.exit = self.exit.worst(problem.exit());
        self.problem.get_or_insert(problem);
        self.stop.request();
    }

    /// What gates ask for that require wins of many cells: each must hold among all of them.
    fn adjusted(&self) -> Exit {
        let mut exit = Exit::Passed;
        for (gate, rule) in &self.rules {
            let of_gate = || self.verdicts.iter().filter(|verdict| verdict.gate == *gate);
            let plain = total(of_gate());
            let held = gate_total(Some(rule), of_gate());
            if plain.verdict == Verdict::Pass && held.verdict != Verdict::Pass {
                let message = format!(
                    "{gate}: every cell passed by itself, but not every win holds among {} cells (Holm, 5 %)",
                    plain.cells
                );
                self.event(Event::Warning { message });
                if plain.required > 0 {
                    exit = exit.worst(held.exit);
                }
            }
        }
        exit
    }

    fn finish(mut self, begun: Instant, spent: bool) -> Outcome {
        let ended = Ended {
            verdicts: &self.verdicts,
            planned: self.planned,
            required: self.required,
            begun: self.begun.len(),
            cause: self.stop.cause(),
            spent,
        };
        self.exit = self.exit.worst(ended.exit(self.adjusted()));
        ended.remarks().into_iter().for_each(|message| self.event(Event::Warning { message }));
        let (left, decides) = (ended.left(), ended.decides());
        let passed = self.verdicts.iter().filter(|v| v.verdict == Verdict::Pass).count();
        self.event(Event::Finished {
            passed: passed as u64,
            not_passed: (self.verdicts.len() - passed) as u64,
            exit: self.exit,
            elapsed_ms: begun.elapsed().as_secs_f64() * 1e3,
        });
        Outcome {
            exit: self.exit,
            gained: self.kept || self.verdicts.len() > self.reused,
            decides,
            verdicts: self.verdicts,
            planned: self.planned,
            reused: self.reused,
            left,
            begun: self.begun.len(),
            session: self.session.map(|(digest, _)| digest),
            problem: self.problem,
        }
    }
}

fn begun(plan: &Plan) -> BTreeSet<Digest> {
    let cells = plan.gates.iter().flat_map(|gate| &gate.cells);
    cells.filter(|cell| !cell.kept.is_empty()).map(|cell| cell.key.clone()).collect()
}

fn rules(plan: &Plan) -> BTreeMap<GateId, TimingRule> {
    let headers = plan.gates.iter().map(|gate| &gate.gate.header);
    headers.filter_map(|header| Some((header.id.clone(), header.timing.clone()?))).collect()
}

/// A draft that says one thing only.
fn plain(context: &Context, place: Place, observation: Observation) -> Draft {
    let gate = &context.plan.gates[place.gate];
    let candidate = &gate.cells[place.cell].candidate;
    Draft {
        place,
        candidate: context.facts(candidate, None),
        baselines: Vec::new(),
        checker: context.facts(&context.options.checker, None),
        posed: PosedFacts::default(),
        attempts: Vec::new(),
        seen: Sight::Plain(observation),
        witness: BTreeMap::new(),
        carried: Vec::new(),
    }
}

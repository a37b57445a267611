//! Baseline gates: candidate and baselines side by side, one turn at a time, on pinned cores.
//!
//! One process per provider and replicate visits every cell of a gate, and on a device every cell of every gate. A cell is
//! written when its last replicate is done; what a worker says of time is checked against the supervisor's clock
//! ([`party`]), and the outputs of timed calls go to the checker ([`cell`]).

mod arms;
mod ceilings;
mod cell;
mod controls;
mod identical;
mod party;

use std::collections::BTreeMap;
use std::rc::Rc;

use proofhouse_schema::device::DeviceKind;
use proofhouse_schema::evidence::{Ending, Finding, Observation};
use proofhouse_schema::gate::{GateKind, TimingRule};
use proofhouse_schema::ids::ProviderId;
use proofhouse_schema::protocol::{Measure, Phase};

use crate::attempt::{Loss, Placement};
use crate::context::{Context, Desk};
use crate::correctness::draw;
use crate::draft::{Draft, Message, Place, PosedFacts, Sight, TimedSight};
use crate::error::RunError;
use cell::{CellState, Round, RoundEnd};
pub(crate) use controls::controls;
use party::Party;

/// Cells of one baseline gate and one candidate.
#[derive(Debug)]
pub(crate) struct Group {
    candidate: ProviderId,
    device: DeviceKind,
    rule: TimingRule,
    baselines: Vec<ProviderId>,
    places: Vec<Place>,
}

/// Groups the baseline cells whose candidate is available.
pub(crate) fn groups(context: &Context, places: &[Place]) -> Vec<Group> {
    let mut groups: BTreeMap<(usize, ProviderId), Group> = BTreeMap::new();
    for place in places {
        let gate = &context.plan.gates[place.gate];
        let header = &gate.gate.header;
        let candidate = gate.cells[place.cell].candidate.clone();
        let (GateKind::Baseline, Some(rule)) = (header.kind, &header.timing) else { continue };
        if context.absent.contains_key(&candidate) || context.no_device(header.device).is_some() {
            continue;
        }
        let group = groups.entry((place.gate, candidate.clone())).or_insert_with(|| Group {
            candidate,
            device: header.device,
            rule: rule.clone(),
            baselines: header.baselines.clone(),
            places: Vec::new(),
        });
        group.places.push(*place);
    }
    groups.into_values().collect()
}

/// Measures wave after wave, alone.
pub(crate) async fn executor(context: Rc<Context>, groups: Vec<Group>) -> Result<(), RunError> {
    let mut desk = Desk::open(&context)?;
    for wave in waves(&groups) {
        if context.stop.requested() {
            break;
        }
        Wave::new(&context, &mut desk, &wave).run().await;
    }
    desk.close().await;
    Ok(())
}

/// Groups that share their processes. On the host each has its own, so that a gate is written as soon as it is done; on a
/// device, where a Python process takes many seconds to start, one process per provider and replicate visits them all.
fn waves(groups: &[Group]) -> Vec<Vec<&Group>> {
    let (host, device): (Vec<&Group>, Vec<&Group>) =
        groups.iter().partition(|group| group.device.is_cpu());
    let mut waves: Vec<Vec<&Group>> = host.into_iter().map(|group| vec![group]).collect();
    if !device.is_empty() {
        waves.push(device);
    }
    waves
}

/// The cores that timed workers are pinned to: the last ones that may be used.
fn pinned_cores(threads: u32) -> Result<Vec<usize>, String> {
    let allowed = rustix::thread::sched_getaffinity(None)
        .map_err(|error| format!("the usable cores are not known: {error}"))?;
    let usable: Vec<usize> =
        (0..rustix::thread::CpuSet::MAX_CPU).filter(|core| allowed.is_set(*core)).collect();
    let wanted = threads.max(1) as usize;
    if usable.len() < wanted {
        return Err(format!("{wanted} threads need as many cores, {} may be used", usable.len()));
    }
    Ok(usable[usable.len() - wanted..].to_vec())
}

/// A request of the profile's size that plants, publishes and renews nothing; the place within a block is the caller's.
fn plain_request(context: &Context, rule: &TimingRule, name: &str, phase: Phase) -> Measure {
    let profile = &context.options.profile;
    Measure {
        case: name.to_owned(),
        phase,
        block: 0,
        position: 0,
        samples: profile.samples,
        min_sample_ns: profile.min_sample_us * 1e3,
        cache: rule.contract.cache,
        launch: rule.contract.launch,
        footprint: 0,
        publish: false,
        slowdown: 0.0,
        refresh: false,
    }
}

/// Live processes of one replicate, by provider.
type Pool = BTreeMap<ProviderId, Party>;

/// Groups whose cells the same processes visit.
struct Wave<'a> {
    context: &'a Rc<Context>,
    desk: &'a mut Desk,
    groups: Vec<GroupRun<'a>>,
    pool: Pool,
}

impl<'a> Wave<'a> {
    fn new(context: &'a Rc<Context>, desk: &'a mut Desk, groups: &[&'a Group]) -> Self {
        let groups: Vec<GroupRun<'a>> =
            groups.iter().map(|group| GroupRun::new(context, group)).collect();
        let pool = groups.iter().flat_map(|group| group.ids.clone());
        let pool = pool.map(|id| (id.clone(), Party::new(id))).collect();
        Self { context, desk, groups, pool }
    }

    async fn run(mut self) {
        for replicate in 0..self.context.options.profile.replicates {
            self.replicate(replicate).await;
            if self.context.stop.requested() {
                break;
            }
        }
        let stopped = self.context.stop.requested();
        for group in self.groups {
            group.write(&self.pool, self.desk, stopped);
        }
    }

    /// One replicate: fresh processes, every cell in turn.
    async fn replicate(&mut self, replicate: u32) {
        for group in &mut self.groups {
            group.replicate(replicate, &mut self.pool, self.desk).await;
        }
        let stopped = self.context.stop.requested();
        for party in self.pool.values_mut() {
            let late = party.close(stopped).await;
            let ended = late.map(|loss| {
                self.context.send(Message::Warning(format!("{}: {loss}", party.id)));
                Finding { code: "bad-end".to_owned(), detail: loss.to_string() }
            });
            let findings: Vec<Finding> =
                ended.into_iter().chain(party.fallbacks(self.context)).collect();
            let cells = self.groups.iter_mut().filter(|group| group.ids.contains(&party.id));
            for state in cells.flat_map(|group| &mut group.cells) {
                findings.iter().for_each(|f| state.distrust(&party.id, replicate, f));
            }
        }
    }
}

struct GroupRun<'a> {
    context: &'a Rc<Context>,
    group: &'a Group,
    cells: Vec<CellState>,
    /// The candidate, then the baselines that are available.
    ids: Vec<ProviderId>,
    absent: BTreeMap<ProviderId, String>,
    largest: usize,
}

impl<'a> GroupRun<'a> {
    fn new(context: &'a Rc<Context>, group: &'a Group) -> Self {
        let cells: Vec<CellState> =
            group.places.iter().map(|place| CellState::new(*place)).collect();
        let size = |state: &CellState| {
            let dims = context.case(state.place).dims.values();
            dims.fold(1_u64, |product, dim| product.saturating_mul(*dim))
        };
        let largest = (0..cells.len()).max_by_key(|index| size(&cells[*index])).unwrap_or(0);
        let absent: BTreeMap<_, _> = group
            .baselines
            .iter()
            .filter_map(|id| Some((id.clone(), context.absent.get(id)?.clone())))
            .collect();
        let present = group.baselines.iter().filter(|id| !absent.contains_key(id));
        let ids = std::iter::once(&group.candidate).chain(present).cloned().collect();
        Self { context, group, cells, ids, absent, largest }
    }

    /// Writes what the cells came to; of an interrupted run only those that are over.
    fn write(mut self, pool: &Pool, desk: &Desk, stopped: bool) {
        for state in std::mem::take(&mut self.cells) {
            if !stopped || state.over.is_some() {
                let draft = self.draft(state, pool, desk);
                self.context.done(draft);
            }
        }
    }

    /// One replicate: every cell in turn.
    async fn replicate(&mut self, replicate: u32, pool: &mut Pool, desk: &mut Desk) {
        let threads = self.group.rule.contract.threads;
        let cores = match (self.group.device.is_cpu(), pinned_cores(threads)) {
            (false, _) => None,
            (true, Ok(cores)) => Some(cores),
            (true, Err(reason)) => {
                let not_run = Observation::NotRun { reason };
                self.cells.iter_mut().for_each(|state| state.over = Some(not_run.clone()));
                return;
            }
        };
        let device = self.group.device;
        let placement = Placement { replicate, cores, threads, device, wrapper: Vec::new() };
        // In the gate's order: the candidate first.
        let mut parties: Vec<Party> = self.ids.iter().filter_map(|id| pool.remove(id)).collect();
        if !self.group.device.is_cpu() {
            // Processes are shared by gates, and losses are counted gate by gate.
            parties.iter_mut().for_each(|party| party.losses = 0);
        }
        for index in 0..self.cells.len() {
            if self.context.stop.requested() {
                break;
            }
            if self.cells[index].over.is_some() {
                continue;
            }
            if let Some(reason) = self.context.no_device(self.group.device) {
                self.cells[index].over = Some(Observation::NotRun { reason });
                continue;
            }
            if replicate == 0 {
                self.context.started(self.cells[index].place);
            }
            self.visit(index, &placement, &mut parties, desk).await;
        }
        pool.extend(parties.into_iter().map(|party| (party.id.clone(), party)));
    }

    async fn visit(
        &mut self,
        index: usize,
        placement: &Placement,
        parties: &mut [Party],
        desk: &mut Desk,
    ) {
        let context = self.context;
        let place = self.cells[index].place;
        let limit = context.options.limits.losses;
        if parties[0].losses >= limit {
            self.cells[index].over = Some(Observation::Errored {
                ending: Ending::NotStarted,
                provider: self.group.candidate.clone(),
                detail: format!(
                    "gave-up: {} lost {limit} processes in this gate",
                    self.group.candidate
                ),
            });
            return;
        }
        for party in parties.iter_mut() {
            let ready = party.ready(context, placement).await;
            let state = &mut self.cells[index];
            if ready.is_err_and(|loss| state.lost(&party.id, &self.group.candidate, &loss)) {
                return;
            }
        }
        if let Err(fault) = desk.ready(context).await {
            self.cells[index].over = Some(fault.observation(&context.options.checker));
            self.cells[index].attempts.extend(desk.take_lost());
            return;
        }
        let seed = draw(context.options.seed, &format!("{place:?} {}", placement.replicate));
        let round = Round {
            context,
            desk,
            rule: &self.group.rule,
            candidate: &self.group.candidate,
            replicate: placement.replicate,
            seed,
            identical: index == self.largest && placement.replicate == 0,
        };
        let end = round.run(&mut self.cells[index], parties).await;
        self.look_at_the_device(index, placement.replicate, parties);
        match end {
            RoundEnd::Done | RoundEnd::Interrupted => {}
            RoundEnd::Checker(fault) => {
                self.cells[index].over = Some(fault.observation(&context.options.checker));
                if let crate::checker::CheckerFault::Lost(loss) = &fault {
                    desk.lose(loss).await;
                    self.cells[index].attempts.extend(desk.take_lost());
                }
            }
        }
    }

    /// Other processes on the device make a cell worthless (P19); a lost worker makes the device suspect.
    fn look_at_the_device(&mut self, index: usize, replicate: u32, parties: &[Party]) {
        let (context, device) = (self.context, self.group.device);
        if parties.iter().any(|party| party.worker.is_none()) {
            context.health.suspect(device);
        }
        if let Some(finding) = context.health.strangers(context, device) {
            for party in parties {
                self.cells[index].distrust(&party.id, replicate, &finding);
            }
        }
    }

    fn draft(&self, state: CellState, pool: &Pool, desk: &Desk) -> Draft {
        let context = self.context;
        let hello = |id: &ProviderId| pool.get(id).and_then(|party| party.hello.clone());
        let case = context.case(state.place);
        let parties: Vec<&Party> = self.ids.iter().filter_map(|id| pool.get(id)).collect();
        let attempts: Vec<_> = parties.iter().flat_map(|p| p.attempts.iter().cloned()).collect();
        let mut absent = self.absent.clone();
        absent.extend(state.absent.clone());
        let taking = |id: &&ProviderId| !absent.contains_key(*id);
        let baselines: Vec<_> = self.group.baselines.iter().filter(taking).collect();
        let seen = match state.over {
            Some(observation) => Sight::Plain(observation),
            None => Sight::Timed(Box::new(TimedSight {
                arms: arms::arms(&state.turns, &state.distrusted, &absent),
                samples: arms::samples(&state.turns, &absent),
                timed: state.timed,
                absent: absent.clone(),
                qualification: context.qualification(&case.operator, case.dtype),
            })),
        };
        let witnesses = parties.iter().filter_map(|p| Some((p.id.clone(), p.witness.clone()?)));
        Draft {
            place: state.place,
            candidate: context.facts(&self.group.candidate, hello(&self.group.candidate).as_ref()),
            baselines: baselines.iter().map(|id| context.facts(id, hello(id).as_ref())).collect(),
            checker: context.facts(&context.options.checker, desk.hello()),
            posed: state.posed.as_ref().map(PosedFacts::from).unwrap_or_default(),
            attempts: attempts.into_iter().chain(state.attempts).collect(),
            seen,
            witness: witnesses.collect(),
        }
    }
}

/// Whether a loss ends the run's part in the cell without a record.
fn interrupted(loss: &Loss) -> bool {
    *loss == Loss::Interrupted
}

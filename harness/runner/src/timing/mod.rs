//! Baseline gates: candidate and baselines side by side, one turn at a time, on pinned cores.
//!
//! One process per provider and replicate visits every cell of the gate. A cell is written when its last replicate is
//! done; what a worker says of time is checked against the supervisor's clock ([`party`]), and the outputs of timed
//! calls go to the checker ([`cell`]).

mod arms;
mod ceilings;
mod cell;
mod controls;
mod identical;
mod party;

use std::collections::BTreeMap;
use std::rc::Rc;

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
        if context.absent.contains_key(&candidate) {
            continue;
        }
        let group = groups.entry((place.gate, candidate.clone())).or_insert_with(|| Group {
            candidate,
            rule: rule.clone(),
            baselines: header.baselines.clone(),
            places: Vec::new(),
        });
        group.places.push(*place);
    }
    groups.into_values().collect()
}

/// Measures group after group, alone.
pub(crate) async fn executor(context: Rc<Context>, groups: Vec<Group>) -> Result<(), RunError> {
    let mut desk = Desk::open(&context)?;
    for group in &groups {
        if context.stop.requested() {
            break;
        }
        GroupRun::new(&context, &mut desk, group).run().await;
    }
    desk.close().await;
    Ok(())
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

struct GroupRun<'a> {
    context: &'a Rc<Context>,
    desk: &'a mut Desk,
    group: &'a Group,
    cells: Vec<CellState>,
    parties: Vec<Party>,
    absent: BTreeMap<ProviderId, String>,
    largest: usize,
}

impl<'a> GroupRun<'a> {
    fn new(context: &'a Rc<Context>, desk: &'a mut Desk, group: &'a Group) -> Self {
        let cells: Vec<CellState> =
            group.places.iter().map(|place| CellState::new(*place)).collect();
        let size = |state: &CellState| {
            let dims = context.case(state.place).dims.values();
            dims.fold(1_u64, |product, dim| product.saturating_mul(*dim))
        };
        let largest = (0..cells.len()).max_by_key(|index| size(&cells[*index])).unwrap_or(0);
        let absent = group
            .baselines
            .iter()
            .filter_map(|id| Some((id.clone(), context.absent.get(id)?.clone())))
            .collect();
        Self { context, desk, group, cells, parties: Vec::new(), absent, largest }
    }

    async fn run(mut self) {
        let cores = match pinned_cores(self.group.rule.contract.threads) {
            Ok(cores) => cores,
            Err(reason) => return self.all(&Observation::NotRun { reason }),
        };
        let present = self.group.baselines.iter().filter(|id| !self.absent.contains_key(id));
        let ids: Vec<ProviderId> =
            std::iter::once(&self.group.candidate).chain(present).cloned().collect();
        self.parties = ids.into_iter().map(Party::new).collect();
        for replicate in 0..self.context.options.profile.replicates {
            self.replicate(replicate, &cores).await;
            if self.context.stop.requested() {
                break;
            }
        }
        let stopped = self.context.stop.requested();
        for state in std::mem::take(&mut self.cells) {
            if !stopped || state.over.is_some() {
                let draft = self.draft(state);
                self.context.done(draft);
            }
        }
    }

    fn all(self, observation: &Observation) {
        for place in &self.group.places {
            let mut state = CellState::new(*place);
            state.over = Some(observation.clone());
            let draft = self.draft(state);
            self.context.done(draft);
        }
    }

    /// One replicate: fresh processes, every cell in turn.
    async fn replicate(&mut self, replicate: u32, cores: &[usize]) {
        let placement = Placement {
            replicate,
            cores: Some(cores.to_vec()),
            threads: self.group.rule.contract.threads,
        };
        for index in 0..self.cells.len() {
            if self.context.stop.requested() {
                break;
            }
            if self.cells[index].over.is_some() {
                continue;
            }
            if replicate == 0 {
                self.context.started(self.cells[index].place);
            }
            self.visit(index, &placement).await;
        }
        let stopped = self.context.stop.requested();
        for party in &mut self.parties {
            let late = party.close(stopped).await;
            if let Some(loss) = late {
                self.context.send(Message::Warning(format!("{}: {loss}", party.id)));
                let ended = Finding { code: "bad-end".to_owned(), detail: loss.to_string() };
                for state in &mut self.cells {
                    state.distrust(&party.id, replicate, &ended);
                }
            }
            for state in &mut self.cells {
                let fallback = party.fallbacks(self.context);
                fallback.iter().for_each(|finding| state.distrust(&party.id, replicate, finding));
            }
        }
    }

    async fn visit(&mut self, index: usize, placement: &Placement) {
        let context = self.context;
        let place = self.cells[index].place;
        let limit = context.options.limits.losses;
        if self.parties[0].losses >= limit {
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
        for party in &mut self.parties {
            let ready = party.ready(context, placement).await;
            let state = &mut self.cells[index];
            if ready.is_err_and(|loss| state.lost(&party.id, &self.group.candidate, &loss)) {
                return;
            }
        }
        if let Err(fault) = self.desk.ready(context).await {
            self.cells[index].over = Some(fault.observation(&context.options.checker));
            self.cells[index].attempts.extend(self.desk.take_lost());
            return;
        }
        let seed = draw(context.options.seed, &format!("{place:?} {}", placement.replicate));
        let round = Round {
            context,
            desk: self.desk,
            rule: &self.group.rule,
            candidate: &self.group.candidate,
            replicate: placement.replicate,
            seed,
            identical: index == self.largest && placement.replicate == 0,
        };
        let end = round.run(&mut self.cells[index], &mut self.parties).await;
        match end {
            RoundEnd::Done | RoundEnd::Interrupted => {}
            RoundEnd::Checker(fault) => {
                self.cells[index].over = Some(fault.observation(&context.options.checker));
                if let crate::checker::CheckerFault::Lost(loss) = &fault {
                    self.desk.lose(loss).await;
                    self.cells[index].attempts.extend(self.desk.take_lost());
                }
            }
        }
    }

    fn draft(&self, state: CellState) -> Draft {
        let context = self.context;
        let hello = |id: &ProviderId| {
            self.parties.iter().find(|party| party.id == *id).and_then(|party| party.hello.clone())
        };
        let case = context.case(state.place);
        let attempts: Vec<_> =
            self.parties.iter().flat_map(|p| p.attempts.iter().cloned()).collect();
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
        let witnesses =
            self.parties.iter().filter_map(|p| Some((p.id.clone(), p.witness.clone()?)));
        Draft {
            place: state.place,
            candidate: context.facts(&self.group.candidate, hello(&self.group.candidate).as_ref()),
            baselines: baselines.iter().map(|id| context.facts(id, hello(id).as_ref())).collect(),
            checker: context.facts(&context.options.checker, self.desk.hello()),
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

//! One gate and one candidate, replicate by replicate, cell by cell.

use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::{Duration, Instant};

use proofhouse_schema::device::DeviceKind;
use proofhouse_schema::evidence::{Ending, Finding, Observation};
use proofhouse_schema::ids::ProviderId;
use proofhouse_schema::timing::Launch;

use super::cell::{Round, RoundEnd};
use super::party::Party;
use super::slice::{Made, Slice};
use super::state::CellState;
use super::{Group, Pool, arms, pinned_cores};
use crate::attempt::Placement;
use crate::budget::Pace;
use crate::context::{Context, Desk};
use crate::correctness::draw;
use crate::draft::{Draft, Message, Sight, TimedSight};

/// One gate and one candidate with what is known of its cells.
pub(super) struct GroupRun<'a> {
    context: &'a Rc<Context>,
    group: &'a Group,
    pub(super) cells: Vec<CellState>,
    /// The candidate, then the baselines that are available.
    pub(super) ids: Vec<ProviderId>,
    absent: BTreeMap<ProviderId, String>,
    largest: usize,
    /// Cells that this replicate's processes visited.
    pub(super) visited: Vec<usize>,
    /// How long the longest visit took.
    longest: Duration,
}

/// Whether a provider's calls can remember results for inputs that they have seen. A replay of a graph runs the kernels
/// that were captured, whatever the inputs hold; there, contents that were never seen before the published turn and the
/// count of kernels are the witnesses.
fn remembers(group: &Group) -> bool {
    group.rule.contract.launch == Launch::Eager
}

/// How a visit of a cell ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Visit {
    /// The cell's state says how.
    Done,
    /// The time budget did not suffice.
    Late,
}

impl Visit {
    fn is_late(self) -> bool {
        self == Visit::Late
    }
}

impl<'a> GroupRun<'a> {
    pub(super) fn new(context: &'a Rc<Context>, group: &'a Group) -> Self {
        let mut cells: Vec<CellState> =
            group.places.iter().map(|place| CellState::new(*place)).collect();
        let size = |index: &usize| context.case(cells[*index].place).size();
        let largest = (0..cells.len()).max_by_key(size).unwrap_or(0);
        let absent: BTreeMap<_, _> = group
            .baselines
            .iter()
            .filter_map(|id| Some((id.clone(), context.absent.get(id)?.clone())))
            .collect();
        let present = group.baselines.iter().filter(|id| !absent.contains_key(id));
        let ids: Vec<ProviderId> =
            std::iter::once(&group.candidate).chain(present).cloned().collect();
        for (index, state) in cells.iter_mut().enumerate() {
            let planned = &context.plan.gates[state.place.gate].cells[state.place.cell];
            let looks = remembers(group) && index == largest;
            let looked = |slice: &&Slice| !looks || slice.replicate != 0 || slice.identical;
            let kept = planned.kept.iter().filter(|slice| slice.fits(&context.options, &ids));
            kept.filter(looked).for_each(|slice| state.restore(slice));
        }
        let (visited, longest) = (Vec::new(), Duration::ZERO);
        Self { context, group, cells, ids, absent, largest, visited, longest }
    }

    pub(super) fn device(&self) -> DeviceKind {
        self.group.device
    }

    /// What a process left behind in the cells that it visited.
    pub(super) fn closed(&mut self, party: &Party, replicate: u32, findings: &[Finding]) {
        if !self.ids.contains(&party.id) {
            return;
        }
        for index in &self.visited {
            let state = &mut self.cells[*index];
            findings.iter().for_each(|finding| state.distrust(&party.id, replicate, finding));
            let part = state.part(replicate);
            part.attempts
                .extend(party.attempts.iter().filter(|a| a.replicate == replicate).cloned());
            part.hellos.extend(party.hello.clone().map(|hello| (party.id.clone(), hello)));
            part.witness.extend(party.witness.clone().map(|seen| (party.id.clone(), seen)));
        }
    }

    /// Takes the replicate of the visited cells as whole, and keeps it of those that wait for others. Of an interrupted
    /// replicate nothing is whole.
    pub(super) fn settle(&mut self, replicate: u32, stopped: bool) {
        let context = self.context;
        for index in std::mem::take(&mut self.visited) {
            let state = &mut self.cells[index];
            if stopped || state.over.is_some() {
                continue;
            }
            state.done.insert(replicate);
            if state.lacks(context.options.profile.replicates).is_some() {
                let planned = &context.plan.gates[state.place.gate].cells[state.place.cell];
                let made = Made::now(&context.options.facts, &self.ids);
                let identical = self.looks_for_memory(index, replicate);
                context.keep(self.cells[index].slice(replicate, &planned.key, made, identical));
            }
        }
    }

    /// The order in which cells are visited: the gate's, or under a time budget first those of which it is known how long
    /// they take, then small ones, so that a cell which the budget does not hold keeps no other from it.
    fn order(&self) -> Vec<usize> {
        let mut order: Vec<usize> = (0..self.cells.len()).collect();
        if self.context.budget.is_limited() {
            order.sort_by_key(|index| {
                let cell = &self.cells[*index];
                (cell.took.is_none(), self.context.case(cell.place).size())
            });
        }
        order
    }

    /// How long a visit of a cell may take, by the last one, or by the longest of another cell.
    pub(super) fn expected(&self, index: usize) -> Duration {
        self.cells[index].took.unwrap_or(self.longest)
    }

    /// Whether results that are remembered are looked for in a cell's replicate: in the first of the largest cell.
    fn looks_for_memory(&self, index: usize, replicate: u32) -> bool {
        remembers(self.group) && index == self.largest && replicate == 0
    }

    /// One replicate: every cell that lacks it in turn, as far as the time budget goes.
    pub(super) async fn replicate(
        &mut self,
        replicate: u32,
        pool: &mut Pool,
        desk: &mut Desk,
        closing: Duration,
    ) {
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
        for index in self.order() {
            if self.context.stop.requested() {
                break;
            }
            if !self.cells[index].is_open() || self.cells[index].done.contains(&replicate) {
                continue;
            }
            if !self.context.budget.fits(self.expected(index) + closing) {
                continue;
            }
            if let Some(reason) = self.context.no_device(self.group.device) {
                self.cells[index].over = Some(Observation::NotRun { reason });
                continue;
            }
            if !std::mem::replace(&mut self.cells[index].started, true) {
                self.context.started(self.cells[index].place);
            }
            let begun = Instant::now();
            self.visited.push(index);
            if self.visit(index, &placement, &mut parties, desk, closing).await.is_late() {
                // The next run measures it whole.
                self.visited.pop();
                break;
            }
            let took = begun.elapsed();
            self.cells[index].took = Some(took);
            self.longest = self.longest.max(took);
        }
        pool.extend(parties.into_iter().map(|party| (party.id.clone(), party)));
    }

    async fn visit(
        &mut self,
        index: usize,
        placement: &Placement,
        parties: &mut [Party],
        desk: &mut Desk,
        closing: Duration,
    ) -> Visit {
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
            return Visit::Done;
        }
        for party in parties.iter_mut() {
            let ready = party.ready(context, placement).await;
            let state = &mut self.cells[index];
            if ready.is_err_and(|loss| state.lost(&party.id, &self.group.candidate, &loss)) {
                return Visit::Done;
            }
        }
        self.compare_with_earlier(index, parties);
        if let Err(fault) = desk.ready(context).await {
            if !fault.is_interrupt() {
                self.cells[index].over = Some(fault.observation(&context.options.checker));
                self.cells[index].attempts.extend(desk.take_lost());
            }
            return Visit::Done;
        }
        let seed = draw(context.options.seed, &format!("{place:?} {}", placement.replicate));
        let round = Round {
            context,
            desk,
            rule: &self.group.rule,
            candidate: &self.group.candidate,
            replicate: placement.replicate,
            seed,
            pace: Pace::new(closing),
            identical: self.looks_for_memory(index, placement.replicate),
        };
        let end = round.run(&mut self.cells[index], parties).await;
        self.look_at_the_device(index, placement.replicate, parties);
        match end {
            RoundEnd::Done | RoundEnd::Interrupted => {}
            RoundEnd::Late => return Visit::Late,
            RoundEnd::Checker(fault) => {
                self.cells[index].over = Some(fault.observation(&context.options.checker));
                if let crate::checker::CheckerFault::Lost(loss) = &fault {
                    desk.lose(loss).await;
                    self.cells[index].attempts.extend(desk.take_lost());
                }
            }
        }
        Visit::Done
    }

    /// Replicates that were kept stand only beside processes that say the same of themselves.
    fn compare_with_earlier(&mut self, index: usize, parties: &[Party]) {
        let state = &mut self.cells[index];
        let Some(other) = parties.iter().find(|party| !state.agrees(party)) else { return };
        state.forget_earlier();
        self.context.send(Message::Warning(format!(
            "{} is not what it was when replicates were kept: they are measured again",
            other.id
        )));
    }

    /// Other processes on the device make a cell worthless (P19), and so do workers on another one (P20); a lost worker
    /// makes the device suspect.
    fn look_at_the_device(&mut self, index: usize, replicate: u32, parties: &[Party]) {
        let (context, device) = (self.context, self.group.device);
        if parties.iter().any(|party| party.worker.is_none()) {
            context.health.suspect(device);
        }
        for finding in context.health.strangers(context, device) {
            for party in parties {
                self.cells[index].distrust(&party.id, replicate, &finding);
            }
        }
    }

    pub(super) fn draft(&mut self, index: usize, desk: &Desk) -> Draft {
        let context = self.context;
        self.cells[index].written = true;
        let state = &self.cells[index];
        let case = context.case(state.place);
        let mut absent = self.absent.clone();
        absent.extend(state.absent.clone());
        let taking = |id: &&ProviderId| !absent.contains_key(*id);
        let baselines: Vec<_> = self.group.baselines.iter().filter(taking).collect();
        let seen = match &state.over {
            Some(observation) => Sight::Plain(observation.clone()),
            None => Sight::Timed(Box::new(TimedSight {
                arms: arms::arms(&state.turns, &state.distrusted(), &absent),
                samples: arms::samples(&state.turns, &absent),
                timed: state.timed(),
                absent: absent.clone(),
                qualification: context.qualification(&case.operator, case.dtype),
            })),
        };
        let parts = state.parts.values();
        let attempts = parts.clone().flat_map(|part| part.attempts.iter().cloned());
        let candidate = &self.group.candidate;
        Draft {
            place: state.place,
            candidate: context.facts(candidate, state.hello(candidate)),
            baselines: baselines.iter().map(|id| context.facts(id, state.hello(id))).collect(),
            checker: context.facts(&context.options.checker, desk.hello()),
            posed: state.posed.clone().unwrap_or_default(),
            attempts: attempts.chain(state.attempts.iter().cloned()).collect(),
            seen,
            witness: parts.flat_map(|part| part.witness.clone()).collect(),
            carried: state.carried(),
        }
    }
}

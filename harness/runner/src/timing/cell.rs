//! One cell in one replicate: pose, prepare, warm, blocks of turns, and the outputs of timed calls.

use std::rc::Rc;
use std::time::Instant;

use proofhouse_gate::stats::{balanced_blocks, block_orders};
use proofhouse_schema::evidence::{Observation, Outcome, Purpose};
use proofhouse_schema::gate::{CaseSpec, TimingRule};
use proofhouse_schema::ids::ProviderId;
use proofhouse_schema::protocol::{Measure, Phase, Poison, Posed, Request};

use super::arms::TakenTurn;
use super::identical::{Memory, remembers};
use super::party::{NoTurn, Party};
use super::state::CellState;
use super::{interrupted, plain_request};
use crate::attempt::{Answer, Loss};
use crate::budget::Pace;
use crate::checker::{CheckerFault, PoseOf};
use crate::context::{Context, Desk};
use crate::correctness::{blank, missing_kernels, prepare};
use crate::draft::{Message, Place, PosedFacts};
use crate::provider::declines;

/// Warm-up samples that a worker may take at most.
const WARM_SAMPLES: u32 = 256;

/// How a round ended.
pub(super) enum RoundEnd {
    /// All that could be measured is.
    Done,
    /// The run was interrupted.
    Interrupted,
    /// The time budget is used up but for what ending the processes takes.
    Late,
    /// The checker failed.
    Checker(CheckerFault),
}

/// Why a round stops here.
enum Halt {
    /// The cell is over; its state says how.
    Over,
    Interrupted,
    Late,
    Checker(CheckerFault),
}

impl From<CheckerFault> for Halt {
    fn from(fault: CheckerFault) -> Self {
        match fault {
            CheckerFault::Lost(Loss::Interrupted) => Halt::Interrupted,
            fault => Halt::Checker(fault),
        }
    }
}

/// One cell in one replicate.
pub(super) struct Round<'a> {
    pub(super) context: &'a Rc<Context>,
    pub(super) desk: &'a mut Desk,
    pub(super) rule: &'a TimingRule,
    pub(super) candidate: &'a ProviderId,
    pub(super) replicate: u32,
    pub(super) seed: u64,
    /// What of the time budget must be left. A step is a warm-up or a turn, with what is asked of the checker for it.
    pub(super) pace: Pace,
    /// Whether the check for remembered results is made here.
    pub(super) identical: bool,
}

/// How a round ends, by what halted it and what forgetting the cell met. A cell that is over is not left to another run,
/// and one that was interrupted is nobody's fault.
fn ended(end: Result<(), Halt>, forgotten: Result<(), Halt>, over: bool) -> RoundEnd {
    match (end, forgotten) {
        (Err(Halt::Interrupted), _) | (_, Err(Halt::Interrupted)) => RoundEnd::Interrupted,
        (Err(Halt::Checker(fault)), _) | (_, Err(Halt::Checker(fault))) => RoundEnd::Checker(fault),
        (Err(Halt::Late), _) if !over => RoundEnd::Late,
        _ => RoundEnd::Done,
    }
}

impl Round<'_> {
    pub(super) async fn run(mut self, state: &mut CellState, parties: &mut [Party]) -> RoundEnd {
        let case = self.context.case(state.place).clone();
        let end = self.measure(&case, state, parties).await;
        let forgotten = self.forget(state, parties).await;
        ended(end, forgotten.map_err(Halt::from), state.over.is_some())
    }

    async fn measure(
        &mut self,
        case: &CaseSpec,
        state: &mut CellState,
        parties: &mut [Party],
    ) -> Result<(), Halt> {
        // Memory is handed out in this order, so that no provider always gets the same part of it.
        let first = self.replicate as usize % parties.len().max(1);
        let (later, sooner) = parties.split_at_mut(first);
        for party in sooner.iter_mut().chain(later) {
            if state.absent.contains_key(&party.id) {
                continue;
            }
            self.in_time()?;
            let begun = Instant::now();
            let warmed = self.bind(case, state, party).await;
            self.pace.took(begun.elapsed());
            self.settle(state, party, warmed).await?;
        }
        if self.leave_out_spoiled(state) {
            // The candidate has no turn; what was found is in the record.
            return Ok(());
        }
        let taking: Vec<usize> =
            (0..parties.len()).filter(|i| !state.absent.contains_key(&parties[*i].id)).collect();
        if taking.len() < 2 {
            // Nobody to compare with: the judge says so from the absent baselines.
            return Ok(());
        }
        let blocks = balanced_blocks(taking.len(), self.context.options.profile.blocks as usize);
        let Ok(orders) = block_orders(taking.len(), blocks, self.seed) else { return Ok(()) };
        let published = (self.seed >> 8) as usize % blocks;
        for (block, order) in orders.iter().enumerate() {
            for (position, symbol) in order.iter().enumerate() {
                let party = &mut parties[taking[*symbol]];
                if state.absent.contains_key(&party.id) {
                    continue;
                }
                self.in_time()?;
                let at = At {
                    block: block as u32,
                    position: position as u32,
                    publish: block == published,
                };
                let begun = Instant::now();
                let turn = self.turn(case, state, party, at).await;
                self.pace.took(begun.elapsed());
                self.settle(state, party, turn).await?;
            }
        }
        for index in &taking {
            self.check_kernels(state, &parties[*index]);
        }
        if self.identical {
            for index in taking {
                let party = &mut parties[index];
                if !state.absent.contains_key(&party.id) {
                    self.in_time()?;
                    let checked = self.identical_inputs(case, state, party).await;
                    self.settle(state, party, checked).await?;
                }
            }
        }
        Ok(())
    }

    /// Halts where the time budget leaves no room for another step and for ending in peace: what other cells gave is kept
    /// then. A step that is cut off at the limit would cost all of it.
    fn in_time(&self) -> Result<(), Halt> {
        if self.context.budget.allows(self.pace.next()) { Ok(()) } else { Err(Halt::Late) }
    }

    /// Without a warm-up that can be trusted there are no turns: baselines take no part then. True when it is the
    /// candidate's.
    fn leave_out_spoiled(&self, state: &mut CellState) -> bool {
        let mut own = false;
        let warm = state.turns.iter().filter(|taken| taken.replicate == self.replicate);
        let spoiled: Vec<_> =
            warm.filter_map(|t| Some((t.provider.clone(), spoiled(t)?))).collect();
        for (provider, why) in spoiled {
            if provider == *self.candidate {
                own = true;
            } else {
                state.absent.insert(provider, why);
            }
        }
        own
    }

    /// Replayed kernels of which none is one that `provider.toml` promises are a silent fallback (P40).
    fn check_kernels(&self, state: &mut CellState, party: &Party) {
        let turns = state.turns.iter().filter(|taken| {
            taken.replicate == self.replicate
                && taken.provider == party.id
                && !taken.turn.measured.kernels.is_empty()
        });
        let expected = self.context.expected_kernels(&party.id);
        let missing =
            turns.last().and_then(|t| missing_kernels(&expected, &t.turn.measured.kernels));
        if let Some(finding) = missing {
            state.distrust(&party.id, self.replicate, &finding);
        }
    }

    /// Turns what befell a party into the cell's state, or stops the round.
    async fn settle(
        &mut self,
        state: &mut CellState,
        party: &mut Party,
        step: Result<(), Trouble>,
    ) -> Result<(), Halt> {
        match step {
            Ok(()) => Ok(()),
            Err(Trouble::Checker(fault)) => Err(fault.into()),
            Err(Trouble::Lost(loss)) => {
                let over = state.lost(&party.id, self.candidate, &loss);
                party.lose(&loss).await;
                match (interrupted(&loss), over) {
                    (true, _) => Err(Halt::Interrupted),
                    (false, true) => Err(Halt::Over),
                    (false, false) => Ok(()),
                }
            }
            Err(Trouble::Declined(reason)) if party.id == *self.candidate => {
                state.over = Some(Observation::Unsupported { reason });
                Err(Halt::Over)
            }
            Err(Trouble::Failed(detail)) if party.id == *self.candidate => {
                state.over = Some(Observation::Errored {
                    ending: proofhouse_schema::evidence::Ending::Protocol,
                    provider: party.id.clone(),
                    detail,
                });
                Err(Halt::Over)
            }
            Err(Trouble::Declined(reason) | Trouble::Failed(reason)) => {
                state.absent.insert(party.id.clone(), reason);
                Ok(())
            }
        }
    }

    /// The case's name for a provider, on both sides.
    fn name(&self, place: Place, id: &ProviderId) -> String {
        format!("t{}-{}-{id}", place.gate, place.cell)
    }

    async fn pose(
        &mut self,
        case: &CaseSpec,
        state: &mut CellState,
        id: &ProviderId,
        contents: u32,
    ) -> Result<Posed, Trouble> {
        let name = self.name(state.place, id);
        let (checker, scratch) = self.desk.parts()?;
        let file = scratch.file(&name);
        let pose =
            PoseOf { case: &name, spec: case, file: &file, poison: Poison::A, contents, row: None };
        let posed = checker.pose(pose).await?;
        let facts = PosedFacts::from(&posed);
        // The contents of number 0 are what the record tells of; they are the same in every replicate.
        let differs = state.posed.as_ref().is_some_and(|known| contents == 0 && *known != facts);
        if differs && state.forget_earlier() {
            let why = format!(
                "the inputs of {} differ from those of replicates that were kept",
                case.operator
            );
            self.context.send(Message::Warning(format!("{why}: they are measured again")));
        }
        state.posed.get_or_insert(facts);
        Ok(posed)
    }

    /// Pose, prepare, warm up.
    async fn bind(
        &mut self,
        case: &CaseSpec,
        state: &mut CellState,
        party: &mut Party,
    ) -> Result<(), Trouble> {
        let hello = party.live()?.hello();
        if let Some(reason) = declines(hello, case) {
            return Err(Trouble::Declined(reason));
        }
        if !hello.capabilities.measure {
            return Err(Trouble::Declined(
                "it does not measure: the native timer is missing".to_owned(),
            ));
        }
        let posed = self.pose(case, state, &party.id, 0).await?;
        let name = self.name(state.place, &party.id);
        let request = prepare(&name, case, posed);
        match party.live()?.ask_case(request, &name).await? {
            Answer::Done => {}
            Answer::Unsupported(reason) => return Err(Trouble::Declined(reason)),
            Answer::Refused(error) => {
                let detail =
                    format!("it refused a valid case: {} of {}", error.kind, error.argument);
                return Err(Trouble::Failed(detail));
            }
            Answer::Failed(detail) => return Err(Trouble::Failed(detail)),
        }
        let warm = Measure { samples: WARM_SAMPLES, ..self.request(&name, Phase::Warm) };
        self.take(state, party, warm).await
    }

    fn request(&self, name: &str, phase: Phase) -> Measure {
        plain_request(self.context, self.rule, name, phase)
    }

    async fn take(
        &mut self,
        state: &mut CellState,
        party: &mut Party,
        request: Measure,
    ) -> Result<(), Trouble> {
        let published = request.publish || request.refresh;
        let turn = party.measure(request).await?;
        let (provider, replicate) = (party.id.clone(), self.replicate);
        state.turns.push(TakenTurn { provider, replicate, turn, published });
        Ok(())
    }

    /// One turn. In the drawn block the buffers are renewed first, so that a result which was remembered by address
    /// or from the last call is wrong, or the outputs are poisoned, and those of the last timed call go to the checker.
    async fn turn(
        &mut self,
        case: &CaseSpec,
        state: &mut CellState,
        party: &mut Party,
        at: At,
    ) -> Result<(), Trouble> {
        let name = self.name(state.place, &party.id);
        // By turns with replicates: new contents over the outputs of the old ones show a call that leaves what it finds
        // written as it is; poison shows one that does not write.
        let renews = self.replicate.is_multiple_of(2);
        let refresh = at.publish && renews && party.live()?.hello().capabilities.refresh;
        if at.publish {
            let contents = if refresh { 1 + self.replicate } else { 0 };
            self.pose(case, state, &party.id, contents).await?;
        }
        let request = Measure {
            block: at.block,
            position: at.position,
            publish: at.publish,
            refresh,
            ..self.request(&name, Phase::Turn)
        };
        self.take(state, party, request).await?;
        if !at.publish {
            return Ok(());
        }
        let (checker, _) = self.desk.parts()?;
        let judged = checker.judge(&name, Vec::new()).await?;
        let mut pass = blank(Purpose::Timed, Outcome::Ran);
        pass.outputs = judged.outputs;
        pass.findings = judged.findings;
        pass.digests = judged.digests;
        let timed = &mut state.part(self.replicate).timed;
        timed.entry(party.id.clone()).or_default().push(pass);
        Ok(())
    }

    /// Runs the case on contents never seen and again on the same, by turns; the second must not be much faster.
    ///
    /// Before either run the checker first writes contents that are never run and then, from its memory, those that
    /// are: making contents washes caches, and both runs must find them in the same state.
    async fn identical_inputs(
        &mut self,
        case: &CaseSpec,
        state: &mut CellState,
        party: &mut Party,
    ) -> Result<(), Trouble> {
        let name = self.name(state.place, &party.id);
        let mut memory = Memory::default();
        for pair in 0..Memory::PAIRS + 1 {
            for again in [false, true] {
                // As many contents are made before either run, so that the worker has waited as long.
                let first = if again { WAITED + pair } else { SEEN + pair };
                self.pose(case, state, &party.id, first).await?;
                self.pose(case, state, &party.id, UNSEEN + 2 * pair + u32::from(again)).await?;
                self.pose(case, state, &party.id, SEEN + pair).await?;
                let request = Request::Check { case: name.clone(), checked: false };
                let (answer, elapsed) = party.live()?.ask_timed(request, &name).await?;
                match answer {
                    Answer::Done => memory.add(pair, again, elapsed),
                    other => {
                        return Err(Trouble::Failed(format!("an untimed run answered {other:?}")));
                    }
                }
            }
        }
        if let Some(finding) = remembers(&memory) {
            state.distrust(&party.id, self.replicate, &finding);
        }
        Ok(())
    }

    /// Forgets the cell on both sides.
    async fn forget(
        &mut self,
        state: &mut CellState,
        parties: &mut [Party],
    ) -> Result<(), CheckerFault> {
        for party in parties {
            let name = self.name(state.place, &party.id);
            if let Some(worker) = party.worker.as_mut() {
                let request = Request::Release { case: name.clone() };
                if let Err(loss) = worker.ask_case(request, &name).await {
                    if !interrupted(&loss) {
                        state.lost(&party.id, self.candidate, &loss);
                    }
                    party.lose(&loss).await;
                }
            }
            let Ok((checker, scratch)) = self.desk.parts() else { continue };
            let posed = scratch.file(&name).exists();
            scratch.remove(&name);
            if posed {
                checker.release(&name).await?;
            }
        }
        Ok(())
    }
}

/// Why a warm-up gave no samples, where it gave none.
fn spoiled(taken: &TakenTurn) -> Option<String> {
    let measured = &taken.turn.measured;
    let first = taken.turn.invalid.first()?;
    let nothing = measured.phase == Phase::Warm && measured.elapsed_ns.is_empty();
    nothing.then(|| format!("its warm-up cannot be trusted: {}: {}", first.code, first.detail))
}

/// Contents from here on are run in the check for remembered results.
const SEEN: u32 = 100;
/// Contents from here on are made in that check for the time that it takes.
const WAITED: u32 = 500;
/// Contents from here on are written in that check and never run.
const UNSEEN: u32 = 1000;

#[derive(Clone, Copy)]
struct At {
    block: u32,
    position: u32,
    publish: bool,
}

/// What befell a party.
enum Trouble {
    Lost(Loss),
    Declined(String),
    Failed(String),
    Checker(CheckerFault),
}

impl From<Loss> for Trouble {
    fn from(loss: Loss) -> Self {
        Trouble::Lost(loss)
    }
}

impl From<CheckerFault> for Trouble {
    fn from(fault: CheckerFault) -> Self {
        Trouble::Checker(fault)
    }
}

impl From<NoTurn> for Trouble {
    fn from(none: NoTurn) -> Self {
        match none {
            NoTurn::Lost(loss) => Trouble::Lost(loss),
            NoTurn::Declined(detail) => Trouble::Failed(detail),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fault() -> Halt {
        Halt::Checker(CheckerFault::Declined("no".to_owned()))
    }

    #[test]
    fn a_late_cell_is_left_to_another_run_unless_it_is_over() {
        assert!(matches!(ended(Err(Halt::Late), Ok(()), false), RoundEnd::Late));
        assert!(matches!(ended(Err(Halt::Late), Ok(()), true), RoundEnd::Done));
        assert!(matches!(ended(Err(Halt::Late), Err(fault()), false), RoundEnd::Checker(_)));
    }

    #[test]
    fn an_interrupt_while_a_cell_is_forgotten_is_no_fault_of_the_checker() {
        for end in [Ok(()), Err(Halt::Late), Err(Halt::Over)] {
            let forgotten = Err(CheckerFault::Lost(Loss::Interrupted).into());
            assert!(matches!(ended(end, forgotten, false), RoundEnd::Interrupted));
        }
        let end = ended(Err(Halt::Interrupted), Err(fault()), false);
        assert!(matches!(end, RoundEnd::Interrupted));
    }
}

//! Controls of a session: a provider against itself, and against itself slowed down on purpose.

use std::collections::BTreeMap;
use std::rc::Rc;

use proofhouse_gate::stats::{
    Location, Margin, PairedSamples, Turn as StatsTurn, balanced_blocks, block_orders,
    judge_control, median,
};
use proofhouse_schema::device::DeviceKind;
use proofhouse_schema::evidence::Control;
use proofhouse_schema::gate::{CaseSpec, TimingRule};
use proofhouse_schema::probe::Probe;
use proofhouse_schema::protocol::{Measure, Phase, Poison};
use proofhouse_schema::real::Real;
use proofhouse_schema::verdict::Speed;

use super::party::{NoTurn, Party};
use super::{Group, ceilings, groups, pinned_cores, plain_request};
use crate::attempt::{Answer, Loss, Placement};
use crate::checker::PoseOf;
use crate::context::{Context, Desk};
use crate::correctness::{draw, prepare};
use crate::draft::{Message, Place};
use crate::environment::Progress;
use crate::provider::declines;

/// The planted slowdown of the A/B control, unless the margin asks for more.
const PLANTED: f64 = 0.05;
/// Replicates of the controls on a device at least. What differs between processes there is more than what differs within
/// one, and our own worker starts in a quarter of a second.
const ON_A_DEVICE: u32 = 5;
/// Elements that the control's case should have: long enough to time well, short enough to be quick.
const GOOD_SIZE: u64 = 1 << 18;

/// Runs the controls and measures the ceilings. A control that could not run is a control that is not right.
pub(crate) async fn controls(
    context: &Rc<Context>,
    desk: &mut Desk,
    device: DeviceKind,
) -> (Vec<Control>, BTreeMap<String, Probe<Real>>) {
    let places: Vec<Place> = (0..context.plan.gates.len())
        .flat_map(|gate| {
            let cells = context.plan.gates[gate].cells.iter().enumerate();
            cells.filter(|(_, c)| c.reused.is_none()).map(move |(cell, _)| Place { gate, cell })
        })
        .collect();
    let groups: Vec<Group> =
        groups(context, &places).into_iter().filter(|group| group.device == device).collect();
    let Some((group, place)) = subject(context, &groups) else { return Default::default() };
    let step = format!("controls: {} against itself", group.candidate);
    let begun = std::time::Instant::now();
    context.send(Message::Step(Progress::Started(step.clone())));
    let cores = match device {
        DeviceKind::Cpu => pinned_cores(group.rule.contract.threads).map(Some),
        DeviceKind::Cuda => Ok(None),
    };
    let cache = context.options.facts.host.last_level_cache.known().map(|bytes| bytes.0);
    let uncontrolled = context.options.devices.uncontrolled.contains(&device);
    let ceilings = match (device, cores.as_ref()) {
        (DeviceKind::Cpu, Ok(Some(cores))) if !cores.is_empty() => {
            ceilings::measure(cores[0], cache)
        }
        (DeviceKind::Cpu, _) => BTreeMap::new(),
        (DeviceKind::Cuda, _) if uncontrolled && !groups.iter().any(Group::is_cold) => {
            BTreeMap::new()
        }
        (DeviceKind::Cuda, _) => ceilings::of_device(context, device).await,
    };
    if uncontrolled {
        context.send(Message::Step(Progress::Finished {
            step,
            outcome: "left out".to_owned(),
            elapsed: begun.elapsed(),
        }));
        return (Vec::new(), ceilings);
    }
    let planted = PLANTED.max(2.0 * group.rule.margin);
    let trio = match cores {
        Ok(cores) => Trio::run(context, desk, group, place, cores, planted).await,
        Err(reason) => Err(reason),
    };
    let mut controls = judged(trio, &group.rule, planted, context);
    controls.iter_mut().for_each(|control| control.device = device);
    let outcome = if controls.iter().all(|c| c.right) { "right" } else { "not right" };
    context.send(Message::Step(Progress::Finished {
        step,
        outcome: outcome.to_owned(),
        elapsed: begun.elapsed(),
    }));
    (controls, ceilings)
}

/// The cell on which the controls run: the one whose size is nearest to a good one.
fn subject<'a>(context: &Context, groups: &'a [Group]) -> Option<(&'a Group, Place)> {
    let distance = |place: Place| {
        let size = context.case(place).size().max(1);
        if size > GOOD_SIZE { size / GOOD_SIZE } else { GOOD_SIZE / size }
    };
    let all = groups.iter().flat_map(|group| group.places.iter().map(move |place| (group, *place)));
    all.min_by_key(|(_, place)| distance(*place))
}

fn judged(
    trio: Result<Trio, String>,
    rule: &TimingRule,
    planted: f64,
    context: &Context,
) -> Vec<Control> {
    let wrong = |name: &str, planted, why: String| {
        context.send(Message::Warning(format!("control {name} gave no answer: {why}")));
        let speed = Speed::Inconclusive;
        let device = DeviceKind::default();
        Control { name: name.to_owned(), device, planted, estimate: None, speed, right: false }
    };
    let trio = match trio {
        Ok(trio) => trio,
        Err(why) => return vec![wrong("a-a", 0.0, why.clone()), wrong("a-b", planted, why)],
    };
    let [first, twin, slowed] = &trio.turns;
    // Both controls stand on the provider's own arm, so that the slowed one is the candidate of a-b.
    [("a-a", 0.0, first, twin), ("a-b", planted, slowed, twin)]
        .into_iter()
        .map(|(name, planted, candidate, baseline)| {
            let control = Margin::new(rule.margin).and_then(|margin| {
                let samples =
                    PairedSamples::from_turns(candidate, baseline)?.with_location(Location::Median);
                judge_control(&samples, margin, planted)
            });
            match control {
                Ok((control, _)) => control,
                Err(error) => wrong(name, planted, error.to_string()),
            }
        })
        .collect()
}

/// Fresh trios of processes.
fn replicates(context: &Context, device: DeviceKind) -> u32 {
    let asked = context.options.profile.replicates;
    if device.is_cpu() { asked } else { asked.max(ON_A_DEVICE) }
}

/// Three workers of one provider: itself, its twin, and one slowed down.
struct Trio {
    turns: [Vec<StatsTurn>; 3],
}

impl Trio {
    async fn run(
        context: &Rc<Context>,
        desk: &mut Desk,
        group: &Group,
        place: Place,
        cores: Option<Vec<usize>>,
        planted: f64,
    ) -> Result<Trio, String> {
        let mut trio = Trio { turns: [Vec::new(), Vec::new(), Vec::new()] };
        let case = context.case(place).clone();
        for replicate in 0..replicates(context, group.device) {
            let placement = Placement {
                replicate,
                cores: cores.clone(),
                threads: group.rule.contract.threads,
                device: group.device,
                wrapper: Vec::new(),
            };
            let mut parties = [(); 3].map(|()| Party::new(group.candidate.clone()));
            let mut replica = Replica { context, desk, case: &case, rule: &group.rule, replicate };
            let taken = replica.run(&mut parties, &placement, planted, &mut trio).await;
            for party in &mut parties {
                // The controls' attempts are not recorded: the session is not a cell.
                party.close(taken.is_err()).await;
            }
            replica.clear().await;
            taken?;
        }
        Ok(trio)
    }
}

struct Replica<'a> {
    context: &'a Rc<Context>,
    desk: &'a mut Desk,
    case: &'a CaseSpec,
    rule: &'a TimingRule,
    replicate: u32,
}

const NAMES: [&str; 3] = ["control-a", "control-twin", "control-slowed"];

impl Replica<'_> {
    async fn run(
        &mut self,
        parties: &mut [Party; 3],
        placement: &Placement,
        planted: f64,
        trio: &mut Trio,
    ) -> Result<(), String> {
        for (party, name) in parties.iter_mut().zip(NAMES) {
            party.ready(self.context, placement).await.map_err(|loss| loss.to_string())?;
            self.bind(party, name).await?;
        }
        // Twice the blocks of a cell: what controls say holds for every cell of the session.
        let blocks = balanced_blocks(3, 2 * self.context.options.profile.blocks as usize);
        let seed = draw(self.context.options.seed, &format!("controls {}", self.replicate));
        let orders = block_orders(3, blocks, seed).map_err(|error| error.to_string())?;
        for (block, order) in orders.iter().enumerate() {
            for (position, index) in order.iter().enumerate() {
                let request = Measure {
                    block: block as u32,
                    position: position as u32,
                    slowdown: if *index == 2 { planted } else { 0.0 },
                    ..self.request(NAMES[*index], Phase::Turn)
                };
                let turn = self.take(&mut parties[*index], request).await?;
                trio.turns[*index].push(turn);
            }
        }
        Ok(())
    }

    fn request(&self, name: &str, phase: Phase) -> Measure {
        plain_request(self.context, self.rule, name, phase)
    }

    async fn bind(&mut self, party: &mut Party, name: &str) -> Result<(), String> {
        self.desk.ready(self.context).await.map_err(|fault| format!("{fault:?}"))?;
        let (checker, scratch) = self.desk.parts().map_err(|fault| format!("{fault:?}"))?;
        let file = scratch.file(name);
        let (case, poison) = (name, Poison::A);
        let pose = PoseOf { case, spec: self.case, file: &file, poison, contents: 0, row: None };
        let posed = checker.pose(pose).await.map_err(|fault| format!("{fault:?}"))?;
        let worker = party.live().map_err(|loss| loss.to_string())?;
        if let Some(reason) = declines(worker.hello(), self.case) {
            return Err(reason);
        }
        let request = prepare(name, self.case, posed);
        match worker.ask_case(request, name).await.map_err(|loss| loss.to_string())? {
            Answer::Done => {}
            other => return Err(format!("prepare: {other:?}")),
        }
        let warm = Measure { samples: 256, ..self.request(name, Phase::Warm) };
        self.take(party, warm).await.map(|_| ())
    }

    async fn take(&self, party: &mut Party, request: Measure) -> Result<StatsTurn, String> {
        let turn = party.measure(request).await.map_err(|none| match none {
            NoTurn::Lost(loss) => loss.to_string(),
            NoTurn::Declined(detail) => detail,
        })?;
        if let Some(finding) = turn.invalid.first() {
            return Err(format!("{}: {}", finding.code, finding.detail));
        }
        let measured = turn.measured;
        let median = median(&measured.elapsed_ns).map_err(|error| error.to_string())?;
        Ok(StatsTurn {
            replicate: self.replicate,
            block: measured.block,
            position: measured.position,
            per_call_ns: median / f64::from(measured.calls.max(1)),
        })
    }

    /// Forgets the controls' cases at the checker; the workers are gone.
    async fn clear(&mut self) {
        let Ok((checker, scratch)) = self.desk.parts() else { return };
        let mut lost: Option<Loss> = None;
        for name in NAMES {
            let posed = scratch.file(name).exists();
            scratch.remove(name);
            if posed
                && let Err(crate::checker::CheckerFault::Lost(loss)) = checker.release(name).await
            {
                lost = Some(loss);
                break;
            }
        }
        if let Some(loss) = lost {
            self.desk.lose(&loss).await;
        }
    }
}

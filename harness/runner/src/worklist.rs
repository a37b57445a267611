//! What is to be done: cells without evidence, the providers that they need, and the batches that executors take.

use std::cell::Cell as Counter;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::rc::Rc;

use proofhouse_schema::device::DeviceKind;
use proofhouse_schema::gate::GateKind;
use proofhouse_schema::ids::ProviderId;

use crate::context::Context;
use crate::correctness::Batch;
use crate::draft::Place;
use crate::options::RunOptions;
use crate::plan::Plan;

fn kind(context: &Context, place: Place) -> GateKind {
    context.plan.gates[place.gate].gate.header.kind
}

/// Every cell that has no evidence to be used again.
pub(crate) fn to_do(plan: &Plan) -> Vec<Place> {
    let places = |(gate, planned): (usize, &crate::PlannedGate)| {
        let open = planned.cells.iter().enumerate().filter(|(_, cell)| cell.reused.is_none());
        open.map(|(cell, _)| Place { gate, cell }).collect::<Vec<_>>()
    };
    plan.gates.iter().enumerate().flat_map(places).collect()
}

/// Providers that take part in cells to be done.
pub(crate) fn needed(options: &RunOptions, plan: &Plan) -> BTreeSet<ProviderId> {
    let mut needed = BTreeSet::from([options.checker.clone()]);
    for gate in &plan.gates {
        let open = gate.cells.iter().filter(|cell| cell.reused.is_none());
        let candidates: BTreeSet<_> = open.map(|cell| cell.candidate.clone()).collect();
        if !candidates.is_empty() && gate.gate.header.kind == GateKind::Baseline {
            needed.extend(gate.gate.header.baselines.iter().cloned());
        }
        needed.extend(candidates);
    }
    needed
}

/// Kinds of gates that this version runs.
pub(crate) const RUN_KINDS: [GateKind; 4] =
    [GateKind::Correctness, GateKind::Baseline, GateKind::Graph, GateKind::Sanitizer];

/// Whether time is to be measured on a device.
pub(crate) fn is_timed(context: &Context, places: &[Place], device: DeviceKind) -> bool {
    places.iter().any(|place| {
        context.device(*place) == device
            && kind(context, *place) == GateKind::Baseline
            && context.no_device(device).is_none()
    })
}

/// Cells of a device that are not timed, by candidate and, on the host, by gate, in as many parts as there are executors, where that is
/// worth a process.
pub(crate) fn batches(context: &Context, places: &[Place], device: DeviceKind) -> VecDeque<Batch> {
    const WORTH_A_PROCESS: usize = 16;
    let mut groups: BTreeMap<(usize, ProviderId), Vec<Place>> = BTreeMap::new();
    for place in places {
        let candidate = &context.plan.gates[place.gate].cells[place.cell].candidate;
        let runs = !context.absent.contains_key(candidate);
        let here = context.device(*place) == device && kind(context, *place) != GateKind::Baseline;
        if here && runs {
            // On a device a process that takes seconds to start visits every gate.
            let gate = if device.is_cpu() { place.gate } else { 0 };
            groups.entry((gate, candidate.clone())).or_default().push(*place);
        }
    }
    let mut batches = VecDeque::new();
    for ((_, candidate), places) in groups {
        let most = if device.is_cpu() { context.options.jobs.max(1) } else { 1 };
        let parts = places.len().div_ceil(WORTH_A_PROCESS).clamp(1, most);
        let losses = Rc::new(Counter::new(0));
        for part in 0..parts {
            let places = places.iter().copied().skip(part).step_by(parts).collect();
            batches.push_back(Batch {
                candidate: candidate.clone(),
                device,
                places,
                losses: Rc::clone(&losses),
            });
        }
    }
    batches
}

//! The session: what holds for every record of a run. It is written before the first cell.

use std::collections::BTreeMap;
use std::rc::Rc;

use proofhouse_schema::SCHEMA;
use proofhouse_schema::evidence::{Control, QualificationScore, SessionRecord};
use proofhouse_schema::gate::{CaseSpec, Expect, Inputs};
use proofhouse_schema::probe::Probe;
use proofhouse_schema::real::Real;
use proofhouse_schema::units::Wide;

use crate::checker::CheckerFault;
use crate::context::{Context, Desk, battery_name};
use crate::correctness::no_battery;
use crate::draft::{Message, Place};
use crate::options::RunOptions;

/// Runs the checker's battery for every operator and dtype that has cells to be done.
pub(crate) async fn qualify(context: &Rc<Context>, desk: &mut Desk, places: &[Place]) {
    for (name, case) in battery_cases(context, places) {
        if context.stop.requested() {
            return;
        }
        let score = match battery(context, desk, &case).await {
            Ok(score) => score,
            Err(fault) => {
                let detail = format!("the battery of {name} gave no score: {fault:?}");
                context.send(Message::Warning(detail));
                if let CheckerFault::Lost(loss) = &fault {
                    desk.lose(loss).await;
                }
                no_battery()
            }
        };
        context.batteries.borrow_mut().insert(name, score);
    }
}

async fn battery(
    context: &Rc<Context>,
    desk: &mut Desk,
    case: &CaseSpec,
) -> Result<QualificationScore, CheckerFault> {
    desk.ready(context).await?;
    desk.parts()?.0.qualify(case).await
}

/// One case for each operator and dtype: outputs expected, plain values, several rows, not large.
fn battery_cases(context: &Context, places: &[Place]) -> BTreeMap<String, CaseSpec> {
    let mut best: BTreeMap<String, (u64, CaseSpec)> = BTreeMap::new();
    for place in places {
        let case = context.case(*place);
        let name = battery_name(&case.operator, case.dtype);
        let cost = unfitness(case);
        if best.get(&name).is_none_or(|(least, _)| cost < *least) {
            best.insert(name, (cost, case.clone()));
        }
    }
    best.into_iter()
        .map(|(name, (_, case))| (name, CaseSpec { expect: Expect::Outputs, ..case }))
        .collect()
}

/// How badly a case suits a battery; the least is taken.
fn unfitness(case: &CaseSpec) -> u64 {
    let elements = case.size();
    let rows = case.dims.get("rows").copied().unwrap_or(1);
    let plain = match &case.inputs {
        Inputs::Seeded { values, .. } => u64::from(values != "normal"),
        Inputs::File { .. } => 1,
    };
    let faults = [
        u64::from(case.expect != Expect::Outputs),
        u64::from(elements == 0),
        plain,
        u64::from(case.layout != "contiguous"),
        u64::from(rows < 2),
        u64::from(elements < 64),
    ];
    let ranked = faults.iter().fold(0, |sum, fault| sum * 2 + fault);
    ranked << 48 | elements.min((1 << 48) - 1)
}

/// The session's record.
pub(crate) fn record(
    options: &RunOptions,
    started: Wide,
    batteries: BTreeMap<String, QualificationScore>,
    controls: Vec<Control>,
    ceilings: BTreeMap<String, Probe<Real>>,
) -> SessionRecord {
    let facts = &options.facts;
    SessionRecord {
        schema: SCHEMA.to_owned(),
        writer: facts.writer.clone(),
        tool: facts.tool.clone(),
        started,
        host: facts.host.clone(),
        devices: options.devices.found.values().cloned().collect(),
        profile: options.profile.clone(),
        source: facts.source.clone(),
        controls,
        ceilings,
        qualification: batteries,
        command: facts.command.clone(),
    }
}

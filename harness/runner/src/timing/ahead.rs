//! Tuning ahead: what takes a provider seconds to compile or tune for a case, several of its processes do side by side
//! before the first is timed. What they found lies in the cache of kernels, where the measuring process finds it.
//!
//! These processes are ended before anything is measured; nothing that they say is kept.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::future::Future;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::time::Instant;

use proofhouse_schema::canonical::{Digest, digest};
use proofhouse_schema::device::DeviceKind;
use proofhouse_schema::gate::CaseSpec;
use proofhouse_schema::ids::ProviderId;
use proofhouse_schema::protocol::{Poison, Request};

use super::party::Party;
use super::{Wave, together};
use crate::attempt::{Answer, Placement};
use crate::checker::PoseOf;
use crate::correctness::prepare;
use crate::draft::Message;
use crate::environment::Progress;

/// Cases from which on processes of their own are worth their start.
const LEAST: usize = 4;

/// A case that a provider has not tuned yet.
struct Case {
    spec: CaseSpec,
    /// The file that says that it was tuned; it lies beside what was found, so that they go together.
    mark: PathBuf,
}

/// Lets every provider that tunes do it for the wave's open cells.
pub(super) async fn tune(wave: &mut Wave<'_>) {
    let context = wave.context;
    let Some(device) = wave.groups.iter().map(|group| group.device()).find(|d| !d.is_cpu()) else {
        return;
    };
    if context.no_device(device).is_some() {
        return;
    }
    let tuning: Vec<ProviderId> =
        wave.pool.keys().filter(|id| context.plan.homes[*id].provider.tunes).cloned().collect();
    for id in tuning {
        let cases = cases(wave, &id, device);
        let processes = context.options.limits.tuners.min(cases.len());
        if cases.len() < LEAST || processes < 2 {
            continue;
        }
        let step = format!("{id}: tuning {} cases in {processes} processes", cases.len());
        let begun = Instant::now();
        context.send(Message::Step(Progress::Started(step.clone())));
        let tuned = tune_all(wave, &id, device, &cases, processes).await;
        let outcome = format!("{tuned} tuned");
        let elapsed = begun.elapsed();
        context.send(Message::Step(Progress::Finished { step, outcome, elapsed }));
    }
}

/// The different cases of open cells that the provider has no mark for.
fn cases(wave: &Wave<'_>, id: &ProviderId, device: DeviceKind) -> Vec<Case> {
    let context = wave.context;
    let folder = context.options.kernel_cache.join("tuned");
    let makeup = context.plan.makeups[id].digests();
    let (facts, mut seen) = (context.options.devices.found.get(&device), BTreeSet::new());
    let open = wave.groups.iter().filter(|group| group.ids.contains(id)).flat_map(|group| {
        group.cells.iter().filter(|cell| cell.is_open() && !cell.absent.contains_key(id))
    });
    open.filter_map(|cell| {
        let spec = context.case(cell.place).clone();
        let key: Digest = digest(&(id, &makeup, &facts, &spec)).ok()?;
        let mark = folder.join(key.as_str());
        (seen.insert(key) && !mark.exists()).then_some(Case { spec, mark })
    })
    .collect()
}

async fn tune_all(
    wave: &mut Wave<'_>,
    id: &ProviderId,
    device: DeviceKind,
    cases: &[Case],
    processes: usize,
) -> usize {
    let context = wave.context;
    let placement = Placement { threads: 1, device, ..Placement::default() };
    let mut parties: Vec<Party> = (0..processes).map(|_| Party::new(id.clone())).collect();
    let starts = parties.iter_mut().map(|party| {
        boxed(async {
            // One that does not start tunes nothing; where it is needed, that is told.
            let _ = party.ready(context, &placement).await;
        })
    });
    together(starts.collect()).await;
    parties.retain(|party| party.worker.is_some());
    let mut tuned = 0;
    for round in cases.chunks(parties.len().max(1)) {
        let late = context.stop.requested() || context.budget.spent();
        if late || parties.is_empty() || wave.desk.ready(context).await.is_err() {
            break;
        }
        tuned += tune_round(wave, &mut parties, round).await;
        parties.retain(|party| party.worker.is_some());
    }
    let ends = parties.into_iter().filter_map(|mut party| party.worker.take());
    together(ends.map(|worker| boxed(async { drop(worker.end().await) })).collect()).await;
    tuned
}

/// A case for each process, side by side; the number that were prepared.
async fn tune_round(wave: &mut Wave<'_>, parties: &mut [Party], round: &[Case]) -> usize {
    let mut asked = Vec::new();
    for (index, (case, party)) in round.iter().zip(parties.iter_mut()).enumerate() {
        let name = format!("ahead-{index}");
        let Ok((checker, scratch)) = wave.desk.parts() else { break };
        let file = scratch.file(&name);
        let (spec, contents) = (&case.spec, 0);
        let pose =
            PoseOf { case: &name, spec, file: &file, poison: Poison::A, contents, row: None };
        // A case that cannot be posed is told where it is measured.
        if let Ok(posed) = checker.pose(pose).await {
            asked.push((prepare(&name, spec, posed), name, case, party));
        }
    }
    let (done, names) = (RefCell::new(0), RefCell::new(Vec::new()));
    let asks = asked.into_iter().map(|(request, name, case, party)| {
        let (done, names) = (&done, &names);
        boxed(async move {
            if ask(party, request, &name).await && mark(&case.mark) {
                *done.borrow_mut() += 1;
            }
            names.borrow_mut().push(name);
        })
    });
    together(asks.collect()).await;
    for name in names.into_inner() {
        let Ok((checker, scratch)) = wave.desk.parts() else { break };
        scratch.remove(&name);
        // A checker that does not release is lost where it is asked next.
        let _ = checker.release(&name).await;
    }
    done.into_inner()
}

/// Whether the process prepared the case; it lets go of it again.
async fn ask(party: &mut Party, request: Request, name: &str) -> bool {
    let Some(worker) = party.worker.as_mut() else { return false };
    let answer = match worker.ask_case(request, name).await {
        Ok(answer) => answer,
        Err(loss) => {
            party.lose(&loss).await;
            return false;
        }
    };
    if answer != Answer::Done {
        return false;
    }
    let release = Request::Release { case: name.to_owned() };
    if let Err(loss) = worker.ask_case(release, name).await {
        party.lose(&loss).await;
    }
    true
}

/// Keeps in mind that a case was tuned; where that cannot be written, it is tuned again.
fn mark(file: &Path) -> bool {
    let folder = file.parent().map(std::fs::create_dir_all);
    folder.is_some_and(|made| made.is_ok()) && std::fs::write(file, []).is_ok()
}

fn boxed<'a>(future: impl Future<Output = ()> + 'a) -> Pin<Box<dyn Future<Output = ()> + 'a>> {
    Box::pin(future)
}

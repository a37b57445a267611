//! Tuning ahead: what takes a provider seconds to compile or tune for a case, several of its processes do side by side
//! before controls and cells are timed. What they found lies in the cache of kernels, where the measuring process finds
//! it.
//!
//! These processes are ended before anything is measured; nothing that they say is kept.

use std::cell::RefCell;
use std::collections::{BTreeSet, VecDeque};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::{Duration, Instant};

use proofhouse_schema::canonical::{Digest, digest};
use proofhouse_schema::device::DeviceKind;
use proofhouse_schema::gate::CaseSpec;
use proofhouse_schema::ids::ProviderId;
use proofhouse_schema::protocol::{Poison, Request};

use super::party::Party;
use super::{CLOSING, groups, start_all, together};
use crate::attempt::{Answer, Loss, Placement};
use crate::budget::Pace;
use crate::checker::{CheckerFault, PoseOf};
use crate::context::{Context, Desk};
use crate::correctness::prepare;
use crate::draft::{Message, Place};
use crate::environment::Progress;

/// Cases from which on processes of their own are worth their start.
const LEAST: usize = 4;
/// A round is taken to last so long until one did.
const ROUND: Duration = Duration::from_secs(20);

/// A case that a provider has not tuned yet.
struct Case {
    spec: CaseSpec,
    /// The file that says that it was tuned.
    mark: PathBuf,
}

/// Lets every provider that tunes do it for the timed cells on a device that are not used again.
pub(crate) async fn tune(
    context: &Rc<Context>,
    desk: &mut Desk,
    places: &[Place],
    device: DeviceKind,
) {
    if device.is_cpu() || context.no_device(device).is_some() {
        return;
    }
    let marks = context.options.kernel_cache.join("tuned");
    for (id, cases) in untuned(context, places, device, &marks) {
        let processes = context.options.limits.tuners.min(cases.len());
        if cases.len() < LEAST || processes < 2 {
            continue;
        }
        if let Err(error) = is_writable(&marks) {
            let why = format!("{}: {error}", marks.display());
            context.send(Message::Warning(format!(
                "nothing is tuned ahead, since it could not be kept in mind: {why}"
            )));
            return;
        }
        let step = format!("{id}: tuning {} cases in {processes} processes", cases.len());
        let begun = Instant::now();
        context.send(Message::Step(Progress::Started(step.clone())));
        let mut tuning = Tuning { context, desk, id, device, parties: Vec::new(), tuned: 0 };
        tuning.run(cases.into(), processes).await;
        let outcome = format!("{} tuned", tuning.tuned);
        let elapsed = begun.elapsed();
        context.send(Message::Step(Progress::Finished { step, outcome, elapsed }));
    }
}

/// By provider that tunes, the different cases that it has no mark for.
fn untuned(
    context: &Rc<Context>,
    places: &[Place],
    device: DeviceKind,
    marks: &Path,
) -> Vec<(ProviderId, Vec<Case>)> {
    let fresh = |place: &&Place| context.plan.gates[place.gate].cells[place.cell].reused.is_none();
    let places: Vec<Place> = places.iter().filter(fresh).copied().collect();
    let groups = groups(context, &places);
    let here = || groups.iter().filter(|group| group.device == device);
    let providers: BTreeSet<&ProviderId> = here()
        .flat_map(|group| std::iter::once(&group.candidate).chain(&group.baselines))
        .filter(|id| !context.absent.contains_key(*id))
        .filter(|id| context.plan.homes.get(*id).is_some_and(|home| home.provider.tunes))
        .collect();
    let facts = context.options.devices.found.get(&device);
    let of = |id: &ProviderId| {
        let (makeup, mut seen) = (context.plan.makeups[id].digests(), BTreeSet::new());
        let own = here().filter(|group| group.candidate == *id || group.baselines.contains(id));
        own.flat_map(|group| &group.places)
            .filter_map(|place| {
                let spec = context.case(*place).clone();
                let key: Digest = digest(&(id, &makeup, &facts, &spec)).ok()?;
                let mark = marks.join(key.as_str());
                (seen.insert(key) && !mark.exists()).then_some(Case { spec, mark })
            })
            .collect()
    };
    providers.into_iter().map(|id| (id.clone(), of(id))).collect()
}

fn is_writable(folder: &Path) -> std::io::Result<()> {
    std::fs::create_dir_all(folder)?;
    let file = folder.join(format!("probe-{}", std::process::id()));
    std::fs::write(&file, [])?;
    std::fs::remove_file(file)
}

/// One provider's tuning.
struct Tuning<'a> {
    context: &'a Rc<Context>,
    desk: &'a mut Desk,
    id: ProviderId,
    device: DeviceKind,
    parties: Vec<Party>,
    tuned: usize,
}

impl Tuning<'_> {
    async fn run(&mut self, mut cases: VecDeque<Case>, processes: usize) {
        let mut pace = Pace::new(CLOSING[1]);
        pace.took(ROUND);
        if self.in_time(&pace) {
            self.start(processes).await;
        }
        while !cases.is_empty() && !self.parties.is_empty() && self.in_time(&pace) {
            if self.desk.ready(self.context).await.is_err() {
                break;
            }
            let begun = Instant::now();
            let round: Vec<Case> = cases.drain(..self.parties.len().min(cases.len())).collect();
            self.round(&round).await;
            pace.took(begun.elapsed());
            self.bury();
        }
        let ends = self.parties.drain(..).filter_map(|mut party| party.worker.take());
        together(ends.map(|worker| async { drop(worker.end().await) })).await;
    }

    fn in_time(&self, pace: &Pace) -> bool {
        !self.context.stop.requested() && self.context.budget.has(pace.next())
    }

    async fn start(&mut self, processes: usize) {
        let placement = Placement { threads: 1, device: self.device, ..Placement::default() };
        self.parties.extend((0..processes).map(|_| Party::new(self.id.clone())));
        start_all(self.context, &placement, &mut self.parties).await;
        self.bury();
    }

    /// Leaves out processes that are lost; a lost one makes the device suspect.
    fn bury(&mut self) {
        if self.parties.iter().any(|party| party.worker.is_none()) {
            self.context.health.suspect(self.device);
        }
        self.parties.retain(|party| party.worker.is_some());
    }

    /// A case for each process, side by side.
    async fn round(&mut self, round: &[Case]) {
        let (mut asked, mut names) = (Vec::new(), Vec::new());
        for (index, (case, party)) in round.iter().zip(&mut self.parties).enumerate() {
            let name = format!("ahead-{index}");
            let Ok((checker, scratch)) = self.desk.parts() else { break };
            let file = scratch.file(&name);
            let (spec, contents) = (&case.spec, 0);
            let pose =
                PoseOf { case: &name, spec, file: &file, poison: Poison::A, contents, row: None };
            match checker.pose(pose).await {
                Ok(posed) => {
                    names.push(name.clone());
                    asked.push((prepare(&name, spec, posed), name, case, party));
                }
                Err(CheckerFault::Lost(loss)) => self.desk.lose(&loss).await,
                // A case that cannot be posed is told where it is measured.
                Err(CheckerFault::Declined(_)) => {}
            }
        }
        let tuned = RefCell::new(0);
        let asks = asked.into_iter().map(|(request, name, case, party)| {
            let tuned = &tuned;
            async move {
                match ask(party, request, &name).await {
                    Ok(answer) => {
                        // What is declined is not asked for again. A mark that cannot be written means another time.
                        let _ = std::fs::write(&case.mark, []);
                        *tuned.borrow_mut() += usize::from(answer == Answer::Done);
                    }
                    Err(Some(loss)) => party.lose(&loss).await,
                    Err(None) => {}
                }
            }
        });
        together(asks).await;
        self.tuned += tuned.into_inner();
        for name in names {
            let Ok((checker, scratch)) = self.desk.parts() else { break };
            scratch.remove(&name);
            if let Err(CheckerFault::Lost(loss)) = checker.release(&name).await {
                self.desk.lose(&loss).await;
            }
        }
    }
}

/// What a process says to the case, of which it lets go again; none where it failed, which may be another time's luck.
async fn ask(party: &mut Party, request: Request, name: &str) -> Result<Answer, Option<Loss>> {
    let worker = party.live().map_err(Some)?;
    let answer = worker.ask_case(request, name).await.map_err(Some)?;
    match answer {
        Answer::Failed(_) => return Err(None),
        Answer::Done => {
            let release = Request::Release { case: name.to_owned() };
            worker.ask_case(release, name).await.map_err(Some)?;
        }
        Answer::Unsupported(_) | Answer::Refused(_) => {}
    }
    Ok(answer)
}

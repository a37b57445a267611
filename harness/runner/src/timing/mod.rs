//! Baseline gates: candidate and baselines side by side, one turn at a time, on pinned cores.
//!
//! One process per provider and replicate visits every cell of a gate, and on a device every cell of every gate. A cell is
//! written when its last replicate is done, and every replicate before it is kept, so that a run that is stopped goes on
//! there ([`slice`]); what a worker says of time is checked against the supervisor's clock ([`party`]), and the outputs of
//! timed calls go to the checker ([`cell`]).

pub(crate) mod ahead;
mod arms;
mod ceilings;
mod cell;
mod controls;
mod group;
mod identical;
mod party;
mod slice;
mod state;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::task::Poll;
use std::time::{Duration, Instant};

use proofhouse_schema::device::DeviceKind;
use proofhouse_schema::evidence::Finding;
use proofhouse_schema::gate::{GateKind, TimingRule};
use proofhouse_schema::ids::ProviderId;
use proofhouse_schema::protocol::{Measure, Phase};
use proofhouse_schema::timing::Cache;

use crate::attempt::{Loss, Placement};
use crate::context::{Context, Desk};
use crate::draft::{Message, Place};
use crate::error::RunError;
pub(crate) use controls::controls;
use group::GroupRun;
use party::Party;
pub(crate) use slice::Slice;

/// How long a replicate's processes may take to end, before any did: on the host, and on a device, where each digests
/// gigabytes of libraries.
const CLOSING: [Duration; 2] = [Duration::from_secs(3), Duration::from_secs(10)];

/// Cells of one baseline gate and one candidate.
#[derive(Debug)]
pub(crate) struct Group {
    candidate: ProviderId,
    device: DeviceKind,
    rule: TimingRule,
    baselines: Vec<ProviderId>,
    places: Vec<Place>,
}

impl Group {
    /// Whether its calls find their operands out of the caches.
    fn is_cold(&self) -> bool {
        self.rule.contract.cache == Cache::Cold
    }
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
        if context.stop.requested() || context.budget.spent() {
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
    /// How long the processes of a replicate take to start, where they start side by side.
    starting: Duration,
    /// How long they take to end.
    closing: Duration,
}

impl<'a> Wave<'a> {
    fn new(context: &'a Rc<Context>, desk: &'a mut Desk, groups: &[&'a Group]) -> Self {
        let groups: Vec<GroupRun<'a>> =
            groups.iter().map(|group| GroupRun::new(context, group)).collect();
        let pool = groups.iter().flat_map(|group| group.ids.clone());
        let pool = pool.map(|id| (id.clone(), Party::new(id))).collect();
        let on_device = groups.iter().any(|group| !group.device().is_cpu());
        let closing = CLOSING[usize::from(on_device)];
        Self { context, desk, groups, pool, starting: Duration::ZERO, closing }
    }

    async fn run(mut self) {
        self.write().await;
        while let Some(replicate) = self.next() {
            let (stop, budget) = (&self.context.stop, &self.context.budget);
            if stop.requested() || budget.spent() || !self.replicate(replicate).await {
                break;
            }
            self.write().await;
        }
        self.write().await;
    }

    /// The first replicate that some cell lacks for which there is time; cells of which it is known how long they take come
    /// first.
    fn next(&self) -> Option<u32> {
        let replicates = self.context.options.profile.replicates;
        let ending = self.starting + self.closing;
        let lacking = self.groups.iter().flat_map(|group| {
            (0..group.cells.len()).filter_map(|index| {
                let cell = &group.cells[index];
                let lacks = cell.lacks(replicates).filter(|_| cell.is_open())?;
                let fits = self.context.budget.fits(group.expected(index) + ending);
                fits.then_some((cell.took.is_none(), lacks))
            })
        });
        lacking.min().map(|(_, replicate)| replicate)
    }

    /// Writes the cells that are over or whole.
    async fn write(&mut self) {
        let replicates = self.context.options.profile.replicates;
        for group in &mut self.groups {
            for index in 0..group.cells.len() {
                let state = &group.cells[index];
                let whole = state.over.is_some() || state.lacks(replicates).is_none();
                if state.written || !whole {
                    continue;
                }
                // Every record names the checker, that of a cell too whose replicates were all kept.
                let _ = self.desk.ready(self.context).await;
                let draft = group.draft(index, self.desk);
                self.context.done(draft);
            }
        }
    }

    /// On a device, starts the processes of a replicate side by side: each takes many seconds, and none is timed yet. What
    /// fails here is tried and told where the process is needed.
    async fn start(&mut self, replicate: u32) {
        let Some(group) = self.groups.iter().find(|group| !group.device().is_cpu()) else { return };
        let device = group.device();
        if self.context.no_device(device).is_some() {
            return;
        }
        let placement = Placement { replicate, threads: 1, device, ..Placement::default() };
        start_all(self.context, &placement, self.pool.values_mut()).await;
    }

    /// One replicate: fresh processes, every cell that lacks it in turn. False when there was nothing to do.
    async fn replicate(&mut self, replicate: u32) -> bool {
        if !self.context.budget.allows(self.starting + self.closing) {
            return false;
        }
        let begun = Instant::now();
        self.start(replicate).await;
        self.starting = begun.elapsed();
        for group in &mut self.groups {
            group.replicate(replicate, &mut self.pool, self.desk, self.closing).await;
        }
        let visited = self.groups.iter().any(|group| !group.visited.is_empty());
        let stopped = self.context.stop.requested();
        let begun = Instant::now();
        let mut lost: BTreeMap<ProviderId, Loss> = BTreeMap::new();
        self.context.budget.closing(true);
        let ended = close_all(&mut self.pool, stopped).await;
        self.context.budget.closing(false);
        for (id, late) in ended {
            lost.extend(late.filter(|loss| !interrupted(loss)).map(|loss| (id, loss)));
        }
        for party in self.pool.values_mut() {
            let ended = lost.remove(&party.id).map(|loss| {
                self.context.send(Message::Warning(format!("{}: {loss}", party.id)));
                Finding { code: "bad-end".to_owned(), detail: loss.to_string() }
            });
            let findings: Vec<Finding> =
                ended.into_iter().chain(party.fallbacks(self.context)).collect();
            self.groups.iter_mut().for_each(|group| group.closed(party, replicate, &findings));
        }
        self.closing = begun.elapsed();
        // A stop may have come while they ended.
        let stopped = self.context.stop.requested();
        self.groups.iter_mut().for_each(|group| group.settle(replicate, stopped));
        visited
    }
}

/// Starts processes side by side. What fails is told where the process is needed.
async fn start_all(
    context: &Context,
    placement: &Placement,
    parties: impl IntoIterator<Item = &mut Party>,
) {
    together(parties.into_iter().map(|party| async {
        let _ = party.ready(context, placement).await;
    }))
    .await;
}

/// Ends every process of a replicate side by side: each digests what it has mapped, which takes seconds where that is
/// much.
async fn close_all(pool: &mut Pool, stopped: bool) -> Vec<(ProviderId, Option<Loss>)> {
    let ended = RefCell::new(Vec::new());
    together(pool.values_mut().map(|party| async {
        let late = party.close(stopped).await;
        ended.borrow_mut().push((party.id.clone(), late));
    }))
    .await;
    ended.into_inner()
}

/// Drives futures side by side until all are done.
async fn together(futures: impl IntoIterator<Item = impl Future<Output = ()>>) {
    let mut futures: Vec<_> = futures.into_iter().map(Box::pin).collect();
    std::future::poll_fn(|context| {
        futures.retain_mut(|future| future.as_mut().poll(context).is_pending());
        if futures.is_empty() { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
}

/// Whether a loss ends the run's part in the cell without a record.
fn interrupted(loss: &Loss) -> bool {
    *loss == Loss::Interrupted
}

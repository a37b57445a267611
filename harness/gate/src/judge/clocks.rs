//! The supervisor's clock against the worker's, and samples against the summaries made of them.

use proofhouse_schema::evidence::Arm;
use proofhouse_schema::samples::{Sample, Samples};
use proofhouse_schema::verdict::Verdict;

use super::notes::Notes;
use crate::stats::median;

/// The supervisor's wall time may be less than the worker's account by this factor only: two clocks of one machine
/// differ by parts in a million, reading them costs less than 2 % of a turn.
const LEAST_WALL: f64 = 0.98;
/// The worker must account for this part of the supervisor's wall time, beyond what messages cost.
const LEAST_ACCOUNT: f64 = 0.80;
/// What a turn's messages, wake-ups and bookkeeping may cost outside the worker's account, in nanoseconds.
const TURN_ALLOWANCE_NS: f64 = 2e6;
/// How far a recorded median may lie from the one that the samples give, relative.
const SAME: f64 = 1e-9;

/// One block of one arm.
pub(crate) struct BlockSamples {
    /// The block.
    pub(crate) block: u32,
    /// The place within the block.
    pub(crate) position: u32,
    /// The median time per call, in nanoseconds.
    pub(crate) per_call_ns: f64,
}

/// The samples of one arm, by block.
pub(crate) struct ArmSamples {
    /// The blocks, in order.
    pub(crate) blocks: Vec<BlockSamples>,
    /// The sum of all measured samples, in nanoseconds.
    pub(crate) timed_ns: f64,
}

/// Takes one arm's samples out of the blob and checks the arm's summaries against them.
pub(crate) fn arm_samples(arm: &Arm, samples: &Samples, notes: &mut Notes) -> Option<ArmSamples> {
    let who = format!("{}, replicate {}", arm.provider, arm.replicate);
    let Some(index) = samples.providers.iter().position(|id| *id == arm.provider) else {
        notes.add(Verdict::Invalid, "no-samples", format!("{who}: the blob holds no sample"));
        return None;
    };
    let mut rows: Vec<&Sample> = samples
        .rows
        .iter()
        .filter(|row| {
            usize::from(row.provider) == index && u32::from(row.replicate) == arm.replicate
        })
        .filter(|row| row.measured)
        .collect();
    if rows.is_empty() {
        notes.add(Verdict::Invalid, "no-samples", format!("{who}: no measured sample"));
        return None;
    }
    if let Some(bad) =
        rows.iter().find(|r| !(r.elapsed_ns.is_finite() && r.elapsed_ns > 0.0 && r.calls > 0))
    {
        let detail = format!("{who}: a sample of {} ns for {} calls", bad.elapsed_ns, bad.calls);
        notes.add(Verdict::Invalid, "bad-sample", detail);
        return None;
    }
    let timed_ns = rows.iter().map(|row| row.elapsed_ns).sum();
    rows.sort_by_key(|row| row.block);
    let mut blocks = Vec::new();
    for block in rows.chunk_by(|a, b| a.block == b.block) {
        let position = block[0].position;
        if block.iter().any(|row| row.position != position) {
            let detail = format!("{who}: block {} has samples of two places", block[0].block);
            notes.add(Verdict::Invalid, "samples-disagree", detail);
            return None;
        }
        let per_call: Vec<f64> =
            block.iter().map(|row| row.elapsed_ns / f64::from(row.calls)).collect();
        blocks.push(BlockSamples {
            block: u32::from(block[0].block),
            position: u32::from(position),
            per_call_ns: median(&per_call).ok()?,
        });
    }
    let samples = ArmSamples { blocks, timed_ns };
    check_summary(&who, arm, &samples, notes).then_some(samples)
}

fn check_summary(who: &str, arm: &Arm, samples: &ArmSamples, notes: &mut Notes) -> bool {
    let same = |a: f64, b: f64| (a - b).abs() <= SAME * b.abs();
    let medians = arm.block_median_ns.len() == samples.blocks.len()
        && arm.block_median_ns.iter().zip(&samples.blocks).all(|(a, b)| same(a.0, b.per_call_ns));
    let places = arm.positions.len() == samples.blocks.len()
        && arm.positions.iter().zip(&samples.blocks).all(|(a, b)| *a == b.position);
    if !medians || !places {
        let detail = format!("{who}: medians or places in the record are not those of the samples");
        notes.add(Verdict::Invalid, "samples-disagree", detail);
    }
    medians && places
}

/// Notes clocks that contradict each other (P35).
///
/// A worker that reports less time than passed, because its clock was replaced or its samples leave work out, accounts for
/// too little of the supervisor's wall time; one that reports more than passed accounts for too much. In turns of 5 ms, as
/// the committed profiles have them, a clock that shows less than 1/2.5 of the time is seen, and an honest worker may
/// wait 3.75 ms a turn for its core; where it waits longer, the machine is too busy to be trusted.
pub(crate) fn check_clocks(arm: &Arm, samples: &ArmSamples, notes: &mut Notes) {
    let who = format!("{}, replicate {}", arm.provider, arm.replicate);
    let (supervisor, worker) = (arm.supervisor_wall_ns, arm.worker_wall_ns);
    let turns = samples.blocks.len() as f64;
    let known = |v: f64| v.is_finite() && v > 0.0;
    if !known(supervisor.0) || !known(worker.0) {
        let detail = format!("{who}: wall times of {supervisor} and {worker}");
        notes.add(Verdict::Invalid, "clock-disagrees", detail);
        return;
    }
    let counted = worker.0.max(samples.timed_ns);
    if supervisor.0 < LEAST_WALL * counted {
        let detail = format!(
            "{who}: the worker counts {:.3} ms where {:.3} ms passed for the supervisor",
            counted / 1e6,
            supervisor.millis()
        );
        notes.add(Verdict::Invalid, "clock-disagrees", detail);
    }
    if samples.timed_ns * LEAST_WALL > worker.0 {
        let detail = format!(
            "{who}: samples of {:.3} ms in turns of {:.3} ms",
            samples.timed_ns / 1e6,
            worker.millis()
        );
        notes.add(Verdict::Invalid, "clock-disagrees", detail);
    }
    if worker.0 < LEAST_ACCOUNT * supervisor.0 - turns * TURN_ALLOWANCE_NS {
        let detail = format!(
            "{who}: the worker accounts for {:.3} ms of the {:.3} ms that passed for the supervisor in {turns} turns; accepted: at least {:.0} %, after 2 ms a turn (a busy machine, or a clock that lies)",
            worker.millis(),
            supervisor.millis(),
            LEAST_ACCOUNT * 100.0
        );
        notes.add(Verdict::Invalid, "clock-disagrees", detail);
    }
}

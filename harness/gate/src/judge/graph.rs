//! A call in a device graph: captured, replayed on other contents, and equal to the eager run bit for bit.

use proofhouse_schema::evidence::{
    Capture, CellRecord, GraphObservation, Outcome, Pass, ReplayPair,
};
use proofhouse_schema::verdict::Verdict;

use super::notes::Notes;
use super::outputs::{Demand, check_outputs, check_qualification, purpose};

/// Replays that a graph must survive.
pub const REPLAYS: usize = 3;

/// Judges a graph cell.
pub(crate) fn judge(record: &CellRecord, seen: &GraphObservation, notes: &mut Notes) {
    check_qualification(&seen.qualification, notes);
    match &seen.capture {
        Capture::Unsupported { reason } => {
            notes.add(Verdict::Unsupported, "capture-unsupported", reason);
            return;
        }
        Capture::Broken { detail } => {
            notes.add(Verdict::Fail, "capture-broken", detail);
            return;
        }
        Capture::Captured { nodes, kernels } => check_nodes(*nodes, kernels, notes),
    }
    if seen.replays.len() < REPLAYS {
        let detail = format!("{} replays; accepted: at least {REPLAYS}", seen.replays.len());
        notes.add(Verdict::Invalid, "replays-missing", detail);
    }
    let empty = record.case.dims.get("rows") == Some(&0);
    for pair in &seen.replays {
        for pass in [&pair.replay, &pair.eager] {
            check_pass(pass, empty, notes);
        }
        check_equal(pair, notes);
    }
    check_renewed(seen, empty, notes);
}

fn check_nodes(nodes: u64, kernels: &[String], notes: &mut Notes) {
    if kernels.is_empty() {
        let detail = format!("the graph has {nodes} nodes and no kernel; accepted: at least one");
        notes.add(Verdict::Invalid, "no-kernel-nodes", detail);
    }
    if nodes < kernels.len() as u64 {
        let detail = format!("{} kernels in a graph of {nodes} nodes", kernels.len());
        notes.add(Verdict::Invalid, "impossible-counts", detail);
    }
}

fn check_pass(pass: &Pass, empty: bool, notes: &mut Notes) {
    let run = purpose(pass.purpose);
    match &pass.outcome {
        Outcome::Ran => {
            let demand = Demand { empty, wrong: Verdict::Fail, finite: true };
            check_outputs("", pass, &demand, notes);
        }
        Outcome::Refused(error) => {
            let detail = format!("{run}: refused {} of {}", error.kind, error.argument);
            notes.add(Verdict::Fail, "refused", detail);
        }
        Outcome::Unsupported(reason) => {
            notes.add(Verdict::Unsupported, "unsupported", format!("{run}: {reason}"));
        }
        Outcome::Failed(detail) => {
            notes.add(Verdict::Errored, "untyped-failure", format!("{run}: {detail}"));
        }
    }
}

fn check_equal(pair: &ReplayPair, notes: &mut Notes) {
    let ran = [&pair.replay, &pair.eager].iter().all(|pass| pass.outcome == Outcome::Ran);
    if ran && pair.replay.digests != pair.eager.digests {
        let detail = "a replayed graph gave other bits than the eager run on the same contents";
        notes.add(Verdict::Fail, "replay-differs", detail);
    }
}

/// Contents differ from replay to replay, so outputs that never change are remembered ones, or nothing was renewed.
fn check_renewed(seen: &GraphObservation, empty: bool, notes: &mut Notes) {
    let digests = |pair: &ReplayPair| pair.eager.digests.clone();
    let same = seen.replays.windows(2).any(|two| digests(&two[0]) == digests(&two[1]));
    if same && !empty {
        let detail =
            "two replays in a row were held to the same outputs; accepted: renewed contents";
        notes.add(Verdict::Invalid, "not-renewed", detail);
    }
}

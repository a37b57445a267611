//! Turns to arms and to the column blob.

use std::collections::{BTreeMap, BTreeSet};

use proofhouse_gate::stats::{median, summarize};
use proofhouse_schema::evidence::{Arm, Finding, Summary};
use proofhouse_schema::ids::ProviderId;
use proofhouse_schema::protocol::{Measured, Phase};
use proofhouse_schema::real::Real;
use proofhouse_schema::samples::{Sample, Samples};
use proofhouse_schema::units::Nanos;

use super::party::Turn;

/// A turn with who took it.
#[derive(Debug, Clone, serde::Serialize, serde::Deserialize)]
pub(super) struct TakenTurn {
    pub(super) provider: ProviderId,
    pub(super) replicate: u32,
    pub(super) turn: Turn,
    /// Whether its buffers were renewed or its outputs published: such turns take longer here than the worker's
    /// account says, for a good reason.
    pub(super) published: bool,
}

/// Findings on a provider in a replicate that no single turn shows.
pub(super) type Distrusted = BTreeMap<(ProviderId, u32), Vec<Finding>>;

/// One arm per provider and replicate; absent providers have none.
pub(super) fn arms(
    turns: &[TakenTurn],
    distrusted: &Distrusted,
    absent: &BTreeMap<ProviderId, String>,
) -> Vec<Arm> {
    let keys: BTreeSet<(u32, &ProviderId)> = turns
        .iter()
        .filter(|taken| !absent.contains_key(&taken.provider))
        .map(|taken| (taken.replicate, &taken.provider))
        .collect();
    keys.into_iter()
        .map(|(replicate, provider)| {
            let own: Vec<&TakenTurn> = turns
                .iter()
                .filter(|t| t.replicate == replicate && t.provider == *provider)
                .collect();
            let more = distrusted.get(&(provider.clone(), replicate));
            arm(provider, replicate, &own, more.map_or(&[], Vec::as_slice))
        })
        .collect()
}

fn arm(provider: &ProviderId, replicate: u32, turns: &[&TakenTurn], more: &[Finding]) -> Arm {
    let mut blocks: Vec<&&TakenTurn> =
        turns.iter().filter(|t| t.turn.measured.phase == Phase::Turn).collect();
    blocks.sort_by_key(|t| t.turn.measured.block);
    let per_call = |t: &TakenTurn| -> Vec<f64> {
        let calls = f64::from(t.turn.measured.calls.max(1));
        t.turn.measured.elapsed_ns.iter().map(|elapsed| elapsed / calls).collect()
    };
    let all: Vec<f64> = blocks.iter().flat_map(|t| per_call(t)).collect();
    let medians = blocks.iter().map(|t| Real(median(&per_call(t)).unwrap_or(f64::NAN))).collect();
    let mut invalid: Vec<Finding> = more.to_vec();
    invalid.extend(turns.iter().flat_map(|t| t.turn.invalid.iter().cloned()));
    let calls: BTreeSet<u32> = blocks.iter().map(|t| t.turn.measured.calls).collect();
    if calls.len() > 1 {
        let detail = format!("turns of different calls a sample: {calls:?}");
        invalid.push(Finding { code: "calls-changed".to_owned(), detail });
    }
    invalid.extend(unaccounted(&blocks));
    // Renewing and publishing lie outside the worker's account of samples; its wall time stands
    // in for it there, less the waits for a core that are taken off the supervisor's time, too.
    let walls = blocks.iter().fold((0.0, 0.0), |(ours, theirs), t| {
        let measured = &t.turn.measured;
        let account = measured.timed.0 + measured.untimed.0;
        let wall = measured.wall.0.min(t.turn.supervisor.0);
        // On a device the samples are the device's own time, and what its timer does between them (clocks, sensors,
        // waits) is in the worker's wall time alone; the timer holds device and host against each other.
        let on_device = measured.reuse.is_some();
        let account = if t.published || on_device { account.max(wall) } else { account };
        (ours + t.turn.supervisor.0, theirs + account)
    });
    Arm {
        provider: provider.clone(),
        replicate,
        calls: calls.first().copied().unwrap_or(0),
        sets: blocks.first().map_or(0, |t| t.turn.measured.sets),
        block_median_ns: medians,
        positions: blocks.iter().map(|t| t.turn.measured.position).collect(),
        summary: summarize(&all).unwrap_or_else(|_| nothing()),
        supervisor_wall_ns: Nanos(walls.0),
        worker_wall_ns: Nanos(walls.1),
        invalid,
        reuse: blocks.first().and_then(|t| t.turn.measured.reuse),
        kernels: blocks.first().map(|t| t.turn.measured.kernels.clone()).unwrap_or_default(),
        enqueue: summarize(&per_call_of(&blocks, |m| &m.enqueue_ns)).ok(),
        retaken: blocks.iter().map(|t| t.turn.measured.retaken).sum(),
        sm_mhz: median(&column_of(&blocks, |m| &m.telemetry.sm_mhz)).ok().map(Real),
    }
}

/// Of the supervisor's time for a turn on a device, the part that samples and what lies between them must make up at
/// least. Clocks, sensors and waits of the timer's take the rest, less than half as a rule.
const LEAST_SAMPLED: f64 = 0.15;

/// A finding when a device's samples are too short for the time that the turns took here: they were made smaller than they
/// were, or the worker did something else beside them.
fn unaccounted(blocks: &[&&TakenTurn]) -> Option<Finding> {
    let plain = blocks.iter().filter(|t| {
        let measured = &t.turn.measured;
        !t.published && measured.reuse.is_some() && !measured.elapsed_ns.is_empty()
    });
    let (ours, theirs) = plain.fold((0.0, 0.0), |(ours, theirs), t| {
        let measured = &t.turn.measured;
        (ours + t.turn.supervisor.0, theirs + measured.timed.0 + measured.untimed.0)
    });
    (theirs < LEAST_SAMPLED * ours).then(|| Finding {
        code: "clock-disagrees".to_owned(),
        detail: format!(
            "its samples and what lies between them last {:.3} ms in turns that took {:.3} ms here; accepted: at least {:.0} %",
            theirs / 1e6,
            ours / 1e6,
            LEAST_SAMPLED * 100.0
        ),
    })
}

/// A column of all turns, as it is.
fn column_of(turns: &[&&TakenTurn], column: impl Fn(&Measured) -> &Vec<f64>) -> Vec<f64> {
    turns.iter().flat_map(|t| column(&t.turn.measured).iter().copied()).collect()
}

/// A column of all turns, per call.
fn per_call_of(turns: &[&&TakenTurn], column: impl Fn(&Measured) -> &Vec<f64>) -> Vec<f64> {
    let per_call = |t: &&&TakenTurn| {
        let calls = f64::from(t.turn.measured.calls.max(1));
        column(&t.turn.measured).iter().map(|ns| ns / calls).collect::<Vec<_>>()
    };
    turns.iter().flat_map(per_call).collect()
}

/// The summary of no samples: it cannot be mistaken for a time.
fn nothing() -> Summary {
    let none = Real(f64::NAN);
    Summary {
        count: 0,
        min_ns: none,
        p10_ns: none,
        p50_ns: none,
        p90_ns: none,
        max_ns: none,
        mean_ns: none,
        cv: none,
    }
}

/// Every sample in the order taken, warm-up samples tagged; absent providers have none.
pub(super) fn samples(turns: &[TakenTurn], absent: &BTreeMap<ProviderId, String>) -> Samples {
    let taking = |taken: &&TakenTurn| !absent.contains_key(&taken.provider);
    let ids: BTreeSet<&ProviderId> = turns.iter().filter(taking).map(|t| &t.provider).collect();
    let providers: Vec<ProviderId> = ids.into_iter().cloned().collect();
    let mut rows = Vec::new();
    let mut columns: BTreeMap<String, Vec<f64>> = BTreeMap::new();
    for taken in turns.iter().filter(taking) {
        let measured = &taken.turn.measured;
        let provider = providers.iter().position(|id| *id == taken.provider).unwrap_or(0);
        // Profiles and designs are far smaller than these types; the bounds are the blob's.
        let sample = |elapsed_ns: &f64| Sample {
            provider: provider as u16,
            replicate: taken.replicate as u16,
            block: measured.block as u16,
            position: measured.position as u8,
            measured: measured.phase == Phase::Turn,
            calls: measured.calls,
            elapsed_ns: *elapsed_ns,
        };
        for (name, values) in measured.telemetry.columns().filter(|(_, values)| !values.is_empty())
        {
            let column = columns.entry(name.to_owned()).or_default();
            column.resize(rows.len(), f64::NAN);
            column.extend(values.into_iter().take(measured.elapsed_ns.len()));
        }
        rows.extend(measured.elapsed_ns.iter().map(sample));
    }
    for column in columns.values_mut() {
        column.resize(rows.len(), f64::NAN);
    }
    Samples { providers, rows, columns }
}

#[cfg(test)]
mod tests {
    use proofhouse_schema::device::{Reuse, Telemetry};

    use super::*;

    /// A turn of five samples of two milliseconds in which the runner saw twelve pass.
    fn turn(scale: f64, reuse: Option<Reuse>) -> TakenTurn {
        let elapsed_ns = vec![2e6 * scale; 5];
        let measured = Measured {
            case: "c".to_owned(),
            phase: Phase::Turn,
            block: 0,
            position: 0,
            calls: 10,
            sets: 1,
            timed: Nanos(elapsed_ns.iter().sum()),
            elapsed_ns,
            untimed: Nanos(0.0),
            wall: Nanos(11e6),
            modules: [5, 5],
            invalid: Vec::new(),
            enqueue_ns: Vec::new(),
            telemetry: Telemetry::default(),
            kernels: Vec::new(),
            reuse,
            retaken: 0,
        };
        let turn = Turn { measured, supervisor: Nanos(12e6), invalid: Vec::new() };
        let provider = "fake".parse().unwrap();
        TakenTurn { provider, replicate: 0, turn, published: false }
    }

    fn codes(taken: &TakenTurn) -> Vec<String> {
        let arm = arm(&taken.provider, 0, &[taken], &[]);
        arm.invalid.into_iter().map(|finding| finding.code).collect()
    }

    #[test]
    fn samples_of_a_device_that_are_too_small_for_the_time_that_passed_are_distrusted() {
        let same = Some(Reuse::Same);
        assert!(codes(&turn(1.0, same)).is_empty());
        assert!(codes(&turn(0.5, same)).is_empty(), "the timer's own work may take as long");
        assert_eq!(codes(&turn(0.1, same)), ["clock-disagrees"]);
        assert!(codes(&turn(0.1, None)).is_empty(), "the host's account is the judge's");
        let published = TakenTurn { published: true, ..turn(0.1, same) };
        assert!(codes(&published).is_empty(), "publishing takes time for a good reason");
    }
}

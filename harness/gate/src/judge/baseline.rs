//! The candidate's speed against each baseline's.

use std::collections::BTreeMap;

use proofhouse_schema::evidence::{Arm, BaselineObservation, CellRecord, Outcome, SessionRecord};
use proofhouse_schema::gate::TimingRule;
use proofhouse_schema::ids::ProviderId;
use proofhouse_schema::provider::ProviderFacts;
use proofhouse_schema::samples::Samples;
use proofhouse_schema::timing::Cache;
use proofhouse_schema::verdict::{Comparison, Require, Speed, Verdict};

use super::clocks::{ArmSamples, arm_samples, check_clocks};
use super::notes::Notes;
use super::outputs::{Demand, check_outputs, check_qualification};
use super::speed::{Controls, NOT_SLOWER, compare};

/// Findings of an arm that are no accident: the result was remembered, not computed.
const CHEATS: [&str; 1] = ["cached-result"];
/// How far above the largest measured ceiling a cold transfer may seem to be.
const CEILING_SLACK: f64 = 1.05;
/// How much slower a copy of 1 MiB must be cold than hot.
const COLD_OVER_HOT: f64 = 1.2;

/// One provider's samples, a list of blocks per replicate.
pub(crate) type Replicates = BTreeMap<u32, ArmSamples>;

/// The providers of a cell whose measurements every rule trusts.
pub(crate) struct Trusted<'a> {
    /// The baselines that took part.
    pub(crate) present: Vec<&'a ProviderFacts>,
    /// The samples of the candidate and of each of them.
    pub(crate) arms: BTreeMap<&'a ProviderId, Replicates>,
}

/// Judges a baseline cell.
pub(crate) fn judge(
    record: &CellRecord,
    seen: &BaselineObservation,
    samples: Option<&Samples>,
    session: Option<&SessionRecord>,
    notes: &mut Notes,
) -> Vec<Comparison> {
    let Some(rule) = &record.gate.timing else {
        notes.add(Verdict::Invalid, "no-contract", "the gate has no timing contract");
        return Vec::new();
    };
    let Some(trusted) = trusted(record, seen, rule, samples, session, notes) else {
        return Vec::new();
    };
    let controls = Controls::of(session, record.gate.device);
    let candidate = &record.candidate;
    trusted
        .present
        .iter()
        .map(|baseline| {
            let (ours, theirs) = (&trusted.arms[&candidate.id], &trusted.arms[&baseline.id]);
            let comparison = compare(candidate, baseline, (ours, theirs), rule, &controls);
            require(rule.require, &comparison, notes);
            comparison
        })
        .collect()
}

/// Holds a cell against every rule but those of a comparison; none when any of them speaks against it.
pub(crate) fn trusted<'a>(
    record: &'a CellRecord,
    seen: &BaselineObservation,
    rule: &TimingRule,
    samples: Option<&Samples>,
    session: Option<&SessionRecord>,
    notes: &mut Notes,
) -> Option<Trusted<'a>> {
    check_qualification(&seen.qualification, notes);
    let present = present(record, seen, notes);
    if present.is_empty() {
        notes.add(Verdict::NotRun, "no-baseline", "no baseline took part");
        return None;
    }
    let samples = checked_samples(seen, samples, notes)?;
    let candidate = &record.candidate;
    let mut arms: BTreeMap<&ProviderId, Replicates> = BTreeMap::new();
    for facts in std::iter::once(candidate).chain(present.iter().copied()) {
        check_contract(facts, rule, notes);
        check_timed(record, seen, facts, notes);
        arms.insert(&facts.id, replicates(record, seen, facts, samples, notes));
        check_floor(record, seen, session, facts, notes);
    }
    notes.is_clean().then_some(Trusted { present, arms })
}

/// The baselines that took part; the others must say why they did not.
fn present<'a>(
    record: &'a CellRecord,
    seen: &BaselineObservation,
    notes: &mut Notes,
) -> Vec<&'a ProviderFacts> {
    for (id, why) in &seen.absent {
        notes.add(Verdict::Pass, "baseline-absent", format!("{id} took no part: {why}"));
    }
    let mut present = Vec::new();
    for id in &record.gate.baselines {
        let facts = record.baselines.iter().find(|facts| facts.id == *id);
        let has_arm = seen.arms.iter().any(|arm| arm.provider == *id);
        match (facts, has_arm, seen.absent.contains_key(id)) {
            (Some(facts), true, false) => present.push(facts),
            (_, false, true) => {}
            (_, true, true) => {
                let detail = format!("{id} is called absent and has samples");
                notes.add(Verdict::Invalid, "baseline-contradicts", detail);
            }
            (_, _, false) => {
                let detail = format!("{id} is declared, has no complete record and no reason");
                notes.add(Verdict::Invalid, "baseline-missing", detail);
            }
        }
    }
    for arm in &seen.arms {
        if arm.provider != record.candidate.id && !record.gate.baselines.contains(&arm.provider) {
            let detail = format!("{} has samples and no part in this gate", arm.provider);
            notes.add(Verdict::Invalid, "foreign-arm", detail);
        }
    }
    present
}

fn checked_samples<'a>(
    seen: &BaselineObservation,
    samples: Option<&'a Samples>,
    notes: &mut Notes,
) -> Option<&'a Samples> {
    let Some(samples) = samples.filter(|samples| !samples.rows.is_empty()) else {
        let detail = format!("the sample blob {} is absent or empty", seen.samples.sha256.short());
        notes.add(Verdict::Invalid, "no-samples", detail);
        return None;
    };
    if samples.rows.len() as u64 != seen.samples.rows {
        let detail = format!(
            "the sample blob has {} rows, the record names {}",
            samples.rows.len(),
            seen.samples.rows
        );
        notes.add(Verdict::Invalid, "samples-disagree", detail);
        return None;
    }
    Some(samples)
}

/// A provider that times more than the contract names is another measurement (P42).
fn check_contract(facts: &ProviderFacts, rule: &TimingRule, notes: &mut Notes) {
    for include in &facts.includes {
        if !rule.contract.includes.contains(include) {
            let detail = format!(
                "{} times {include} besides the operator, the contract names {:?}",
                facts.id, rule.contract.includes
            );
            notes.add(Verdict::Invalid, "contract-differs", detail);
        }
    }
}

/// Outputs of timed calls must pass the oracle (P34).
fn check_timed(
    record: &CellRecord,
    seen: &BaselineObservation,
    facts: &ProviderFacts,
    notes: &mut Notes,
) {
    let passes = seen.timed.get(&facts.id).map(Vec::as_slice).unwrap_or_default();
    if passes.is_empty() {
        let detail = format!("no output of a timed call of {} was compared", facts.id);
        notes.add(Verdict::Invalid, "timed-unchecked", detail);
    }
    let who = format!("{}: ", facts.id);
    let empty = record.case.dims.get("rows") == Some(&0);
    for pass in passes {
        if pass.outcome == Outcome::Ran {
            let demand = Demand { empty, wrong: Verdict::Invalid, finite: true };
            check_outputs(&who, pass, &demand, notes);
        } else {
            let detail = format!("{who}a timed call did not run: {:?}", pass.outcome);
            notes.add(Verdict::Invalid, "timed-unchecked", detail);
        }
    }
}

/// The samples of every replicate of a provider, with everything that makes them untrustworthy noted.
fn replicates(
    record: &CellRecord,
    seen: &BaselineObservation,
    facts: &ProviderFacts,
    samples: &Samples,
    notes: &mut Notes,
) -> Replicates {
    let arms: Vec<&Arm> = seen.arms.iter().filter(|arm| arm.provider == facts.id).collect();
    let mut replicates = Replicates::new();
    for arm in &arms {
        for finding in &arm.invalid {
            let cheat = CHEATS.contains(&finding.code.as_str());
            let ours = facts.id == record.candidate.id;
            let verdict = if cheat && ours { Verdict::Fail } else { Verdict::Invalid };
            let detail =
                format!("{}, replicate {}: {}", arm.provider, arm.replicate, finding.detail);
            notes.add(verdict, &finding.code, detail);
        }
        let Some(found) = arm_samples(arm, samples, notes) else { continue };
        check_clocks(arm, &found, notes);
        if replicates.insert(arm.replicate, found).is_some() {
            let detail = format!("{} has replicate {} twice", facts.id, arm.replicate);
            notes.add(Verdict::Invalid, "replicate-twice", detail);
        }
    }
    if arms.len() < record.profile.replicates as usize || arms.is_empty() {
        let detail = format!(
            "{} has {} replicates, the profile asks for {}",
            facts.id,
            arms.len(),
            record.profile.replicates
        );
        notes.add(Verdict::Invalid, "replicate-missing", detail);
    }
    replicates
}

/// A cold call cannot be faster than its bytes allow (P36); hot results have no such floor.
fn check_floor(
    record: &CellRecord,
    seen: &BaselineObservation,
    session: Option<&SessionRecord>,
    facts: &ProviderFacts,
    notes: &mut Notes,
) {
    let cold = record.gate.timing.as_ref().is_some_and(|t| t.contract.cache == Cache::Cold);
    let (true, Some(traffic)) = (cold, record.traffic) else { return };
    let ceiling = session
        .iter()
        .flat_map(|session| &session.ceilings)
        .filter(|(name, _)| {
            name.ends_with("_bytes_per_s")
                && name.starts_with("cuda_") != record.gate.device.is_cpu()
        })
        .filter_map(|(_, probe)| probe.known().map(|rate| rate.0))
        .filter(|rate| rate.is_finite() && *rate > 0.0)
        .fold(0.0_f64, f64::max);
    check_cold_control(record, session, notes);
    if ceiling == 0.0 {
        let detail = "a cold speed needs a measured ceiling, and the session has none";
        notes.add(Verdict::Invalid, "no-ceiling", detail);
        return;
    }
    let bytes = traffic.read.0 as f64 + traffic.written.0 as f64;
    let floor_ns = bytes / (CEILING_SLACK * ceiling) * 1e9;
    for arm in seen.arms.iter().filter(|arm| arm.provider == facts.id) {
        let median = arm.summary.p50_ns.0;
        if median.is_nan() || median < floor_ns {
            let detail = format!(
                "{}, replicate {}: {median:.0} ns a call for {bytes:.0} bytes; the fastest memory traffic of this session needs {floor_ns:.0} ns",
                facts.id, arm.replicate
            );
            notes.add(Verdict::Invalid, "faster-than-memory", detail);
        }
    }
}

/// On a device a copy of 1 MiB must be slower cold than hot, else what is called cold is not (P1).
fn check_cold_control(record: &CellRecord, session: Option<&SessionRecord>, notes: &mut Notes) {
    if record.gate.device.is_cpu() {
        return;
    }
    let found = session.and_then(|session| session.ceilings.get("cuda_cold_over_hot"));
    match found.and_then(|probe| probe.known()) {
        Some(ratio) if ratio.0 > COLD_OVER_HOT => {}
        found => {
            let found = found.map_or("not measured".to_owned(), |ratio| format!("{:.3}", ratio.0));
            let detail = format!(
                "cold over hot of a 1 MiB copy is {found}; accepted: above {COLD_OVER_HOT}, else cold is not cold"
            );
            notes.add(Verdict::Invalid, "cold-control", detail);
        }
    }
}

/// Notes what the requirement makes of a comparison.
fn require(require: Require, comparison: &Comparison, notes: &mut Notes) {
    let verdict = satisfies(require, comparison);
    let against = format!("{} {}", comparison.baseline, comparison.baseline_version);
    let number = comparison.estimate.as_ref().map_or(String::new(), |e| {
        format!(
            " (ratio {:.3}, interval {:.3} to {:.3}, margin {})",
            e.ratio.0, e.low.0, e.high.0, comparison.margin
        )
    });
    let detail = format!("{} against {against}{number}", comparison.speed);
    match verdict {
        Verdict::Pass => {}
        Verdict::Fail => notes.add(verdict, "speed-requirement", detail),
        _ => {
            let why = comparison.reasons.iter().map(|r| r.detail.as_str()).collect::<Vec<_>>();
            notes.add(verdict, "speed-undecided", format!("{detail}: {}", why.join("; ")));
        }
    }
}

/// The verdict that a requirement gives a comparison.
#[must_use]
pub fn satisfies(require: Require, comparison: &Comparison) -> Verdict {
    if comparison.estimate.is_none() {
        return Verdict::Invalid;
    }
    let not_slower = comparison.reasons.iter().any(|reason| reason.code == NOT_SLOWER);
    match (require, comparison.speed) {
        (Require::Measured, _) => Verdict::Pass,
        (Require::NoLoss, Speed::Inconclusive) if not_slower => Verdict::Pass,
        (_, Speed::Inconclusive) => Verdict::Inconclusive,
        (_, Speed::Win | Speed::Lead) => Verdict::Pass,
        (Require::NoLoss, Speed::Parity | Speed::Even) => Verdict::Pass,
        (Require::Win, Speed::Parity | Speed::Even) | (_, Speed::Loss | Speed::Trail) => {
            Verdict::Fail
        }
    }
}

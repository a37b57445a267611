//! One candidate against one baseline: samples to a comparison, held against the session's controls.

use proofhouse_schema::device::DeviceKind;
use proofhouse_schema::evidence::{Control, SessionRecord};
use proofhouse_schema::gate::TimingRule;
use proofhouse_schema::provider::ProviderFacts;
use proofhouse_schema::verdict::{Comparison, Reason, Speed};

use super::baseline::Replicates;
use crate::stats::{
    Location, Margin, NoiseFloor, PairJudgment, PairedSamples, Rules, StatsError, Turn, judge_pair,
};

/// What the session's controls allow.
#[derive(Clone)]
pub(crate) struct Controls {
    /// The largest difference that the A/A controls allow between a provider and itself, as a fraction.
    pub(crate) floor: Option<f64>,
    /// Why nothing may be called, if so.
    pub(crate) blind: Option<Reason>,
    /// Why a tie may not be called, if so.
    pub(crate) weak: Option<Reason>,
}

impl Controls {
    /// What the controls of a session allow. No session, or no A/A control: nothing may be called.
    pub(crate) fn of(session: Option<&SessionRecord>, device: DeviceKind) -> Self {
        let controls = session.map(|s| s.controls.as_slice()).unwrap_or_default();
        let named = |name: &str| {
            let fits = move |c: &&Control| c.name == name && c.device == device;
            controls.iter().filter(fits).collect::<Vec<_>>()
        };
        let (same, slowed) = (named("a-a"), named("a-b"));
        let blind = if same.is_empty() {
            let detail = "the session compared no provider with itself, so its noise is not known";
            Some(Reason::new("no-control", detail))
        } else {
            same.iter().chain(&slowed).find(|c| is_false_call(c)).map(|control| {
                let detail = format!(
                    "the session's control {} called {} where {} was planted",
                    control.name,
                    control.speed,
                    planted(control)
                );
                Reason::new("control-wrong", detail)
            })
        };
        let weak = slowed.iter().find(|control| !control.right).map(|control| {
            let detail = format!("the session did not see {}", planted(control));
            Reason::new("control-weak", detail)
        });
        Self { floor: floor(&same), blind, weak }
    }
}

fn floor(same: &[&Control]) -> Option<f64> {
    let reach = |control: &&Control| {
        let estimate = control.estimate.as_ref()?;
        Some(estimate.low.0.ln().abs().max(estimate.high.0.ln().abs()).exp_m1())
    };
    let reaches: Option<Vec<f64>> = same.iter().map(reach).collect();
    let largest = reaches?.into_iter().fold(f64::NEG_INFINITY, f64::max);
    (largest.is_finite() && largest >= 0.0).then_some(largest)
}

/// A control that called what was not there. One that saw nothing is weak, not wrong.
fn is_false_call(control: &Control) -> bool {
    let faster = matches!(control.speed, Speed::Win | Speed::Lead);
    let slower = matches!(control.speed, Speed::Loss | Speed::Trail);
    if control.planted == 0.0 { !control.right && (faster || slower) } else { faster }
}

fn planted(control: &Control) -> String {
    if control.planted == 0.0 {
        "no difference".to_owned()
    } else {
        format!("a slowdown of {} %", control.planted * 100.0)
    }
}

/// The code of a reason that says that the candidate is not slower, though it is not known whether it is faster.
pub(crate) const NOT_SLOWER: &str = "not-slower";

/// Compares one provider with another.
pub(crate) fn compare(
    candidate: &ProviderFacts,
    baseline: &ProviderFacts,
    (ours, theirs): (&Replicates, &Replicates),
    rule: &TimingRule,
    controls: &Controls,
) -> Comparison {
    let mut comparison = Comparison {
        candidate: candidate.id.clone(),
        baseline: baseline.id.clone(),
        baseline_version: baseline.version.known().cloned().unwrap_or_else(|| "unknown".into()),
        speed: Speed::Inconclusive,
        estimate: None,
        margin: rule.margin,
        reasons: Vec::new(),
    };
    let judged =
        paired(ours, theirs).and_then(|samples| judge_pair(&samples, &rules(rule, controls)?));
    conclude(judged, controls, &mut comparison);
    comparison
}

/// What is said of two providers by what was judged of their estimate, and by the controls.
pub(crate) fn conclude(
    judged: Result<PairJudgment, StatsError>,
    controls: &Controls,
    comparison: &mut Comparison,
) {
    match judged {
        Ok(judged) => {
            comparison.speed = judged.speed;
            comparison.estimate = Some(judged.estimate.to_record());
            comparison.reasons = judged.reasons;
            note_not_slower(controls, comparison);
            apply(controls, comparison);
        }
        Err(error) => comparison.reasons.push(Reason::new(error.code(), error.to_string())),
    }
}

/// The gate's margin and the session's noise floor.
pub(crate) fn rules(rule: &TimingRule, controls: &Controls) -> Result<Rules, StatsError> {
    let noise_floor = controls.floor.map_or(NoiseFloor::Missing, NoiseFloor::Known);
    Ok(Rules { margin: Margin::new(rule.margin)?, noise_floor })
}

/// Two providers' samples as the judge pairs them.
pub(crate) fn paired(ours: &Replicates, theirs: &Replicates) -> Result<PairedSamples, StatsError> {
    Ok(PairedSamples::from_turns(&turns(ours), &turns(theirs))?.with_location(Location::Median))
}

fn turns(replicates: &Replicates) -> Vec<Turn> {
    replicates
        .iter()
        .flat_map(|(&replicate, arm)| {
            arm.blocks.iter().map(move |block| Turn {
                replicate,
                block: block.block,
                position: block.position,
                per_call_ns: block.per_call_ns,
            })
        })
        .collect()
}

/// Notes an interval across the upper margin only: faster or a tie, and certainly no loss.
fn note_not_slower(controls: &Controls, comparison: &mut Comparison) {
    let across = matches!(comparison.reasons.as_slice(), [only] if only.code == "across-margin");
    let least = 1.0 / (1.0 + comparison.margin);
    let above = comparison.estimate.as_ref().is_some_and(|e| e.low.0 >= least);
    let quiet = controls.floor.is_some_and(|floor| floor <= comparison.margin);
    if across && above && quiet && controls.blind.is_none() && controls.weak.is_none() {
        let detail = format!("the whole interval lies above {least:.4}, so this is no loss");
        comparison.reasons.push(Reason::new(NOT_SLOWER, detail));
    }
}

/// Takes back what the controls do not allow.
fn apply(controls: &Controls, comparison: &mut Comparison) {
    let tie = matches!(comparison.speed, Speed::Parity | Speed::Even);
    for reason in controls.blind.iter().chain(controls.weak.iter().filter(|_| tie)) {
        comparison.speed = Speed::Inconclusive;
        comparison.reasons.push(reason.clone());
    }
}

//! From an estimate to what may be said of it.

use proofhouse_schema::verdict::{Reason, Speed};

use super::error::StatsError;
use super::estimate::{LogInterval, PairEstimate, estimate_pair};
use super::order::checked_fraction;
use super::paired::PairedSamples;

/// Replicates from which on win, parity and loss may be said.
pub const FEWEST_REPLICATES: usize = 3;

/// The difference that a gate cares about, as a fraction, declared before data are seen.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Margin(f64);

impl Margin {
    /// A margin above 0 and below 1.
    ///
    /// # Errors
    /// [`StatsError::BadValue`].
    pub fn new(fraction: f64) -> Result<Self, StatsError> {
        checked_fraction("margin", fraction).map(Self)
    }

    /// The margin as a fraction.
    #[must_use]
    pub fn fraction(self) -> f64 {
        self.0
    }

    pub(super) fn log(self) -> f64 {
        self.0.ln_1p()
    }
}

/// What the session's A/A control says of differences that mean nothing.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum NoiseFloor {
    /// Differences up to this fraction were seen between a provider and itself.
    Known(f64),
    /// The comparison is a control itself and has no floor above it.
    Control,
    /// The session has no control; nothing is called.
    Missing,
}

/// The rules of a comparison.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rules {
    /// The gate's margin.
    pub margin: Margin,
    /// The session's noise floor.
    pub noise_floor: NoiseFloor,
}

/// What is said of a comparison, the numbers behind it, and why it is not more.
#[derive(Clone, Debug, PartialEq)]
pub struct PairJudgment {
    /// What is said.
    pub speed: Speed,
    /// The numbers, on the scale of logarithms; [`PairEstimate::to_record`] stores them.
    pub estimate: PairEstimate,
    /// Why: what was called and by how much, or what stood against it. Never empty.
    pub reasons: Vec<Reason>,
}

/// Estimates a comparison and says what may be said of it.
///
/// - One or two replicates are exploratory: lead, even or trail, never win or loss.
/// - The interval must lie wholly on one side of the margin, or wholly inside it.
/// - The ratio of each order alone must lie on that side too; and where nothing is called, no order
///   alone may show a loss that the other one hides.
/// - Nothing is called at or below the noise floor, and no parity when the floor is above the
///   margin.
///
/// # Errors
/// [`StatsError`] when the data allow no estimate; the comparison is invalid.
pub fn judge_pair(samples: &PairedSamples, rules: &Rules) -> Result<PairJudgment, StatsError> {
    judge_estimate(estimate_pair(samples)?, rules)
}

/// Says what may be said of an estimate, by the rules of [`judge_pair`].
///
/// # Errors
/// [`StatsError::BadValue`] for a noise floor that is none.
pub fn judge_estimate(estimate: PairEstimate, rules: &Rules) -> Result<PairJudgment, StatsError> {
    if let NoiseFloor::Known(floor) = rules.noise_floor
        && !(floor.is_finite() && floor >= 0.0)
    {
        return Err(super::distribution::bad("noise floor", floor, "at least 0"));
    }
    let side = Side::of(estimate.ratio, rules.margin);
    let exploratory = estimate.replicate_means.len() < FEWEST_REPLICATES;
    let mut reasons = objections(&estimate, side, rules);
    if !reasons.is_empty() {
        return Ok(PairJudgment { speed: Speed::Inconclusive, estimate, reasons });
    }
    let speed = side.speed(exploratory);
    reasons.push(Reason::new(side.code(), describe(&estimate, rules.margin)));
    if exploratory {
        let count = estimate.replicate_means.len();
        reasons.push(Reason::new(
            "exploratory",
            format!("{count} replicates; win, parity and loss need {FEWEST_REPLICATES}"),
        ));
    }
    Ok(PairJudgment { speed, estimate, reasons })
}

/// Where an interval lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Side {
    Above,
    Inside,
    Below,
    Across,
}

impl Side {
    fn of(interval: LogInterval, margin: Margin) -> Self {
        let margin = margin.log();
        match (interval.low(), interval.high()) {
            (low, _) if low > margin => Self::Above,
            (_, high) if high < -margin => Self::Below,
            (low, high) if low >= -margin && high <= margin => Self::Inside,
            // Also where an end is no number.
            _ => Self::Across,
        }
    }

    fn speed(self, exploratory: bool) -> Speed {
        match (self, exploratory) {
            (Self::Above, false) => Speed::Win,
            (Self::Inside, false) => Speed::Parity,
            (Self::Below, false) => Speed::Loss,
            (Self::Above, true) => Speed::Lead,
            (Self::Inside, true) => Speed::Even,
            (Self::Below, true) => Speed::Trail,
            (Self::Across, _) => Speed::Inconclusive,
        }
    }

    fn code(self) -> &'static str {
        match self {
            Self::Above => "above-margin",
            Self::Inside => "inside-margin",
            Self::Below => "below-margin",
            Self::Across => "across-margin",
        }
    }
}

fn describe(estimate: &PairEstimate, margin: Margin) -> String {
    let ratio = estimate.ratio;
    format!(
        "ratio {:.4}, 95 % interval {:.4} to {:.4}, margin {} %",
        ratio.center.exp(),
        ratio.low().exp(),
        ratio.high().exp(),
        100.0 * margin.fraction(),
    )
}

/// Everything that stands against a call.
fn objections(estimate: &PairEstimate, side: Side, rules: &Rules) -> Vec<Reason> {
    let mut reasons = Vec::new();
    match estimate.order_effect {
        None => reasons.push(Reason::new(
            "order-not-varied",
            "some replicate ran all blocks in one order, so place and provider cannot be told apart",
        )),
        Some(effect) => reasons.extend(order_objection(estimate.ratio, effect, side, rules.margin)),
    }
    if side == Side::Across {
        reasons.push(Reason::new(side.code(), describe(estimate, rules.margin)));
    }
    reasons.extend(noise_objection(estimate, side, rules));
    reasons
}

/// An order in which the same would not be said.
///
/// How well the effect itself is known does not matter: what is seen in one order only is a matter of place, and not of
/// the provider.
fn order_objection(
    ratio: LogInterval,
    effect: LogInterval,
    side: Side,
    margin: Margin,
) -> Option<Reason> {
    let alone = [0.5, -0.5].map(|part| ratio.center + part * effect.center);
    let all = |holds: &dyn Fn(f64) -> bool| alone.iter().all(|center| holds(*center));
    let agree = match side {
        // An interval across the margin is an objection of its own, unless it shows at least that there is no loss.
        Side::Across => ratio.low() < -margin.log() || all(&|center| center >= -margin.log()),
        _ => all(&|center| Side::of(LogInterval { center, half_width: 0.0 }, margin) == side),
    };
    if agree {
        return None;
    }
    let [first, second] = alone.map(f64::exp);
    let (low, high) = (effect.low().exp(), effect.high().exp());
    let detail = format!(
        "the ratio is {first:.4} when the candidate runs first and {second:.4} when it runs second, {low:.4} to {high:.4} of one another"
    );
    Some(Reason::new("order-effect", detail))
}

fn noise_objection(estimate: &PairEstimate, side: Side, rules: &Rules) -> Option<Reason> {
    let floor = match rules.noise_floor {
        NoiseFloor::Control => return None,
        NoiseFloor::Missing => {
            return Some(Reason::new("no-noise-floor", "the session has no A/A control"));
        }
        NoiseFloor::Known(floor) => floor,
    };
    let percent = 100.0 * floor;
    match side {
        Side::Above | Side::Below if estimate.ratio.center.abs() <= floor.ln_1p() => {
            let found = 100.0 * estimate.ratio.center.abs().exp_m1();
            let detail = format!("a difference of {found:.2} %; the noise floor is {percent:.2} %");
            Some(Reason::new("under-noise-floor", detail))
        }
        Side::Inside if floor > rules.margin.fraction() => {
            let margin = 100.0 * rules.margin.fraction();
            let detail =
                format!("the noise floor of {percent:.2} % is above the margin of {margin} %");
            Some(Reason::new("noise-above-margin", detail))
        }
        _ => None,
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::paired::Turn;
    use super::*;

    /// Replicates of four blocks about these log ratios, with small spread and an order effect.
    pub(in super::super) fn paired(means: &[f64], order_effect: f64) -> PairedSamples {
        let (mut candidate, mut baseline) = (Vec::new(), Vec::new());
        for (replicate, mean) in (0..).zip(means) {
            for block in 0..4 {
                let place = block % 2;
                let sign = if place == 0 { 0.5 } else { -0.5 };
                let wiggle = if block < 2 { 0.0005 } else { -0.0005 };
                let log = mean + sign * order_effect + wiggle;
                let base = 1000.0 + f64::from(block) + 10.0 * f64::from(replicate);
                let turn = |position, per_call_ns| Turn { replicate, block, position, per_call_ns };
                candidate.push(turn(place, base));
                baseline.push(turn(1 - place, base * log.exp()));
            }
        }
        PairedSamples::from_turns(&candidate, &baseline).unwrap()
    }

    fn rules(margin: f64, floor: f64) -> Rules {
        Rules { margin: Margin::new(margin).unwrap(), noise_floor: NoiseFloor::Known(floor) }
    }

    fn codes(judgment: &PairJudgment) -> Vec<&str> {
        judgment.reasons.iter().map(|reason| reason.code.as_str()).collect()
    }

    #[test]
    fn three_replicates_say_win_parity_loss_or_nothing() {
        let said =
            |means: &[f64]| judge_pair(&paired(means, 0.0), &rules(0.01, 0.005)).unwrap().speed;
        assert_eq!(said(&[0.05, 0.051, 0.052]), Speed::Win);
        assert_eq!(said(&[0.0, 0.001, -0.001]), Speed::Parity);
        assert_eq!(said(&[-0.05, -0.051, -0.052]), Speed::Loss);
        assert_eq!(said(&[0.0, 0.05, -0.04]), Speed::Inconclusive);
        assert_eq!(said(&[0.012, 0.011, 0.013]), Speed::Inconclusive);
    }

    #[test]
    fn fewer_replicates_can_never_say_win_or_loss() {
        for count in 1..FEWEST_REPLICATES {
            for mean in [-3.0, -0.5, -0.05, 0.0, 0.05, 0.5, 3.0] {
                let judged =
                    judge_pair(&paired(&vec![mean; count], 0.0), &rules(0.01, 0.005)).unwrap();
                assert!(
                    matches!(judged.speed, Speed::Lead | Speed::Even | Speed::Trail),
                    "{count} {mean}: {:?}",
                    judged.speed
                );
                assert!(codes(&judged).contains(&"exploratory"));
            }
        }
        let one = |mean| judge_pair(&paired(&[mean], 0.0), &rules(0.01, 0.0)).unwrap().speed;
        assert_eq!((one(0.1), one(0.0), one(-0.1)), (Speed::Lead, Speed::Even, Speed::Trail));
    }

    #[test]
    fn an_interval_that_touches_the_margin_is_no_win() {
        let margin = Margin::new(0.01).unwrap();
        let at = |center, half_width| Side::of(LogInterval { center, half_width }, margin);
        let edge = margin.log();
        assert_eq!(at(edge + 0.01, 0.01), Side::Across);
        assert_eq!(at(edge + 0.01, 0.009), Side::Above);
        assert_eq!(at(0.0, edge), Side::Inside);
        assert_eq!(at(0.0, edge * 1.001), Side::Across);
        assert_eq!(at(-edge - 0.01, 0.009), Side::Below);
        assert_eq!(at(f64::NAN, 0.1), Side::Across);
        assert_eq!(at(0.0, f64::NAN), Side::Across);
    }

    #[test]
    fn margins_are_symmetric_on_the_scale_of_ratios() {
        let judged = judge_pair(&paired(&[-0.05, -0.051, -0.052], 0.0), &rules(0.01, 0.0)).unwrap();
        let mirrored = judge_pair(&paired(&[0.05, 0.051, 0.052], 0.0), &rules(0.01, 0.0)).unwrap();
        assert_eq!((judged.speed, mirrored.speed), (Speed::Loss, Speed::Win));
    }

    #[test]
    fn nothing_is_called_under_the_noise_floor() {
        let win = paired(&[0.05, 0.051, 0.052], 0.0);
        let judged = judge_pair(&win, &rules(0.01, 0.06)).unwrap();
        assert_eq!(judged.speed, Speed::Inconclusive);
        assert_eq!(codes(&judged), ["under-noise-floor"]);
        let even = paired(&[0.0, 0.001, -0.001], 0.0);
        let judged = judge_pair(&even, &rules(0.01, 0.02)).unwrap();
        assert_eq!(codes(&judged), ["noise-above-margin"]);
        assert_eq!(judged.speed, Speed::Inconclusive);
    }

    #[test]
    fn without_a_control_nothing_is_called() {
        let margin = Margin::new(0.01).unwrap();
        let missing = Rules { margin, noise_floor: NoiseFloor::Missing };
        for means in [[0.05, 0.051, 0.052], [0.0, 0.001, -0.001]] {
            let judged = judge_pair(&paired(&means, 0.0), &missing).unwrap();
            assert_eq!(judged.speed, Speed::Inconclusive);
            assert_eq!(codes(&judged), ["no-noise-floor"]);
        }
        let control = Rules { margin, noise_floor: NoiseFloor::Control };
        let judged = judge_pair(&paired(&[0.05, 0.051, 0.052], 0.0), &control).unwrap();
        assert_eq!(judged.speed, Speed::Win);
    }

    #[test]
    fn an_order_effect_outside_the_margin_leaves_nothing_to_say() {
        let means = [0.05, 0.051, 0.052];
        let strong = judge_pair(&paired(&means, 0.2), &rules(0.01, 0.005)).unwrap();
        assert_eq!(strong.speed, Speed::Inconclusive);
        assert_eq!(codes(&strong), ["order-effect"]);
        let reversed = judge_pair(&paired(&means, -0.2), &rules(0.01, 0.005)).unwrap();
        assert_eq!(codes(&reversed), ["order-effect"]);
        let weak = judge_pair(&paired(&means, 0.005), &rules(0.01, 0.005)).unwrap();
        assert_eq!(weak.speed, Speed::Win);
    }

    #[test]
    fn what_is_said_in_one_order_only_is_not_said_however_uncertain_the_effect() {
        let estimate = |center, effect| PairEstimate {
            ratio: LogInterval { center, half_width: 0.005 },
            replicate_means: vec![center; 5],
            freedom: 4,
            p_value: 0.001,
            order_effect: Some(LogInterval { center: effect, half_width: 10.0 }),
            between_sd: None,
            within_sd: None,
        };
        let said = |center, effect| {
            let judged = judge_estimate(estimate(center, effect), &rules(0.01, 0.001)).unwrap();
            (judged.speed, codes(&judged).join(" "))
        };
        // A penalty on the first place: 4 % faster where the candidate is second, even where it is first.
        for (center, effect) in [(0.02, -0.04), (0.02, 0.04), (-0.02, 0.04), (0.004, 0.02)] {
            assert_eq!(said(center, effect), (Speed::Inconclusive, "order-effect".to_owned()));
        }
        assert_eq!(said(0.03, -0.03).0, Speed::Win, "over the margin in both");
        assert_eq!(said(-0.03, -0.03).0, Speed::Loss);
        assert_eq!(said(0.0, 0.015).0, Speed::Parity);
        // Across the upper margin, which shows no loss, unless one order alone does.
        assert_eq!(said(0.012, 0.01), (Speed::Inconclusive, "across-margin".to_owned()));
        let hidden = said(0.012, 0.06);
        assert_eq!(hidden, (Speed::Inconclusive, "order-effect across-margin".to_owned()));
    }

    #[test]
    fn an_order_effect_that_cannot_change_the_side_is_only_told() {
        let fast = judge_pair(&paired(&[0.7, 0.701, 0.702], 0.2), &rules(0.01, 0.005)).unwrap();
        assert_eq!(fast.speed, Speed::Win);
        assert!(fast.estimate.order_effect.is_some_and(|effect| effect.low() > 0.15));
        let slow = judge_pair(&paired(&[-0.7, -0.701, -0.7], 0.2), &rules(0.01, 0.005)).unwrap();
        assert_eq!(slow.speed, Speed::Loss);
        let near = judge_pair(&paired(&[0.1, 0.101, 0.102], 0.2), &rules(0.01, 0.005)).unwrap();
        assert_eq!(codes(&near), ["order-effect"]);
        let tie = judge_pair(&paired(&[0.0, 0.0005, 0.001], 0.2), &rules(0.01, 0.005)).unwrap();
        assert_eq!(codes(&tie), ["order-effect"]);
    }

    #[test]
    fn blocks_in_one_order_only_say_nothing() {
        let turn = |replicate, block, position, per_call_ns| Turn {
            replicate,
            block,
            position,
            per_call_ns,
        };
        let (mut candidate, mut baseline) = (Vec::new(), Vec::new());
        for replicate in 0..3 {
            for block in 0..4 {
                let time = 100.0 + f64::from(block + replicate) / 100.0;
                candidate.push(turn(replicate, block, 0, time));
                baseline.push(turn(replicate, block, 1, 1.5 * time));
            }
        }
        let samples = PairedSamples::from_turns(&candidate, &baseline).unwrap();
        let judged = judge_pair(&samples, &rules(0.01, 0.005)).unwrap();
        assert_eq!(judged.speed, Speed::Inconclusive);
        assert_eq!(codes(&judged), ["order-not-varied"]);
    }

    #[test]
    fn margins_and_floors_that_are_no_fractions_are_refused() {
        for bad in [0.0, -0.01, 1.0, f64::NAN, f64::INFINITY] {
            assert!(Margin::new(bad).is_err(), "{bad}");
        }
        for bad in [-0.01, f64::NAN, f64::INFINITY] {
            assert!(judge_pair(&paired(&[0.0; 3], 0.0), &rules(0.01, bad)).is_err(), "{bad}");
        }
    }
}

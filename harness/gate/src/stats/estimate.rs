//! From replicates to an estimate with its interval and its order effect.

use proofhouse_schema::real::Real;
use proofhouse_schema::verdict::{Estimate, OrderEffect};

use super::describe::{mean, median_of_finite, variance};
use super::distribution::{student_quantile, student_two_sided_p};
use super::error::StatsError;
use super::paired::{PairedBlock, PairedReplicate, PairedSamples};

/// Confidence of every interval.
pub const CONFIDENCE: f64 = 0.95;
/// Blocks that an interval within a single replicate needs.
const FEWEST_BLOCKS: usize = 4;

/// How the log ratios of one order of one replicate become one number.
///
/// It is declared before data are seen; the two are never compared with one another.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Location {
    /// The mean: the default.
    #[default]
    Mean,
    /// The median, which single interrupted turns do not move.
    /// An interval within one replicate always uses the mean.
    Median,
}

impl Location {
    /// The location of at least one value, all finite.
    fn of(self, values: &[f64]) -> f64 {
        match self {
            Self::Mean => mean(values),
            Self::Median => median_of_finite(values),
        }
    }
}

/// A center with its interval, on the scale of natural logarithms.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LogInterval {
    /// The center.
    pub center: f64,
    /// Half the width.
    pub half_width: f64,
}

impl LogInterval {
    /// The lower end.
    #[must_use]
    pub fn low(&self) -> f64 {
        self.center - self.half_width
    }

    /// The upper end.
    #[must_use]
    pub fn high(&self) -> f64 {
        self.center + self.half_width
    }

    /// The largest distance from zero that the interval allows.
    #[must_use]
    pub fn reach(&self) -> f64 {
        self.center.abs() + self.half_width
    }
}

/// What paired samples say, on the scale of natural logarithms.
#[derive(Clone, Debug, PartialEq)]
pub struct PairEstimate {
    /// Baseline time over candidate time.
    pub ratio: LogInterval,
    /// The mean of each replicate.
    pub replicate_means: Vec<f64>,
    /// Degrees of freedom of the interval.
    pub freedom: u32,
    /// Two-sided p-value of no difference.
    pub p_value: f64,
    /// Ratio when the candidate ran first over ratio when it ran second; none when all blocks of
    /// some replicate had the same order.
    pub order_effect: Option<LogInterval>,
    /// Standard deviation between replicates, beyond what blocks explain; none for one replicate.
    pub between_sd: Option<f64>,
    /// Standard deviation of blocks within a replicate and an order.
    pub within_sd: Option<f64>,
}

/// Estimates ratio and order effect.
///
/// With two replicates or more, the intervals are Student's on the replicates' means.
/// With one, they are Student's on its blocks, pooled over both orders, and exploratory.
/// A replicate's value gives both orders the same weight, which with [`Location::Mean`] is the
/// plain mean when they are equally frequent, as drawn orders are.
///
/// # Errors
/// [`StatsError::TooFewBlocks`] for one replicate of fewer than four blocks.
pub fn estimate_pair(samples: &PairedSamples) -> Result<PairEstimate, StatsError> {
    let location = match samples.replicates() {
        [_] => Location::Mean,
        _ => samples.location(),
    };
    let orders = || samples.replicates().iter().map(Orders::of);
    let means: Vec<f64> = orders().map(|orders| orders.center(location)).collect();
    let effects: Option<Vec<f64>> = orders().map(|orders| orders.effect(location)).collect();
    let within = pooled_within(samples);
    let (ratio, order_effect) = match samples.replicates() {
        [] => return Err(StatsError::NoSamples),
        [only] => within_one(only, within)?,
        _ => {
            let effect = effects.map(|effects| of_replicates(&effects)).transpose()?;
            (of_replicates(&means)?, effect)
        }
    };
    let blocks = samples.blocks_per_replicate() as f64;
    let between_sd = (means.len() > 1).then(|| {
        let of_blocks = within.map_or(0.0, |within| within.variance / blocks);
        (variance(&means) - of_blocks).max(0.0).sqrt()
    });
    Ok(PairEstimate {
        ratio: ratio.interval,
        replicate_means: means,
        freedom: ratio.freedom,
        p_value: ratio.p_value()?,
        order_effect: order_effect.map(|effect| effect.interval),
        between_sd,
        within_sd: within.map(|within| within.variance.sqrt()),
    })
}

/// An interval with what its p-value needs.
#[derive(Clone, Copy)]
pub(super) struct Tested {
    pub(super) interval: LogInterval,
    pub(super) error: f64,
    pub(super) freedom: u32,
}

impl Tested {
    pub(super) fn new(center: f64, error: f64, freedom: u32) -> Result<Self, StatsError> {
        let half_width = student_quantile(CONFIDENCE, freedom)? * error;
        Ok(Self { interval: LogInterval { center, half_width }, error, freedom })
    }

    pub(super) fn p_value(&self) -> Result<f64, StatsError> {
        let center = self.interval.center;
        if center == 0.0 {
            return Ok(1.0);
        }
        // A zero error gives an infinite t, whose p-value is zero.
        student_two_sided_p(center / self.error, self.freedom)
    }
}

pub(super) fn of_replicates(means: &[f64]) -> Result<Tested, StatsError> {
    let error = (variance(means) / means.len() as f64).sqrt();
    // At least two replicates, of which there are far fewer than the type holds.
    Tested::new(mean(means), error, means.len() as u32 - 1)
}

pub(super) fn within_one(
    replicate: &PairedReplicate,
    within: Option<Within>,
) -> Result<(Tested, Option<Tested>), StatsError> {
    let found = replicate.blocks.len();
    let too_few = StatsError::TooFewBlocks { found, needed: FEWEST_BLOCKS };
    let Some(within) = within.filter(|_| found >= FEWEST_BLOCKS) else { return Err(too_few) };
    let orders = Orders::of(replicate);
    let (first, second) = (orders.first.len() as f64, orders.second.len() as f64);
    let Some(effect) = orders.effect(Location::Mean) else {
        let error = (within.variance / found as f64).sqrt();
        return Ok((Tested::new(orders.center(Location::Mean), error, within.freedom)?, None));
    };
    let error = (within.variance * (1.0 / first + 1.0 / second)).sqrt();
    let ratio = Tested::new(orders.center(Location::Mean), error / 2.0, within.freedom)?;
    Ok((ratio, Some(Tested::new(effect, error, within.freedom)?)))
}

/// Log ratios of a replicate by order.
pub(super) struct Orders {
    first: Vec<f64>,
    second: Vec<f64>,
}

impl Orders {
    pub(super) fn of(replicate: &PairedReplicate) -> Self {
        let of = |wanted: bool| {
            let blocks = replicate.blocks.iter();
            let wanted = blocks.filter(|block: &&PairedBlock| block.candidate_first == wanted);
            wanted.map(|block| block.log_ratio).collect()
        };
        Self { first: of(true), second: of(false) }
    }

    pub(super) fn center(&self, location: Location) -> f64 {
        match (self.first.as_slice(), self.second.as_slice()) {
            ([], blocks) | (blocks, []) => location.of(blocks),
            (first, second) => f64::midpoint(location.of(first), location.of(second)),
        }
    }

    pub(super) fn effect(&self, location: Location) -> Option<f64> {
        let both = !self.first.is_empty() && !self.second.is_empty();
        both.then(|| location.of(&self.first) - location.of(&self.second))
    }

    /// Squares about each order's mean, and their degrees of freedom.
    fn squares(&self) -> (f64, usize) {
        let of = |blocks: &[f64]| match blocks.len() {
            0 | 1 => (0.0, 0),
            count => (variance(blocks) * (count - 1) as f64, count - 1),
        };
        let (first, second) = (of(&self.first), of(&self.second));
        (first.0 + second.0, first.1 + second.1)
    }
}

/// The pooled variance of blocks within replicates and orders.
#[derive(Clone, Copy)]
pub(super) struct Within {
    variance: f64,
    freedom: u32,
}

pub(super) fn pooled_within(samples: &PairedSamples) -> Option<Within> {
    let parts = samples.replicates().iter().map(|replicate| Orders::of(replicate).squares());
    let (squares, freedom) =
        parts.fold((0.0, 0), |(sum, count), (more, free)| (sum + more, count + free));
    let variance = squares / freedom as f64;
    let freedom = u32::try_from(freedom).ok()?;
    (freedom > 0).then_some(Within { variance, freedom })
}

impl PairEstimate {
    /// The numbers as they are stored: ratios instead of logarithms.
    #[must_use]
    pub fn to_record(&self) -> Estimate {
        let real = |log: f64| Real(log.exp());
        Estimate {
            ratio: real(self.ratio.center),
            low: real(self.ratio.low()),
            high: real(self.ratio.high()),
            half_width: Real(self.ratio.half_width),
            replicates: self.replicate_means.iter().map(|log| real(*log)).collect(),
            p_value: Real(self.p_value),
            order_effect: self.order_effect.map(|effect| OrderEffect {
                effect: real(effect.center),
                low: real(effect.low()),
                high: real(effect.high()),
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::paired::Turn;
    use super::*;

    /// Samples with these log ratios: one list per replicate, orders alternating.
    fn samples(replicates: &[&[f64]]) -> PairedSamples {
        let (mut candidate, mut baseline) = (Vec::new(), Vec::new());
        for (replicate, ratios) in (0..).zip(replicates) {
            for (block, ratio) in (0..).zip(*ratios) {
                // Blocks come as A B, B A, A B, B A; the times differ from block to block.
                let place = block % 2;
                let base = 1000.0 + f64::from(block) + 10.0 * f64::from(replicate);
                let turn = |position, per_call_ns| Turn { replicate, block, position, per_call_ns };
                candidate.push(turn(place, base));
                baseline.push(turn(1 - place, base * ratio.exp()));
            }
        }
        PairedSamples::from_turns(&candidate, &baseline).unwrap()
    }

    fn estimated(replicates: &[&[f64]]) -> Result<PairEstimate, StatsError> {
        estimate_pair(&samples(replicates))
    }

    fn close(found: f64, expected: f64) {
        assert!((found - expected).abs() < 1e-9, "{found} is not {expected}");
    }

    #[test]
    fn three_replicates_give_the_hand_computed_interval() {
        let found = estimated(&[&[0.01, 0.03], &[0.02, 0.04], &[0.03, 0.05]]).unwrap();
        // Means 0.02, 0.03, 0.04: sd 0.01, error 0.01 / sqrt(3), t(2) = 4.30265272974946.
        close(found.ratio.center, 0.03);
        close(found.ratio.half_width, 4.302_652_729_749_46 * 0.01 / 3.0_f64.sqrt());
        assert_eq!(found.freedom, 2);
        // t = 0.03 / (0.01 / sqrt(3)) = 5.196; p = 0.0351 by the closed form for two degrees.
        let t: f64 = 3.0 * 3.0_f64.sqrt();
        close(found.p_value, 1.0 - t / (2.0 + t * t).sqrt());
        // First minus second is -0.02 in each replicate.
        let effect = found.order_effect.unwrap();
        close(effect.center, -0.02);
        close(effect.half_width, 0.0);
    }

    #[test]
    fn one_replicate_gives_the_interval_of_its_blocks_without_the_order_effect() {
        let found = estimated(&[&[0.01, 0.11, 0.03, 0.13]]).unwrap();
        // Orders' means 0.02 and 0.12; squares 2e-4 + 2e-4 over 2 degrees: variance 2e-4.
        close(found.ratio.center, 0.07);
        let error = (2e-4_f64 * (0.5 + 0.5)).sqrt();
        close(found.ratio.half_width, 4.302_652_729_749_46 * error / 2.0);
        let effect = found.order_effect.unwrap();
        close(effect.center, -0.1);
        close(effect.half_width, 4.302_652_729_749_46 * error);
        assert_eq!(found.between_sd, None);
        close(found.within_sd.unwrap(), 2e-4_f64.sqrt());
    }

    #[test]
    fn variation_is_split_into_between_and_within() {
        let found = estimated(&[&[0.09, 0.09, 0.11, 0.11], &[-0.11, -0.11, -0.09, -0.09]]).unwrap();
        // Within: each order has two values 0.02 apart, variance 2e-4. Means 0.1 and -0.1.
        close(found.within_sd.unwrap(), 2e-4_f64.sqrt());
        close(found.between_sd.unwrap(), (0.02_f64 - 2e-4 / 4.0).sqrt());
    }

    #[test]
    fn too_few_blocks_in_one_replicate_are_an_error() {
        assert_eq!(
            estimated(&[&[0.01, 0.02]]),
            Err(StatsError::TooFewBlocks { found: 2, needed: 4 })
        );
    }

    #[test]
    fn one_order_only_has_no_order_effect() {
        let turn = |replicate, block, position, time: u32| Turn {
            replicate,
            block,
            position,
            per_call_ns: f64::from(time),
        };
        let candidate: Vec<Turn> = (0..4).map(|b| turn(0, b, 0, 100 + b)).collect();
        let baseline: Vec<Turn> = (0..4).map(|b| turn(0, b, 1, 120 + 2 * b)).collect();
        let paired = PairedSamples::from_turns(&candidate, &baseline).unwrap();
        let found = estimate_pair(&paired).unwrap();
        assert_eq!(found.order_effect, None);
        assert!(found.ratio.half_width > 0.0);
    }

    #[test]
    fn no_difference_at_all_has_p_one_and_a_difference_without_spread_p_zero() {
        let none = estimated(&[&[0.0, 0.0], &[0.0, 0.0], &[0.0, 0.0]]).unwrap();
        assert!((none.p_value - 1.0).abs() < 0.2 || none.ratio.center.abs() < 1e-12);
        let tested = Tested::new(0.1, 0.0, 3).unwrap();
        assert_eq!(tested.p_value(), Ok(0.0));
        assert_eq!(Tested::new(0.0, 0.0, 3).unwrap().p_value(), Ok(1.0));
    }

    #[test]
    fn the_record_holds_ratios() {
        let found = estimated(&[&[0.01, 0.03], &[0.02, 0.04], &[0.03, 0.05]]).unwrap();
        let record = found.to_record();
        close(record.ratio.0, 0.03_f64.exp());
        assert!(record.low.0 < record.ratio.0 && record.ratio.0 < record.high.0);
        assert_eq!(record.replicates.len(), 3);
        close(record.half_width.0, found.ratio.half_width);
    }

    #[test]
    fn a_median_is_not_moved_by_one_interrupted_turn_and_a_mean_is() {
        let calm: &[f64] = &[0.01, 0.01, 0.011, 0.011, 0.012, 0.012];
        let hit: &[f64] = &[0.01, 0.01, 0.011, 0.011, 0.912, 0.012];
        let found =
            |location| estimate_pair(&samples(&[hit, calm]).with_location(location)).unwrap();
        let median = found(Location::Median);
        close(median.replicate_means[0], 0.011);
        close(median.replicate_means[1], 0.011);
        close(median.order_effect.unwrap().center, 0.0);
        close(found(Location::Mean).replicate_means[0], 0.011 + 0.9 / 6.0);
    }

    #[test]
    fn one_replicate_always_uses_the_mean() {
        let one = samples(&[&[0.01, 0.11, 0.03, 0.13, 0.9, 0.1]]);
        let by_median = one.clone().with_location(Location::Median);
        assert_eq!(estimate_pair(&by_median), estimate_pair(&one));
    }
}

//! From turns to replicates of paired blocks.

use std::collections::BTreeMap;

use proofhouse_schema::evidence::Arm;

use super::error::StatsError;
use super::estimate::Location;

/// One side's turn in one block, reduced to one time by the timing contract's statistic.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Turn {
    /// The replicate.
    pub replicate: u32,
    /// The block.
    pub block: u32,
    /// The place within the block, among all its providers.
    pub position: u32,
    /// Time of one call, in nanoseconds.
    pub per_call_ns: f64,
}

/// Both sides in one block.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PairedBlock {
    /// The block.
    pub block: u32,
    /// Natural logarithm of baseline time over candidate time.
    pub log_ratio: f64,
    /// True when the candidate ran before the baseline.
    pub candidate_first: bool,
}

/// The blocks of one replicate, by block.
#[derive(Clone, Debug, PartialEq)]
pub struct PairedReplicate {
    /// The replicate.
    pub replicate: u32,
    /// Its blocks.
    pub blocks: Vec<PairedBlock>,
}

/// A comparison whose every block has both sides, in equal numbers in every replicate.
#[derive(Clone, Debug, PartialEq)]
pub struct PairedSamples {
    replicates: Vec<PairedReplicate>,
    location: Location,
}

/// Times of one side from this many turns on must differ somewhere.
const VARYING_TURNS: usize = 8;

impl PairedSamples {
    /// Pairs the turns of both sides by replicate and block.
    ///
    /// # Errors
    /// Any of [`StatsError`] that says what is missing, doubled, unequal, or no time.
    pub fn from_turns(candidate: &[Turn], baseline: &[Turn]) -> Result<Self, StatsError> {
        if candidate.is_empty() && baseline.is_empty() {
            return Err(StatsError::NoSamples);
        }
        let candidate = by_block(candidate, "candidate")?;
        let mut baseline = by_block(baseline, "baseline")?;
        let mut replicates: BTreeMap<u32, Vec<PairedBlock>> = BTreeMap::new();
        for ((replicate, block), ours) in candidate {
            let theirs = baseline
                .remove(&(replicate, block))
                .ok_or(StatsError::IncompleteBlock { replicate, block, arm: "baseline" })?;
            replicates.entry(replicate).or_default().push(pair(&ours, &theirs)?);
        }
        if let Some((replicate, block)) = baseline.into_keys().next() {
            return Err(StatsError::IncompleteBlock { replicate, block, arm: "candidate" });
        }
        let replicates: Vec<PairedReplicate> = replicates
            .into_iter()
            .map(|(replicate, blocks)| PairedReplicate { replicate, blocks })
            .collect();
        check_equal(&replicates)?;
        Ok(Self { replicates, location: Location::Mean })
    }

    /// Pairs the arms of an observation: those of the candidate with those of one baseline.
    ///
    /// Block numbers are the places in the arms' own lists.
    ///
    /// # Errors
    /// As for [`Self::from_turns`]; an arm with more or fewer places than times lacks a side.
    pub fn from_arms<'a>(
        candidate: impl IntoIterator<Item = &'a Arm>,
        baseline: impl IntoIterator<Item = &'a Arm>,
    ) -> Result<Self, StatsError> {
        let candidate = turns_of(candidate, "candidate")?;
        let baseline = turns_of(baseline, "baseline")?;
        Self::from_turns(&candidate, &baseline)
    }

    /// The same samples, whose blocks become a replicate's value in another way than by the mean.
    #[must_use]
    pub fn with_location(mut self, location: Location) -> Self {
        self.location = location;
        self
    }

    /// How blocks become a replicate's value.
    #[must_use]
    pub fn location(&self) -> Location {
        self.location
    }

    /// The replicates, in order.
    #[must_use]
    pub fn replicates(&self) -> &[PairedReplicate] {
        &self.replicates
    }

    /// Blocks of each replicate.
    #[must_use]
    pub fn blocks_per_replicate(&self) -> usize {
        self.replicates.first().map_or(0, |replicate| replicate.blocks.len())
    }
}

fn turns_of<'a>(
    arms: impl IntoIterator<Item = &'a Arm>,
    name: &'static str,
) -> Result<Vec<Turn>, StatsError> {
    let mut turns = Vec::new();
    for arm in arms {
        if arm.positions.len() != arm.block_median_ns.len() {
            let block = arm.positions.len().min(arm.block_median_ns.len()) as u32;
            return Err(StatsError::IncompleteBlock { replicate: arm.replicate, block, arm: name });
        }
        for (block, (position, time)) in (0..).zip(arm.positions.iter().zip(&arm.block_median_ns)) {
            let (replicate, position) = (arm.replicate, *position);
            turns.push(Turn { replicate, block, position, per_call_ns: time.0 });
        }
    }
    Ok(turns)
}

fn by_block(turns: &[Turn], arm: &'static str) -> Result<BTreeMap<(u32, u32), Turn>, StatsError> {
    let first = turns.first().ok_or(StatsError::MissingArm { arm })?;
    let mut blocks = BTreeMap::new();
    for turn in turns {
        let Turn { replicate, block, per_call_ns, .. } = *turn;
        // Also refuses NaN, which compares with nothing.
        if !(per_call_ns.is_finite() && per_call_ns > 0.0) {
            let found = per_call_ns.to_string();
            return Err(StatsError::BadTime { replicate, block, arm, found });
        }
        if blocks.insert((replicate, block), *turn).is_some() {
            return Err(StatsError::DoubleBlock { replicate, block, arm });
        }
    }
    let same = turns.iter().all(|turn| turn.per_call_ns == first.per_call_ns);
    if same && turns.len() >= VARYING_TURNS {
        let found = first.per_call_ns.to_string();
        return Err(StatsError::NoVariation { arm, turns: turns.len(), found });
    }
    Ok(blocks)
}

fn pair(candidate: &Turn, baseline: &Turn) -> Result<PairedBlock, StatsError> {
    if candidate.position == baseline.position {
        return Err(StatsError::SamePosition {
            replicate: candidate.replicate,
            block: candidate.block,
            position: candidate.position,
        });
    }
    Ok(PairedBlock {
        block: candidate.block,
        log_ratio: baseline.per_call_ns.ln() - candidate.per_call_ns.ln(),
        candidate_first: candidate.position < baseline.position,
    })
}

fn check_equal(replicates: &[PairedReplicate]) -> Result<(), StatsError> {
    let expected = replicates.first().map_or(0, |first| first.blocks.len());
    match replicates.iter().find(|replicate| replicate.blocks.len() != expected) {
        Some(other) => Err(StatsError::UnequalBlocks {
            replicate: other.replicate,
            found: other.blocks.len(),
            expected,
        }),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn turn(replicate: u32, block: u32, position: u32, per_call_ns: f64) -> Turn {
        Turn { replicate, block, position, per_call_ns }
    }

    fn both() -> (Vec<Turn>, Vec<Turn>) {
        let candidate = vec![
            turn(0, 0, 0, 100.0),
            turn(0, 1, 1, 101.0),
            turn(1, 0, 1, 99.0),
            turn(1, 1, 0, 98.0),
        ];
        let baseline = vec![
            turn(1, 1, 1, 110.0),
            turn(1, 0, 0, 111.0),
            turn(0, 0, 1, 112.0),
            turn(0, 1, 0, 109.0),
        ];
        (candidate, baseline)
    }

    #[test]
    fn turns_are_joined_by_replicate_and_block_and_never_by_place_in_a_list() {
        let (candidate, baseline) = both();
        let paired = PairedSamples::from_turns(&candidate, &baseline).unwrap();
        let first = paired.replicates()[0].blocks[0];
        assert!((first.log_ratio - (112.0_f64 / 100.0).ln()).abs() < 1e-15);
        assert!(first.candidate_first);
        assert!(!paired.replicates()[1].blocks[0].candidate_first);
        assert_eq!((paired.replicates().len(), paired.blocks_per_replicate()), (2, 2));
        let mut reversed = candidate;
        reversed.reverse();
        assert_eq!(PairedSamples::from_turns(&reversed, &baseline), Ok(paired));
    }

    #[test]
    fn nothing_and_a_missing_arm_are_errors() {
        let (candidate, baseline) = both();
        assert_eq!(PairedSamples::from_turns(&[], &[]), Err(StatsError::NoSamples));
        assert_eq!(
            PairedSamples::from_turns(&[], &baseline),
            Err(StatsError::MissingArm { arm: "candidate" })
        );
        assert_eq!(
            PairedSamples::from_turns(&candidate, &[]),
            Err(StatsError::MissingArm { arm: "baseline" })
        );
    }

    #[test]
    fn each_missing_turn_makes_its_block_incomplete() {
        let (candidate, baseline) = both();
        for gone in 0..4 {
            let mut fewer = candidate.clone();
            let removed = fewer.remove(gone);
            let (replicate, block) = (removed.replicate, removed.block);
            assert_eq!(
                PairedSamples::from_turns(&fewer, &baseline),
                Err(StatsError::IncompleteBlock { replicate, block, arm: "candidate" })
            );
            let mut fewer = baseline.clone();
            let removed = fewer.remove(gone);
            let (replicate, block) = (removed.replicate, removed.block);
            assert_eq!(
                PairedSamples::from_turns(&candidate, &fewer),
                Err(StatsError::IncompleteBlock { replicate, block, arm: "baseline" })
            );
        }
    }

    #[test]
    fn replicates_of_unequal_length_are_refused() {
        let (mut candidate, mut baseline) = both();
        candidate.pop();
        baseline.remove(0);
        assert_eq!(
            PairedSamples::from_turns(&candidate, &baseline),
            Err(StatsError::UnequalBlocks { replicate: 1, found: 1, expected: 2 })
        );
    }

    #[test]
    fn a_time_that_no_clock_gives_is_refused() {
        for bad in [0.0, -1.0, f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
            let (mut candidate, baseline) = both();
            candidate[1].per_call_ns = bad;
            assert!(matches!(
                PairedSamples::from_turns(&candidate, &baseline),
                Err(StatsError::BadTime { replicate: 0, block: 1, arm: "candidate", .. })
            ));
        }
    }

    #[test]
    fn doubled_turns_and_shared_places_are_refused() {
        let (mut candidate, baseline) = both();
        candidate[1].block = 0;
        assert!(matches!(
            PairedSamples::from_turns(&candidate, &baseline),
            Err(StatsError::DoubleBlock { replicate: 0, block: 0, .. })
        ));
        let (mut candidate, baseline) = both();
        candidate[0].position = 1;
        assert!(matches!(
            PairedSamples::from_turns(&candidate, &baseline),
            Err(StatsError::SamePosition { replicate: 0, block: 0, position: 1 })
        ));
    }

    #[test]
    fn times_that_never_vary_are_refused() {
        let candidate: Vec<Turn> = (0..8).map(|block| turn(0, block, block % 2, 100.0)).collect();
        let baseline: Vec<Turn> =
            (0..8).map(|block| turn(0, block, 1 - block % 2, 100.0 + f64::from(block))).collect();
        assert!(matches!(
            PairedSamples::from_turns(&candidate, &baseline),
            Err(StatsError::NoVariation { arm: "candidate", turns: 8, .. })
        ));
    }
}

//! Why statistics give no number.

/// Data that allow no estimate; the comparison is invalid.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum StatsError {
    /// There is nothing.
    #[error("no samples")]
    NoSamples,
    /// One side of the comparison is missing altogether.
    #[error("the {arm} has no samples")]
    MissingArm {
        /// Candidate or baseline.
        arm: &'static str,
    },
    /// A block lacks one side.
    #[error("replicate {replicate}, block {block}: the {arm} is missing")]
    IncompleteBlock {
        /// The replicate.
        replicate: u32,
        /// The block.
        block: u32,
        /// Candidate or baseline.
        arm: &'static str,
    },
    /// One side is twice in a block.
    #[error("replicate {replicate}, block {block}: the {arm} is there twice")]
    DoubleBlock {
        /// The replicate.
        replicate: u32,
        /// The block.
        block: u32,
        /// Candidate or baseline.
        arm: &'static str,
    },
    /// Both sides claim the same place in a block.
    #[error("replicate {replicate}, block {block}: both sides ran in place {position}")]
    SamePosition {
        /// The replicate.
        replicate: u32,
        /// The block.
        block: u32,
        /// The place.
        position: u32,
    },
    /// Replicates have different numbers of blocks.
    #[error("replicate {replicate} has {found} blocks, the first has {expected}")]
    UnequalBlocks {
        /// The replicate.
        replicate: u32,
        /// Its blocks.
        found: usize,
        /// Blocks of the first replicate.
        expected: usize,
    },
    /// A time that no clock gives.
    #[error("replicate {replicate}, block {block}: a time of {found} ns for the {arm}")]
    BadTime {
        /// The replicate.
        replicate: u32,
        /// The block.
        block: u32,
        /// Candidate or baseline.
        arm: &'static str,
        /// The time as text, because it may be no number.
        found: String,
    },
    /// Too few blocks for an interval.
    #[error("{found} blocks; an interval within one replicate needs {needed}")]
    TooFewBlocks {
        /// Blocks.
        found: usize,
        /// Blocks that are needed.
        needed: usize,
    },
    /// Every time of one side is the same to the last bit, which no clock gives.
    #[error("all {turns} times of the {arm} are exactly {found} ns")]
    NoVariation {
        /// Candidate or baseline.
        arm: &'static str,
        /// How many.
        turns: usize,
        /// The time as text.
        found: String,
    },
    /// A value that is no finite number, or outside its range.
    #[error("{what} is {found}; accepted: {accepted}")]
    BadValue {
        /// Which value.
        what: &'static str,
        /// The value as text.
        found: String,
        /// What is accepted.
        accepted: &'static str,
    },
}

impl StatsError {
    /// The error's stable name in kebab case.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::NoSamples => "no-samples",
            Self::MissingArm { .. } => "missing-arm",
            Self::IncompleteBlock { .. } => "incomplete-block",
            Self::DoubleBlock { .. } => "double-block",
            Self::SamePosition { .. } => "same-position",
            Self::UnequalBlocks { .. } => "unequal-blocks",
            Self::BadTime { .. } => "bad-time",
            Self::TooFewBlocks { .. } => "too-few-blocks",
            Self::NoVariation { .. } => "no-variation",
            Self::BadValue { .. } => "bad-value",
        }
    }
}

//! The statistics of paired speed comparisons: pure, and fail-closed.
//!
//! | file | what it does |
//! |---|---|
//! | `order` | in which order the providers of each block run |
//! | `paired` | turns to replicates: log ratios within blocks |
//! | `estimate` | replicates to an estimate with its interval and its order effect |
//! | `pooled` | one estimate over many cells |
//! | `call` | an estimate to win, parity, loss or inconclusive |
//! | `control` | the noise floor, the planted slowdown, identical inputs |
//! | `distribution` | Student's t, the exact binomial interval, Holm |
//! | `describe` | quantiles and summaries |
//!
//! Ratios are baseline time over candidate time: above one, the candidate is faster.
//! All arithmetic on ratios is done on natural logarithms.

mod call;
mod control;
mod describe;
mod distribution;
mod error;
mod estimate;
mod order;
mod paired;
mod pooled;
#[cfg(test)]
mod simulation;

pub use call::{
    FEWEST_REPLICATES, Margin, NoiseFloor, PairJudgment, Rules, judge_estimate, judge_pair,
};
pub use control::{
    FASTEST_IDENTICAL, IdenticalInputs, check_identical_inputs, judge_control, noise_floor,
};
pub use describe::{median, quantile, summarize};
pub use distribution::{binomial_interval, holm, student_quantile, student_two_sided_p};
pub use error::StatsError;
pub use estimate::{CONFIDENCE, Location, LogInterval, PairEstimate, estimate_pair};
pub use order::{OrderError, balanced_blocks, block_orders, design_rows};
pub use paired::{PairedBlock, PairedReplicate, PairedSamples, Turn};
pub use pooled::estimate_cells;

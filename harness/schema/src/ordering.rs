//! Providers in order: what `compare` says, and what tables and plots of speed are drawn from.
//!
//! Nothing here is evidence: it is computed from records, and names those that it was computed from.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::canonical::Digest;
use crate::device::DeviceKind;
use crate::dtype::Dtype;
use crate::evidence::{Grade, Summary};
use crate::gate::TimingRule;
use crate::ids::{GateId, OperatorName, ProviderId};
use crate::real::Real;
use crate::verdict::{Comparison, Estimate, Reason, Verdict};

/// The providers of one gate in order, for one candidate in one place under one contract.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct GateOrdering {
    /// The gate.
    pub gate: GateId,
    /// Its operator.
    pub operator: OperatorName,
    /// The candidate.
    pub candidate: ProviderId,
    /// The kind of device.
    pub device: DeviceKind,
    /// The name of the GPU or of the processor.
    pub place: String,
    /// The timing contract and its margin; none where records name no contract, which ranks nothing.
    pub timing: Option<TimingRule>,
    /// The cells that could be ranked, by key.
    pub cells: Vec<CellOrdering>,
    /// The cells that could not, with the reason; none of them takes part in anything below.
    pub unranked: Vec<UnrankedCell>,
    /// Every provider over the cells where all took part; none where there is no such cell.
    pub overall: Option<OverallOrdering>,
    /// The candidate against the best other provider of each ranked cell.
    pub against_best: Option<AgainstBest>,
    /// Providers that took no part in some ranked cells.
    pub absences: Vec<Absence>,
    /// Pairs that a cell calls the other way round than the gate as a whole does.
    pub flips: Vec<Flip>,
    /// Pairs whose order turns along a dimension.
    pub crossovers: Vec<Crossover>,
}

/// The providers of one cell in order.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CellOrdering {
    /// The cell's key.
    pub cell: String,
    /// Its extents, in the key's order.
    pub dims: Vec<(String, u64)>,
    /// The activation dtype.
    pub dtype: Dtype,
    /// Everything of the key that is no extent.
    pub rest: String,
    /// The evidence.
    pub evidence: Digest,
    /// The session.
    pub session: Digest,
    /// The judge's verdict on the candidate.
    pub verdict: Verdict,
    /// How much the record is worth.
    pub grade: Grade,
    /// Replicates of each provider.
    pub replicates: u32,
    /// The session's noise floor, as a fraction.
    pub noise_floor: Real,
    /// The providers in order.
    pub ranking: Ranking,
    /// Baselines that took no part, and why.
    pub absent: BTreeMap<ProviderId, String>,
    /// The least time that the cell's bytes need at the session's ceilings; cold cells only, where both are known.
    pub memory_floor_ns: Option<Real>,
}

impl CellOrdering {
    /// The extents in words: `rows=8 hidden=4096`.
    #[must_use]
    pub fn shape(&self) -> String {
        let words: Vec<String> =
            self.dims.iter().map(|(name, extent)| format!("{name}={extent}")).collect();
        words.join(" ")
    }
}

/// Providers in order, with every pair.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Ranking {
    /// The best first; within a rank the order means nothing.
    pub standings: Vec<Standing>,
    /// Every pair once.
    pub pairs: Vec<Pair>,
}

/// One provider's place.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Standing {
    /// From 1. A provider stands one below the lowest of those that are called faster.
    pub rank: u32,
    /// The provider.
    pub provider: ProviderId,
    /// Its version.
    pub version: String,
    /// Time per call over all measured samples; none where it is about many cells.
    pub time: Option<Summary>,
    /// Its time over that of the first in the list; none for the first itself.
    pub to_first: Option<Pair>,
    /// Those that it is not called faster or slower than.
    pub not_separated: Vec<ProviderId>,
}

/// Two providers side by side.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Pair {
    /// Time of `baseline` over time of `candidate`: above 1 the candidate of the pair is faster.
    pub comparison: Comparison,
    /// The ratio over blocks in which the pair's candidate ran first.
    pub candidate_first: Option<Real>,
    /// The ratio over blocks in which it ran second.
    pub candidate_second: Option<Real>,
    /// Whether a difference that is called holds among all pairs of its ranking at 5 % (Holm).
    pub holds: bool,
}

/// A cell that could not be ranked.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct UnrankedCell {
    /// The cell's key.
    pub cell: String,
    /// The evidence.
    pub evidence: Digest,
    /// The judge's verdict.
    pub verdict: Verdict,
    /// Why nothing is said. Never empty.
    pub reasons: Vec<Reason>,
}

/// The providers of a gate in order: geometric means over cells.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct OverallOrdering {
    /// The providers in order.
    pub ranking: Ranking,
    /// The cells where all of them took part.
    pub cells: Vec<String>,
    /// Replicates that all of these cells have.
    pub replicates: u32,
}

/// The candidate against the best of the others, cell by cell.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct AgainstBest {
    /// Geometric mean over cells of the best other provider's time over the candidate's.
    pub estimate: Estimate,
    /// Ranked cells, all of which are in the mean.
    pub cells: u32,
    /// The cell with the least ratio.
    pub worst: String,
}

/// A provider that took no part in some ranked cells.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Absence {
    /// The provider.
    pub provider: ProviderId,
    /// The cells with the reason in each.
    pub cells: BTreeMap<String, String>,
}

/// A pair that one cell calls the other way round.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Flip {
    /// The cell.
    pub cell: String,
    /// Who is called faster in the cell.
    pub faster: ProviderId,
    /// Who is called faster over the gate.
    pub slower: ProviderId,
    /// Time of `slower` over time of `faster` in the cell.
    pub ratio: Real,
    /// The same over the gate.
    pub overall: Real,
}

/// A pair whose order turns along one dimension, all else being equal.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Crossover {
    /// The dimension.
    pub dimension: String,
    /// What is equal, in words.
    pub held: String,
    /// One of the pair: who is ahead at the small end.
    pub left: ProviderId,
    /// The other.
    pub right: ProviderId,
    /// The points, by extent.
    pub points: Vec<CrossoverPoint>,
    /// Whether any point rests on fewer replicates than a win needs.
    pub exploratory: bool,
    /// Where the order turns; empty where the data cannot say so on both sides: undecided.
    pub turns: Vec<CrossoverTurn>,
}

/// One cell of a crossover.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CrossoverPoint {
    /// The extent.
    pub extent: u64,
    /// Time of `right` over time of `left`.
    pub ratio: Real,
    /// Who is called faster, if anyone.
    pub faster: Option<ProviderId>,
}

/// A turn with a call on both sides.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CrossoverTurn {
    /// Who is called faster before.
    pub before: ProviderId,
    /// The last extent at which that is called.
    pub until: u64,
    /// Who is called faster after.
    pub after: ProviderId,
    /// The first extent at which that is called.
    pub from: u64,
    /// Extents in between at which neither is.
    pub undecided: Vec<u64>,
}

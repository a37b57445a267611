//! Cells that call a pair the other way round than the gate as a whole does.

use proofhouse_schema::ids::ProviderId;
use proofhouse_schema::ordering::{CellOrdering, Flip, OverallOrdering, Pair, Ranking};
use proofhouse_schema::real::Real;

use super::ranking::side;

/// Every cell and pair whose call is the opposite of the overall one. What is not called on either side is no flip.
pub(super) fn flips(cells: &[CellOrdering], overall: Option<&OverallOrdering>) -> Vec<Flip> {
    let Some(overall) = overall else { return Vec::new() };
    let mut flips = Vec::new();
    for pair in &overall.ranking.pairs {
        let Some((faster, slower)) = called(pair) else { continue };
        for cell in cells {
            let Some((here, ratio)) = between(&cell.ranking, slower, faster) else { continue };
            if here != Some(slower) {
                continue;
            }
            let overall = between(&overall.ranking, faster, slower).map_or(f64::NAN, |(_, r)| r);
            flips.push(Flip {
                cell: cell.cell.clone(),
                faster: slower.clone(),
                slower: faster.clone(),
                ratio: Real(ratio),
                overall: Real(1.0 / overall),
            });
        }
    }
    let place = |flip: &Flip| cells.iter().position(|cell| cell.cell == flip.cell);
    flips.sort_by_key(place);
    flips
}

/// Who of a pair is called faster, and who slower.
fn called(pair: &Pair) -> Option<(&ProviderId, &ProviderId)> {
    let (ours, theirs) = (&pair.comparison.candidate, &pair.comparison.baseline);
    side(pair.comparison.speed).map(|faster| if faster { (ours, theirs) } else { (theirs, ours) })
}

/// Who of two is called faster in a ranking, if anyone, and the time of `b` over that of `a`.
pub(super) fn between<'a>(
    ranking: &'a Ranking,
    a: &ProviderId,
    b: &ProviderId,
) -> Option<(Option<&'a ProviderId>, f64)> {
    ranking.pairs.iter().find_map(|pair| {
        let comparison = &pair.comparison;
        let ratio = comparison.estimate.as_ref()?.ratio.0;
        let ratio = match (&comparison.candidate, &comparison.baseline) {
            (ours, theirs) if (ours, theirs) == (a, b) => ratio,
            (ours, theirs) if (ours, theirs) == (b, a) => 1.0 / ratio,
            _ => return None,
        };
        Some((called(pair).map(|(faster, _)| faster), ratio))
    })
}

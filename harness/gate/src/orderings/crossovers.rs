//! Pairs whose order turns along a dimension, all else being equal.

use std::collections::{BTreeMap, BTreeSet};

use proofhouse_schema::ids::ProviderId;
use proofhouse_schema::ordering::{CellOrdering, Crossover, CrossoverPoint, CrossoverTurn};
use proofhouse_schema::real::Real;
use proofhouse_schema::verdict::Speed;

use super::flips::between;
use crate::stats::FEWEST_REPLICATES;

/// Cells that differ in one extent alone, by that extent.
struct Series<'a> {
    dimension: &'a str,
    held: String,
    cells: BTreeMap<u64, &'a CellOrdering>,
}

/// Every pair that changes sides along a dimension: called where calls stand on both sides, else undecided.
pub(super) fn crossovers(cells: &[CellOrdering]) -> Vec<Crossover> {
    let mut found = Vec::new();
    for series in series(cells) {
        let ids: BTreeSet<&ProviderId> = series
            .cells
            .values()
            .flat_map(|cell| cell.ranking.standings.iter().map(|standing| &standing.provider))
            .collect();
        let ids: Vec<&ProviderId> = ids.into_iter().collect();
        for (at, a) in ids.iter().enumerate() {
            found.extend(ids[at + 1..].iter().filter_map(|b| crossover(&series, a, b)));
        }
    }
    found
}

fn series(cells: &[CellOrdering]) -> Vec<Series<'_>> {
    let mut found: BTreeMap<(&str, String), Series<'_>> = BTreeMap::new();
    for cell in cells {
        for (name, extent) in &cell.dims {
            let others = cell.dims.iter().filter(|(other, _)| other != name);
            let words = others.map(|(name, extent)| format!("{name}={extent}"));
            let held: Vec<String> = words.chain([cell.rest.clone()]).collect();
            let held = held.join(" ");
            let series = found.entry((name, held.clone())).or_insert_with(|| Series {
                dimension: name,
                held,
                cells: BTreeMap::new(),
            });
            series.cells.insert(*extent, cell);
        }
    }
    found.into_values().filter(|series| series.cells.len() > 1).collect()
}

fn crossover(series: &Series<'_>, a: &ProviderId, b: &ProviderId) -> Option<Crossover> {
    let (left, right) = ahead_first(series, a, b)?;
    let mut points = Vec::new();
    let (mut ties, mut exploratory) = (Vec::new(), false);
    for (extent, cell) in &series.cells {
        // Where one of the two took no part there is no point.
        let Some((faster, ratio)) = between(&cell.ranking, left, right) else { continue };
        points.push(CrossoverPoint {
            extent: *extent,
            ratio: Real(ratio),
            faster: faster.cloned(),
        });
        ties.push(is_tie(cell, left, right));
        exploratory |= (cell.replicates as usize) < FEWEST_REPLICATES;
    }
    let turns = turns(&points);
    let is_called = points.iter().any(|point| point.faster.is_some());
    // A point on the other side that is called a tie is no other order.
    let seems = points.iter().zip(&ties).any(|(point, tie)| point.ratio.0 < 1.0 && !tie);
    (!turns.is_empty() || (is_called && seems)).then(|| Crossover {
        dimension: series.dimension.to_owned(),
        held: series.held.clone(),
        left: left.clone(),
        right: right.clone(),
        points,
        exploratory,
        turns,
    })
}

/// The two, the one that is ahead at the smallest extent first.
fn ahead_first<'a>(
    series: &Series<'_>,
    a: &'a ProviderId,
    b: &'a ProviderId,
) -> Option<(&'a ProviderId, &'a ProviderId)> {
    let first = series.cells.values().find_map(|cell| between(&cell.ranking, a, b));
    first.map(|(_, ratio)| if ratio >= 1.0 { (a, b) } else { (b, a) })
}

fn is_tie(cell: &CellOrdering, a: &ProviderId, b: &ProviderId) -> bool {
    cell.ranking.pairs.iter().map(|pair| &pair.comparison).any(|comparison| {
        let both = [&comparison.candidate, &comparison.baseline];
        both.contains(&a)
            && both.contains(&b)
            && matches!(comparison.speed, Speed::Parity | Speed::Even)
    })
}

/// Where one call is followed by the opposite one, whatever undecided points lie between.
fn turns(points: &[CrossoverPoint]) -> Vec<CrossoverTurn> {
    let mut turns = Vec::new();
    let mut last: Option<(&ProviderId, u64)> = None;
    let mut undecided = Vec::new();
    for point in points {
        let Some(faster) = &point.faster else {
            undecided.push(point.extent);
            continue;
        };
        let between = std::mem::take(&mut undecided);
        if let Some((before, until)) = last.filter(|(before, _)| *before != faster) {
            turns.push(CrossoverTurn {
                before: before.clone(),
                until,
                after: faster.clone(),
                from: point.extent,
                undecided: between,
            });
        }
        last = Some((faster, point.extent));
    }
    turns
}

#[cfg(test)]
mod tests {
    use super::*;

    fn points(calls: &[Option<&str>]) -> Vec<CrossoverPoint> {
        let point = |(at, call): (usize, &Option<&str>)| CrossoverPoint {
            extent: 1 << at,
            ratio: Real(1.0),
            faster: call.map(|id| id.parse().unwrap()),
        };
        calls.iter().enumerate().map(point).collect()
    }

    #[test]
    fn a_turn_names_the_last_call_before_and_the_first_after_it() {
        let found = turns(&points(&[Some("a"), Some("a"), None, Some("b")]));
        assert_eq!(found.len(), 1);
        assert_eq!(
            (found[0].until, found[0].from, found[0].undecided.as_slice()),
            (2, 8, &[4][..])
        );
        assert_eq!((found[0].before.as_str(), found[0].after.as_str()), ("a", "b"));
    }

    #[test]
    fn without_a_call_on_both_sides_nothing_turns() {
        for calls in [&[Some("a"), None, None][..], &[None, None], &[Some("a"), None, Some("a")]] {
            assert!(turns(&points(calls)).is_empty(), "{calls:?}");
        }
    }

    #[test]
    fn an_order_may_turn_twice() {
        assert_eq!(turns(&points(&[Some("a"), Some("b"), Some("a")])).len(), 2);
    }
}

//! Providers over a gate's cells: geometric means of their ratios.

use std::collections::{BTreeMap, BTreeSet};

use proofhouse_schema::ids::ProviderId;
use proofhouse_schema::ordering::{Absence, AgainstBest, OverallOrdering};
use proofhouse_schema::verdict::{Comparison, Speed};

use super::cell::{Measured, version};
use super::ranking::{Player, rank};
use crate::judge::speed::{Controls, conclude, rules};
use crate::stats::{PairEstimate, PairedSamples, StatsError, estimate_cells, judge_estimate};

/// Ranks every provider that took part in any cell over the cells where all of them did.
pub(super) fn overall(cells: &[Measured]) -> Option<OverallOrdering> {
    let everyone = everyone(cells);
    let whole = |cell: &&Measured| everyone.iter().all(|id| cell.find(id).is_some());
    let shared: Vec<&Measured> = cells.iter().filter(whole).collect();
    let controls = together(&shared)?;
    let rule = &shared.first()?.rule;
    let players: Vec<Player> = listed(&shared, &everyone);
    let compare = |a: usize, b: usize| {
        let (ours, theirs) = (&players[a], &players[b]);
        let mut comparison = Comparison {
            candidate: ours.id.clone(),
            baseline: theirs.id.clone(),
            baseline_version: theirs.version.clone(),
            speed: Speed::Inconclusive,
            estimate: None,
            margin: rule.margin,
            reasons: Vec::new(),
        };
        let judged = pooled(&shared, |_| Some((&ours.id, &theirs.id)))
            .and_then(|estimate| judge_estimate(estimate, &rules(rule, &controls)?));
        conclude(judged, &controls, &mut comparison);
        comparison
    };
    // Calls of means that go round in a circle, or a mean that cannot be had, leave no overall order.
    let ranking = rank(&players, compare).ok()?;
    let replicates = ranking.pairs.iter().filter_map(|pair| {
        pair.comparison.estimate.as_ref().map(|estimate| estimate.replicates.len())
    });
    Some(OverallOrdering {
        replicates: u32::try_from(replicates.min().unwrap_or(0)).unwrap_or(u32::MAX),
        ranking,
        cells: shared.iter().map(|cell| cell.said.cell.clone()).collect(),
    })
}

/// Everyone that took part in a cell: the candidate, then the others by their ids.
fn everyone(cells: &[Measured]) -> Vec<ProviderId> {
    let Some(candidate) = cells.first().and_then(|cell| cell.providers.first()) else {
        return Vec::new();
    };
    let candidate = &candidate.facts.id;
    let all = cells.iter().flat_map(|cell| cell.providers.iter().map(|p| &p.facts.id));
    let others: BTreeSet<&ProviderId> = all.filter(|id| *id != candidate).collect();
    std::iter::once(candidate).chain(others).cloned().collect()
}

/// The providers with their versions, where there are several one after another.
fn listed(cells: &[&Measured], everyone: &[ProviderId]) -> Vec<Player> {
    let player = |id: &ProviderId| {
        let found = cells.iter().filter_map(|cell| cell.find(id));
        let versions: BTreeSet<String> = found.map(|provider| version(&provider.facts)).collect();
        let version = versions.into_iter().collect::<Vec<_>>().join(" and ");
        Player { id: id.clone(), version, time: None }
    };
    everyone.iter().map(player).collect()
}

/// What the controls of all these cells' sessions allow together.
fn together(cells: &[&Measured]) -> Option<Controls> {
    let first = cells.first()?.controls.clone();
    let join = |so_far: Controls, cell: &&Measured| Controls {
        floor: so_far.floor.zip(cell.controls.floor).map(|(a, b)| a.max(b)),
        blind: so_far.blind.or_else(|| cell.controls.blind.clone()),
        weak: so_far.weak.or_else(|| cell.controls.weak.clone()),
    };
    Some(cells.iter().skip(1).fold(first, join))
}

/// The estimate over cells, each of which names its two providers.
fn pooled<'a>(
    cells: &[&'a Measured],
    pair: impl Fn(&'a Measured) -> Option<(&'a ProviderId, &'a ProviderId)>,
) -> Result<PairEstimate, StatsError> {
    let paired = |cell: &&'a Measured| {
        let (ours, theirs) = pair(cell).ok_or(StatsError::NoSamples)?;
        cell.paired(ours, theirs).unwrap_or(Err(StatsError::NoSamples))
    };
    let samples = cells.iter().map(paired).collect::<Result<Vec<PairedSamples>, _>>()?;
    estimate_cells(&samples)
}

/// The candidate against the best of the others in each cell.
pub(super) fn against_best(cells: &[Measured]) -> Option<AgainstBest> {
    let all: Vec<&Measured> = cells.iter().collect();
    let estimate =
        pooled(&all, |cell| Some((&cell.providers.first()?.facts.id, best_other(cell)?)));
    let alone = |cell: &&Measured| {
        let best =
            pooled(&[*cell], |cell| Some((&cell.providers.first()?.facts.id, best_other(cell)?)));
        best.map_or(f64::INFINITY, |estimate| estimate.ratio.center)
    };
    let worst = all.iter().copied().min_by(|a, b| alone(a).total_cmp(&alone(b)))?;
    Some(AgainstBest {
        estimate: estimate.ok()?.to_record(),
        cells: u32::try_from(cells.len()).unwrap_or(u32::MAX),
        worst: worst.said.cell.clone(),
    })
}

/// The first in a cell's order that is not the candidate.
fn best_other(cell: &Measured) -> Option<&ProviderId> {
    let candidate = &cell.providers.first()?.facts.id;
    let standings = &cell.said.ranking.standings;
    standings.iter().map(|standing| &standing.provider).find(|id| *id != candidate)
}

/// Providers that are missing in some of the ranked cells, with the reason in each.
pub(super) fn absences(cells: &[Measured]) -> Vec<Absence> {
    let mut found: BTreeMap<ProviderId, BTreeMap<String, String>> = BTreeMap::new();
    let everyone = everyone(cells);
    for cell in cells {
        let undeclared = everyone.iter().filter(|id| cell.find(id).is_none());
        let said = undeclared.map(|id| (id, "the gate did not name it then"));
        let absent = cell.said.absent.iter().map(|(id, why)| (id, why.as_str()));
        // A reason that the record gives comes last, and stays.
        for (id, why) in said.chain(absent) {
            let cells = found.entry(id.clone()).or_default();
            cells.insert(cell.said.cell.clone(), why.to_owned());
        }
    }
    found.into_iter().map(|(provider, cells)| Absence { provider, cells }).collect()
}

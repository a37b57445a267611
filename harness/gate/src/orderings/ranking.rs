//! Calls of pairs to ranks.

use proofhouse_schema::evidence::Summary;
use proofhouse_schema::ids::ProviderId;
use proofhouse_schema::ordering::{Pair, Ranking, Standing};
use proofhouse_schema::real::Real;
use proofhouse_schema::verdict::{Comparison, Reason, Speed};

use crate::stats::holm;

/// A provider that is to be ranked.
pub(super) struct Player {
    pub(super) id: ProviderId,
    pub(super) version: String,
    pub(super) time: Option<Summary>,
}

/// Ranks players by what is called of every pair.
///
/// A player stands one below the lowest of those that are called faster than it; where nobody is, it is first.
/// So two that are called apart never share a rank. Two that are not may stand apart all the same, because a tie with a
/// third does not carry over; each names those that it is not separated from.
///
/// # Errors
/// The reason: a pair that allows no estimate, or calls that go round in a circle.
pub(super) fn rank(
    players: &[Player],
    compare: impl Fn(usize, usize) -> Comparison,
) -> Result<Ranking, Reason> {
    let table = Table::new(players.len(), &compare)?;
    let ranks = table.ranks()?;
    let mut order: Vec<usize> = (0..players.len()).collect();
    let scores: Vec<f64> = order.iter().map(|at| table.score(*at)).collect();
    order.sort_by(|a, b| {
        let by_score = scores[*b].total_cmp(&scores[*a]);
        ranks[*a].cmp(&ranks[*b]).then(by_score).then(players[*a].id.cmp(&players[*b].id))
    });
    let first = order.first().copied().unwrap_or(0);
    let standing = |at: &usize| {
        let to_first = (*at != first).then(|| {
            let comparison = match table.comparison(first, *at) {
                Some(canonical) => canonical.clone(),
                None => compare(first, *at),
            };
            pair(comparison, table.holds(first, *at))
        });
        let others = order.iter().filter(|other| *other != at);
        let tied = others.filter(|other| table.faster(*at, **other).is_none());
        Standing {
            rank: ranks[*at],
            provider: players[*at].id.clone(),
            version: players[*at].version.clone(),
            time: players[*at].time.clone(),
            to_first,
            not_separated: tied.map(|other| players[*other].id.clone()).collect(),
        }
    };
    let standings = order.iter().map(standing).collect();
    let pairs = table.rows.iter().map(|row| pair(row.comparison.clone(), row.holds)).collect();
    Ok(Ranking { standings, pairs })
}

/// A comparison with its ratio in each order.
fn pair(comparison: Comparison, holds: bool) -> Pair {
    let by_order = comparison.estimate.as_ref().and_then(|estimate| {
        let half = estimate.order_effect.as_ref()?.effect.0.sqrt();
        Some((Real(estimate.ratio.0 * half), Real(estimate.ratio.0 / half)))
    });
    Pair {
        candidate_first: by_order.map(|(first, _)| first),
        candidate_second: by_order.map(|(_, second)| second),
        comparison,
        holds,
    }
}

/// What a call says of the pair's candidate: faster, slower, or neither.
pub(super) fn side(speed: Speed) -> Option<bool> {
    match speed {
        Speed::Win | Speed::Lead => Some(true),
        Speed::Loss | Speed::Trail => Some(false),
        Speed::Parity | Speed::Even | Speed::Inconclusive => None,
    }
}

/// Every pair once, the one with the lower place first.
struct Table {
    players: usize,
    rows: Vec<Row>,
}

struct Row {
    a: usize,
    b: usize,
    comparison: Comparison,
    log_ratio: f64,
    holds: bool,
}

impl Table {
    fn new(players: usize, compare: &impl Fn(usize, usize) -> Comparison) -> Result<Self, Reason> {
        let mut rows = Vec::new();
        let mut p_values = Vec::new();
        for (a, b) in (0..players).flat_map(|a| (a + 1..players).map(move |b| (a, b))) {
            let comparison = compare(a, b);
            let Some(estimate) = &comparison.estimate else { return Err(no_estimate(&comparison)) };
            let p = estimate.p_value.0;
            p_values.push(if (0.0..=1.0).contains(&p) { p } else { 1.0 });
            let log_ratio = estimate.ratio.0.ln();
            rows.push(Row { a, b, comparison, log_ratio, holds: false });
        }
        // Every value lies in [0, 1], so the adjustment cannot fail; if it did, nothing would hold.
        let adjusted = holm(&p_values).unwrap_or_default();
        for (row, p) in rows.iter_mut().zip(adjusted) {
            row.holds = side(row.comparison.speed).is_some() && p < 0.05;
        }
        Ok(Self { players, rows })
    }

    fn row(&self, a: usize, b: usize) -> Option<&Row> {
        self.rows.iter().find(|row| (row.a, row.b) == (a.min(b), a.max(b)))
    }

    /// The comparison in which `a` is the candidate.
    fn comparison(&self, a: usize, b: usize) -> Option<&Comparison> {
        self.row(a, b).filter(|row| row.a == a).map(|row| &row.comparison)
    }

    fn holds(&self, a: usize, b: usize) -> bool {
        self.row(a, b).is_some_and(|row| row.holds)
    }

    /// Whether `a` is called faster than `b`, or slower; none: neither.
    fn faster(&self, a: usize, b: usize) -> Option<bool> {
        let row = self.row(a, b)?;
        side(row.comparison.speed).map(|faster| faster == (row.a == a))
    }

    /// The mean logarithm of the others' times over this one's.
    fn score(&self, at: usize) -> f64 {
        let signed = self.rows.iter().filter_map(|row| match () {
            () if row.a == at => Some(row.log_ratio),
            () if row.b == at => Some(-row.log_ratio),
            () => None,
        });
        signed.sum::<f64>() / self.players.max(2) as f64
    }

    fn ranks(&self) -> Result<Vec<u32>, Reason> {
        let mut ranks = vec![0; self.players];
        let mut open: Vec<usize> = (0..self.players).collect();
        let mut rank = 0;
        while !open.is_empty() {
            rank += 1;
            let beaten =
                |at: &usize| open.iter().any(|other| self.faster(*other, *at) == Some(true));
            let (rest, top): (Vec<usize>, Vec<usize>) = open.iter().partition(|at| beaten(at));
            if top.is_empty() {
                let detail = "the calls of its pairs go round in a circle, so they give no order";
                return Err(Reason::new("calls-in-a-circle", detail));
            }
            top.into_iter().for_each(|at| ranks[at] = rank);
            open = rest;
        }
        Ok(ranks)
    }
}

fn no_estimate(comparison: &Comparison) -> Reason {
    let (a, b) = (&comparison.candidate, &comparison.baseline);
    match comparison.reasons.first() {
        Some(reason) => Reason::new(&reason.code, format!("{a} against {b}: {}", reason.detail)),
        None => Reason::new("no-estimate", format!("{a} against {b} allows no estimate")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proofhouse_schema::verdict::Estimate;

    /// Ranks players of these times, where a difference of more than `apart` is called, and some pairs are called anyhow.
    fn ranked(times: &[f64], apart: f64, anyhow: &[(usize, usize)]) -> Result<Ranking, Reason> {
        let player = |at: usize| Player {
            id: format!("p{at}").parse().unwrap(),
            version: "1".to_owned(),
            time: None,
        };
        let players: Vec<Player> = (0..times.len()).map(player).collect();
        rank(&players, |a, b| {
            let log = (times[b] / times[a]).ln();
            let speed = match log {
                _ if anyhow.contains(&(a, b)) => Speed::Win,
                _ if anyhow.contains(&(b, a)) => Speed::Loss,
                log if log > apart => Speed::Win,
                log if log < -apart => Speed::Loss,
                _ => Speed::Parity,
            };
            let estimate = Estimate {
                ratio: Real(log.exp()),
                low: Real((log - apart).exp()),
                high: Real((log + apart).exp()),
                half_width: Real(apart),
                replicates: vec![Real(log.exp()); 3],
                p_value: Real(0.001),
                order_effect: None,
            };
            Comparison {
                candidate: players[a].id.clone(),
                baseline: players[b].id.clone(),
                baseline_version: "1".to_owned(),
                speed,
                estimate: Some(estimate),
                margin: 0.03,
                reasons: Vec::new(),
            }
        })
    }

    fn ranks(ranking: &Ranking) -> Vec<(&str, u32)> {
        ranking.standings.iter().map(|s| (s.provider.as_str(), s.rank)).collect()
    }

    #[test]
    fn providers_stand_by_their_calls() {
        let ranking = ranked(&[2.0, 1.0, 4.0], 0.05, &[]).unwrap();
        assert_eq!(ranks(&ranking), [("p1", 1), ("p0", 2), ("p2", 3)]);
        assert_eq!(ranking.pairs.len(), 3);
        let to_first = ranking.standings[2].to_first.as_ref().unwrap();
        assert_eq!(to_first.comparison.candidate.as_str(), "p1");
        assert!((to_first.comparison.estimate.as_ref().unwrap().ratio.0 - 4.0).abs() < 1e-12);
        assert!(ranking.standings.iter().all(|s| s.not_separated.is_empty()));
    }

    #[test]
    fn a_tie_does_not_carry_over() {
        // The second is not separated from either; the ends are.
        let ranking = ranked(&[1.0, 1.04, 1.08], 0.05, &[]).unwrap();
        assert_eq!(ranks(&ranking), [("p0", 1), ("p1", 1), ("p2", 2)]);
        let tied: Vec<usize> = ranking.standings.iter().map(|s| s.not_separated.len()).collect();
        assert_eq!(tied, [1, 2, 1]);
    }

    #[test]
    fn a_provider_stands_below_everyone_that_is_called_faster() {
        // p2 is called slower than p1 only, though p0 is faster than p1.
        let ranking = ranked(&[1.0, 1.2, 1.21], 0.3, &[(0, 1), (1, 2)]).unwrap();
        assert_eq!(ranks(&ranking), [("p0", 1), ("p1", 2), ("p2", 3)]);
    }

    #[test]
    fn calls_in_a_circle_give_no_order() {
        let reason = ranked(&[1.0, 1.0, 1.0], 0.1, &[(0, 1), (1, 2), (2, 0)]).unwrap_err();
        assert_eq!(reason.code, "calls-in-a-circle");
    }
}

//! Flips and crossovers as sentences, for people wherever they read.

use proofhouse_schema::ordering::{Crossover, CrossoverTurn, Flip};

use crate::log::plain;
use crate::words;

/// A cell that calls a pair the other way round than its gate does.
#[must_use]
pub fn flip_sentence(flip: &Flip) -> String {
    format!(
        "{}: {} is faster than {} ({:.3}x), which is ahead over the gate",
        plain(&flip.cell),
        flip.faster,
        flip.slower,
        flip.ratio.0
    )
}

/// Where the order of a pair turns along a dimension, or that the data cannot say.
#[must_use]
pub fn crossover_sentence(crossover: &Crossover) -> String {
    let Crossover { dimension, held, left, right, points, turns, exploratory } = crossover;
    let held = plain(held);
    if turns.is_empty() {
        let extents = words::row(points.iter().map(|point| point.extent));
        return format!(
            "along {dimension} ({held}): undecided between {left} and {right} over {extents}"
        );
    }
    let verb = if *exploratory { "leads" } else { "wins" };
    let turns: Vec<String> = turns.iter().map(|turn| turned(turn, dimension, verb)).collect();
    format!("along {dimension} ({held}): {}", turns.join("; "))
}

fn turned(turn: &CrossoverTurn, dimension: &str, verb: &str) -> String {
    let CrossoverTurn { before, until, after, from, undecided } = turn;
    let between = match undecided.is_empty() {
        true => String::new(),
        false => format!(", undecided at {}", words::row(undecided)),
    };
    format!(
        "{before} {verb} up to {dimension}={until}, {after} from {dimension}={from} on{between}"
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use proofhouse_schema::ordering::CrossoverPoint;
    use proofhouse_schema::real::Real;

    fn crossover(turns: Vec<CrossoverTurn>) -> Crossover {
        let point = |extent| CrossoverPoint { extent, ratio: Real(1.0), faster: None };
        Crossover {
            dimension: "rows".to_owned(),
            held: "hidden=64 F32".to_owned(),
            left: "a".parse().unwrap(),
            right: "b".parse().unwrap(),
            points: vec![point(1), point(8)],
            exploratory: true,
            turns,
        }
    }

    #[test]
    fn a_turn_says_up_to_where_and_from_where_on() {
        let turn = CrossoverTurn {
            before: "a".parse().unwrap(),
            until: 8,
            after: "b".parse().unwrap(),
            from: 128,
            undecided: vec![32, 64],
        };
        assert_eq!(
            crossover_sentence(&crossover(vec![turn])),
            "along rows (hidden=64 F32): a leads up to rows=8, b from rows=128 on, undecided at 32, 64"
        );
    }

    #[test]
    fn what_is_not_called_is_undecided_between_the_two() {
        let said = crossover_sentence(&crossover(Vec::new()));
        assert_eq!(said, "along rows (hidden=64 F32): undecided between a and b over 1, 8");
    }
}

//! The table of many gates: a row for each, one table for each place.

use std::collections::{BTreeMap, BTreeSet};

use proofhouse_schema::ordering::GateOrdering;
use proofhouse_schema::verdict::Verdict;

use super::cells::{against_best, brief, ratio};
use super::error::TableFault;
use super::{Column, chosen, heads, line};
use crate::log::plain;
use crate::markdown::escape;

/// What a column shows of a gate.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Shows {
    Operator,
    Contract,
    Gate,
    Cells,
    Ratio,
    Worst,
    Verdicts,
}

const COLUMNS: [Column<Shows>; 7] = [
    Column::new("operator", "operator", false, Shows::Operator),
    Column::new("contract", "contract", false, Shows::Contract),
    Column::new("gate", "gate", false, Shows::Gate),
    Column::new("cells", "cells", true, Shows::Cells),
    Column::new("ratio", "to the best other [95 %]", true, Shows::Ratio),
    Column::new("worst", "worst cell", false, Shows::Worst),
    Column::new("verdicts", "verdicts", false, Shows::Verdicts),
];
const USUAL: [&str; 6] = ["operator", "contract", "cells", "ratio", "worst", "verdicts"];

/// Draws the summary.
pub(super) fn table(
    gates: &[&GateOrdering],
    words: Option<&[String]>,
) -> Result<String, TableFault> {
    let usual = || USUAL.map(str::to_owned).to_vec();
    let words = words.map_or_else(usual, <[String]>::to_vec);
    let columns = chosen(&COLUMNS, &words)?;
    let mut places: BTreeMap<(&str, &str), Vec<&GateOrdering>> = BTreeMap::new();
    for gate in gates {
        places.entry((gate.candidate.as_str(), gate.place.as_str())).or_default().push(gate);
    }
    let tables = places.into_iter().map(|((candidate, place), gates)| {
        let rows = gates.iter().map(|gate| {
            let cells: Vec<String> =
                columns.iter().map(|column| of_gate(gate, column.column)).collect();
            line(&cells)
        });
        let rows: String = rows.collect();
        format!("{}\n\n{}{rows}", heading(candidate, place, &gates), heads(&columns))
    });
    Ok(tables.collect::<Vec<String>>().join("\n"))
}

/// Who, where, against whom, and what the ratio is.
fn heading(candidate: &str, place: &str, gates: &[&GateOrdering]) -> String {
    let standings = gates.iter().flat_map(|gate| &gate.cells).flat_map(|c| &c.ranking.standings);
    let others = standings.filter(|standing| standing.provider.as_str() != candidate);
    let others: BTreeSet<String> =
        others.map(|s| format!("{} {}", s.provider, plain(&s.version))).collect();
    let others = match others.is_empty() {
        true => "nobody".to_owned(),
        false => others.into_iter().collect::<Vec<_>>().join(", "),
    };
    format!(
        "{candidate} on {}, against {}. The ratio is the geometric mean over cells of the fastest other provider's time over ours.",
        escape(&plain(place)),
        escape(&others)
    )
}

fn of_gate(gate: &GateOrdering, shows: Shows) -> String {
    let none = || "–".to_owned();
    let best = gate.against_best.as_ref();
    match shows {
        Shows::Operator => format!("`{}`", gate.operator),
        Shows::Contract => {
            gate.timing.as_ref().map_or_else(none, |timing| escape(&timing.contract.to_string()))
        }
        Shows::Gate => format!("`{}`", gate.gate),
        Shows::Cells => match (gate.cells.len(), gate.unranked.len()) {
            (ranked, 0) => ranked.to_string(),
            (ranked, others) => format!("{ranked} of {}", ranked + others),
        },
        Shows::Ratio => best.map_or_else(none, |best| ratio(&best.estimate)),
        Shows::Worst => worst(gate).unwrap_or_else(none),
        Shows::Verdicts => verdicts(gate),
    }
}

fn worst(gate: &GateOrdering) -> Option<String> {
    let worst = &gate.against_best.as_ref()?.worst;
    let cell = gate.cells.iter().find(|cell| cell.cell == *worst)?;
    let comparison = against_best(gate, cell)?;
    let (shape, dtype, other) = (cell.shape(), cell.dtype, &comparison.baseline);
    Some(format!("{} {other} at {shape} {dtype}", brief(comparison)))
}

/// Verdicts with their counts, those of cells that could not be ranked among them.
fn verdicts(gate: &GateOrdering) -> String {
    let ranked = gate.cells.iter().map(|cell| cell.verdict);
    let all: Vec<Verdict> = ranked.chain(gate.unranked.iter().map(|cell| cell.verdict)).collect();
    let count = |verdict: Verdict| all.iter().filter(|found| **found == verdict).count();
    let words: Vec<String> = Verdict::ALL
        .into_iter()
        .map(|verdict| (verdict, count(verdict)))
        .filter(|(_, count)| *count > 0)
        .map(|(verdict, count)| format!("{count} {verdict}"))
        .collect();
    words.join(", ")
}

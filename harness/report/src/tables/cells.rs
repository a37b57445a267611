//! The table of one gate: a row for each cell, ranked or not.

use proofhouse_schema::ordering::{CellOrdering, GateOrdering, Pair, Standing, UnrankedCell};
use proofhouse_schema::verdict::{Comparison, Estimate};

use super::error::TableFault;
use super::{Column, chosen, heads, line};
use crate::log::plain;
use crate::markdown::escape;
use crate::words;

/// What a column shows of a cell.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Shows {
    Shape,
    Dtype,
    Inputs,
    Time,
    Other,
    Ratio,
    Says,
    Verdict,
    Evidence,
    Noise,
    Providers,
}

const COLUMNS: [Column<Shows>; 11] = [
    Column::new("shape", "shape", false, Shows::Shape),
    Column::new("dtype", "dtype", false, Shows::Dtype),
    Column::new("inputs", "inputs", false, Shows::Inputs),
    Column::new("time", "time", true, Shows::Time),
    Column::new("other", "fastest other", false, Shows::Other),
    Column::new("ratio", "ratio [95 %]", true, Shows::Ratio),
    Column::new("says", "says", false, Shows::Says),
    Column::new("verdict", "verdict", false, Shows::Verdict),
    Column::new("evidence", "evidence", false, Shows::Evidence),
    Column::new("noise", "noise floor", true, Shows::Noise),
    Column::new("providers", "all, the first first", false, Shows::Providers),
];
const USUAL: [&str; 8] =
    ["shape", "dtype", "time", "other", "ratio", "says", "verdict", "evidence"];

/// Draws the table; one below the other where a gate was measured in several places.
pub(super) fn table(
    gates: &[&GateOrdering],
    words: Option<&[String]>,
) -> Result<String, TableFault> {
    let tables = gates.iter().map(|gate| of_place(gate, words));
    Ok(tables.collect::<Result<Vec<String>, _>>()?.join("\n"))
}

fn of_place(gate: &GateOrdering, words: Option<&[String]>) -> Result<String, TableFault> {
    let usual = || {
        let mut usual: Vec<String> = USUAL.map(str::to_owned).to_vec();
        // Cells of one shape and dtype are told apart by their inputs.
        if gate
            .cells
            .iter()
            .any(|cell| inputs(cell) != gate.cells.first().map_or_else(String::new, inputs))
        {
            usual.insert(2, "inputs".to_owned());
        }
        usual
    };
    let words = words.map_or_else(usual, <[String]>::to_vec);
    let columns = chosen(&COLUMNS, &words)?;
    let mut text = format!("{}\n\n{}", heading(gate), heads(&columns));
    for cell in &gate.cells {
        let shown: Vec<String> =
            columns.iter().map(|column| of_cell(gate, cell, column.column)).collect();
        text.push_str(&line(&shown));
    }
    for cell in &gate.unranked {
        let shown: Vec<String> =
            columns.iter().map(|column| of_unranked(cell, column.column)).collect();
        text.push_str(&line(&shown));
    }
    if !gate.absences.is_empty() {
        text.push('\n');
    }
    for absence in &gate.absences {
        let count = absence.cells.len();
        let why = absence.cells.values().next().map_or("", String::as_str);
        let plural = if count == 1 { "" } else { "s" };
        let id = &absence.provider;
        text.push_str(&format!(
            "{id} took no part in {count} cell{plural}: {}.\n",
            escape(plain(why).trim_end_matches('.'))
        ));
    }
    Ok(text)
}

/// What, where, under which contract, and what the ratio is.
fn heading(gate: &GateOrdering) -> String {
    let contract = gate.timing.as_ref().map_or_else(
        || "no contract".to_owned(),
        |timing| format!("{}, margin {} %", timing.contract, 100.0 * timing.margin),
    );
    format!(
        "`{}`: {} on {}, {}. Time is the median per call; the ratio is the other's time over ours.",
        gate.gate,
        gate.candidate,
        escape(&plain(&gate.place)),
        escape(&contract)
    )
}

/// Everything of the key that is neither extent nor dtype.
fn inputs(cell: &CellOrdering) -> String {
    let dtype = cell.dtype.to_string();
    cell.rest.split_whitespace().filter(|word| *word != dtype).collect::<Vec<_>>().join(" ")
}

fn standing<'a>(gate: &GateOrdering, cell: &'a CellOrdering, own: bool) -> Option<&'a Standing> {
    cell.ranking.standings.iter().find(|s| (s.provider == gate.candidate) == own)
}

/// The candidate against the best of the others in a cell.
pub(super) fn against_best<'a>(
    gate: &GateOrdering,
    cell: &'a CellOrdering,
) -> Option<&'a Comparison> {
    let other = &standing(gate, cell, false)?.provider;
    let is_it = |pair: &&Pair| {
        pair.comparison.candidate == gate.candidate && pair.comparison.baseline == *other
    };
    cell.ranking.pairs.iter().find(is_it).map(|pair| &pair.comparison)
}

fn timed(standing: Option<&Standing>) -> String {
    let time = standing.and_then(|standing| standing.time.as_ref());
    time.map_or_else(none, |time| words::time(time.p50_ns.0))
}

fn none() -> String {
    "–".to_owned()
}

fn of_cell(gate: &GateOrdering, cell: &CellOrdering, shows: Shows) -> String {
    let comparison = || against_best(gate, cell);
    match shows {
        Shows::Shape => cell.shape(),
        Shows::Dtype => cell.dtype.to_string(),
        Shows::Inputs => escape(&inputs(cell)),
        Shows::Time => timed(standing(gate, cell, true)),
        Shows::Other => standing(gate, cell, false).map_or_else(none, |other| {
            let version = escape(&plain(&other.version));
            format!("{} {version}, {}", other.provider, timed(Some(other)))
        }),
        Shows::Ratio => comparison().map_or_else(none, brief),
        Shows::Says => comparison().map_or_else(none, |c| c.speed.to_string()),
        Shows::Verdict => {
            format!("{} {} ({})", words::mark(cell.verdict), cell.verdict, cell.grade.as_str())
        }
        Shows::Evidence => format!("`{}`", cell.evidence.short()),
        Shows::Noise => format!("{:.1} %", 100.0 * cell.noise_floor.0),
        Shows::Providers => {
            let name = |s: &Standing| format!("{}. {} {}", s.rank, s.provider, timed(Some(s)));
            cell.ranking.standings.iter().map(name).collect::<Vec<_>>().join("; ")
        }
    }
}

/// `1.043x [1.038, 1.049]`, or why there is no number.
pub(super) fn brief(comparison: &Comparison) -> String {
    comparison.estimate.as_ref().map_or_else(|| "no estimate".to_owned(), ratio)
}

/// A ratio with its interval, with three digits after the point where a percent is much.
pub(super) fn ratio(estimate: &Estimate) -> String {
    let Estimate { ratio, low, high, .. } = estimate;
    let digits = if ratio.0 < 2.0 { 3 } else { 2 };
    format!("{:.digits$}x [{:.digits$}, {:.digits$}]", ratio.0, low.0, high.0)
}

fn of_unranked(cell: &UnrankedCell, shows: Shows) -> String {
    match shows {
        Shows::Shape => escape(&plain(&cell.cell)),
        Shows::Ratio | Shows::Says => cell
            .reasons
            .first()
            .map_or_else(none, |reason| format!("not ranked: {}", escape(&plain(&reason.detail)))),
        Shows::Verdict => format!("{} {}", words::mark(cell.verdict), cell.verdict),
        Shows::Evidence => format!("`{}`", cell.evidence.short()),
        _ => none(),
    }
}

//! Cells of a gate that differ in one extent alone.

use std::collections::BTreeMap;

use proofhouse_schema::ordering::{CellOrdering, GateOrdering};

/// Cells that differ in one extent alone, the smallest first.
pub(crate) struct Series<'a> {
    /// The extent that varies.
    pub(crate) dimension: &'a str,
    /// What is equal, in words.
    pub(crate) held: String,
    /// The cells by the extent.
    pub(crate) cells: Vec<(u64, &'a CellOrdering)>,
}

/// The series of a gate along the dimension that most cells vary in, the longest first; none where nothing varies alone.
pub(crate) fn series(gate: &GateOrdering) -> Vec<Series<'_>> {
    let mut names: Vec<&str> = Vec::new();
    for (name, _) in gate.cells.iter().flat_map(|cell| &cell.dims) {
        if !names.contains(&name.as_str()) {
            names.push(name);
        }
    }
    let found = names.into_iter().map(|name| along(gate, name));
    let size = |series: &Vec<Series<'_>>| {
        let longest = series.first().map_or(0, |first| first.cells.len());
        (longest, series.iter().map(|one| one.cells.len()).sum::<usize>())
    };
    // Of dimensions that are alike the first in the cells' keys is taken.
    found.rev().max_by_key(size).unwrap_or_default()
}

fn along<'a>(gate: &'a GateOrdering, dimension: &'a str) -> Vec<Series<'a>> {
    let mut by_rest: Vec<(String, BTreeMap<u64, &'a CellOrdering>)> = Vec::new();
    for cell in &gate.cells {
        let others = cell.dims.iter().filter(|(name, _)| name != dimension);
        let Some((_, extent)) = cell.dims.iter().find(|(name, _)| name == dimension) else {
            continue;
        };
        let words = others.map(|(name, extent)| format!("{name}={extent}"));
        let held = words.chain([cell.rest.clone()]).collect::<Vec<_>>().join(" ");
        match by_rest.iter_mut().find(|(rest, _)| *rest == held) {
            Some((_, cells)) => drop(cells.insert(*extent, cell)),
            None => by_rest.push((held, BTreeMap::from([(*extent, cell)]))),
        }
    }
    let mut all: Vec<Series<'_>> = by_rest
        .into_iter()
        .filter(|(_, cells)| cells.len() > 1)
        .map(|(held, cells)| Series { dimension, held, cells: cells.into_iter().collect() })
        .collect();
    all.sort_by_key(|series| std::cmp::Reverse(series.cells.len()));
    all
}

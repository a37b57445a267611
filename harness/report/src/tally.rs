//! Counting: verdicts over all cells and per gate.

use std::collections::BTreeMap;

use proofhouse_schema::gate::GateKind;
use proofhouse_schema::ids::GateId;
use proofhouse_schema::report::{CellRow, ReportModel};
use proofhouse_schema::verdict::Verdict;

/// Cells by verdict.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Tally {
    counts: BTreeMap<Verdict, usize>,
}

impl Tally {
    /// Counts cells.
    pub fn of<'a>(cells: impl IntoIterator<Item = &'a CellRow>) -> Self {
        let mut tally = Self::default();
        for cell in cells {
            *tally.counts.entry(cell.verdict).or_default() += 1;
        }
        tally
    }

    /// Cells with a verdict.
    #[must_use]
    pub fn count(&self, verdict: Verdict) -> usize {
        self.counts.get(&verdict).copied().unwrap_or(0)
    }

    /// All cells.
    #[must_use]
    pub fn total(&self) -> usize {
        self.counts.values().sum()
    }

    /// Verdicts that occur with their counts, in the order of [`Verdict::ALL`].
    #[must_use]
    pub fn present(&self) -> Vec<(Verdict, usize)> {
        Verdict::ALL.into_iter().map(|v| (v, self.count(v))).filter(|(_, n)| *n > 0).collect()
    }

    /// The verdict of them all: the worst exit wins; no cell at all is not-run, never green.
    #[must_use]
    pub fn worst(&self) -> Verdict {
        self.counts.keys().copied().min_by_key(|v| v.exit()).unwrap_or(Verdict::NotRun)
    }
}

/// One gate's line in a report.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GateTally {
    /// The gate.
    pub gate: GateId,
    /// Its kind.
    pub kind: GateKind,
    /// Whether any of its cells decides the exit code.
    pub required: bool,
    /// Its cells by verdict.
    pub tally: Tally,
    /// Those among them that ask for a refusal.
    pub refusals: Tally,
}

/// Whether a cell asks for a typed refusal of an invalid input.
pub(crate) fn is_refusal(cell: &CellRow) -> bool {
    cell.values.starts_with("refusal:")
}

impl GateTally {
    /// One line per gate, in the order of the model's cells.
    #[must_use]
    pub fn all(model: &ReportModel) -> Vec<GateTally> {
        let mut gates: Vec<(GateId, Vec<&CellRow>)> = Vec::new();
        let mut index = BTreeMap::new();
        for cell in &model.cells {
            let at = *index.entry(cell.gate.clone()).or_insert_with(|| {
                gates.push((cell.gate.clone(), Vec::new()));
                gates.len() - 1
            });
            gates[at].1.push(cell);
        }
        gates
            .into_iter()
            .map(|(gate, cells)| GateTally {
                kind: cells[0].kind,
                required: cells.iter().any(|c| c.required),
                refusals: Tally::of(cells.iter().copied().filter(|c| is_refusal(c))),
                tally: Tally::of(cells.iter().copied()),
                gate,
            })
            .collect()
    }
}

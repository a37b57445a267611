//! What a report says besides its rows.

use std::collections::BTreeMap;

use proofhouse_schema::canonical::Digest;
use proofhouse_schema::evidence::Attempt;
use proofhouse_schema::ordering::GateOrdering;
use proofhouse_schema::report::CellRow;

use crate::log::LogTail;

/// What a report says besides its rows. The default says nothing.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Remarks {
    /// Why the evidence that it was drawn from is not whole, in sentences.
    pub gaps: Vec<String>,
    /// The processes of cells that did not pass, by the cell's evidence.
    pub attempts: BTreeMap<Digest, Vec<Attempt>>,
    /// The providers of its timed cells in order.
    pub orderings: Vec<GateOrdering>,
}

impl Remarks {
    /// The last words of a cell's processes that ended badly.
    #[must_use]
    pub fn last_words(&self, cell: &CellRow) -> Vec<LogTail> {
        let attempts = self.attempts.get(&cell.evidence).map(Vec::as_slice).unwrap_or_default();
        LogTail::of(cell.verdict, attempts)
    }
}

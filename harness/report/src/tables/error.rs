//! Why a document cannot be filled.

/// A document that cannot be filled, and where.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{file}{place}: {fault}", place = if *.line == 0 { String::new() } else { format!(":{line}") })]
pub struct TableError {
    /// The file.
    pub file: String,
    /// The line, from 1; 0: the whole file.
    pub line: usize,
    /// What is wrong.
    pub fault: TableFault,
}

/// What is wrong with a document.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TableFault {
    /// No marker at all.
    #[error(
        "no table to fill; accepted: at least one line `<!-- proofhouse:table gate=ID -->` or `<!-- proofhouse:summary -->`"
    )]
    NoTable,
    /// A marker without its end.
    #[error(
        "the table is not closed; accepted: a line `<!-- /proofhouse -->` before the next table and the end of the file"
    )]
    NotClosed,
    /// An end without its beginning.
    #[error("a table is closed that was not opened")]
    NotOpened,
    /// A marker that is not alone on its line, or has no end on it.
    #[error(
        "the marker is not understood: {found:?}; accepted: `<!-- proofhouse:KIND KEY=VALUE ... -->`, alone on its line"
    )]
    Malformed {
        /// The line.
        found: String,
    },
    /// A kind of table that there is not.
    #[error("unknown table {found:?}; accepted: table, summary")]
    UnknownTable {
        /// The word.
        found: String,
    },
    /// A key that the table does not take, or that is given twice.
    #[error("unknown or repeated key {found:?}; accepted, each once: {accepted}")]
    BadKey {
        /// The key.
        found: String,
        /// What is accepted.
        accepted: &'static str,
    },
    /// A table of no gate.
    #[error("the table names no gate; accepted: `<!-- proofhouse:table gate=ID -->`")]
    NoGate,
    /// A value that a key does not take.
    #[error("{key} is {found:?}; accepted: {accepted}")]
    BadValue {
        /// The key.
        key: &'static str,
        /// The value.
        found: String,
        /// What is accepted.
        accepted: String,
    },
    /// A column that is asked for twice.
    #[error("column {found:?} is asked for twice; accepted: each once")]
    TwiceColumn {
        /// The column.
        found: String,
    },
    /// A gate that is neither declared nor measured.
    #[error("unknown gate {found:?}; declared are {known}")]
    UnknownGate {
        /// The gate.
        found: String,
        /// Those that are declared.
        known: String,
    },
    /// Nothing was measured.
    #[error(
        "there is no timed evidence of {of}; accepted: gates of kind baseline that were run, see `proofhouse compare`"
    )]
    NoEvidence {
        /// Of what.
        of: String,
    },
}

//! Everything that can go wrong with the index.

use std::error::Error;
use std::io;
use std::path::PathBuf;

use proofhouse_schema::canonical::{CanonicalError, Digest};

/// What DuckDB said. The code beneath it is the same for every failure and is left out.
#[derive(Debug)]
pub struct Complaint(duckdb::Error);

impl std::fmt::Display for Complaint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.0 {
            duckdb::Error::DuckDBFailure(_, None) => f.write_str("DuckDB gave no reason"),
            other => other.fmt(f),
        }
    }
}

impl Error for Complaint {}

impl From<duckdb::Error> for Complaint {
    fn from(source: duckdb::Error) -> Self {
        Self(source)
    }
}

/// A failure of the index. The evidence itself is never touched by any of them.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// Another process, or another handle of this one, has the index open.
    #[error(
        "the index {} is in use{}; wait for the other command to end, or name another index",
        path.display(), holder.as_ref().map(|h| format!(" by process {h}")).unwrap_or_default()
    )]
    Locked {
        /// The index.
        path: PathBuf,
        /// The process that holds it, where it is known.
        holder: Option<String>,
    },
    /// There is no index to read.
    #[error("there is no index at {}; `import` makes it from the evidence folder", path.display())]
    NotFound {
        /// Where it was looked for.
        path: PathBuf,
    },
    /// The file is not a readable DuckDB database.
    #[error(
        "{} is damaged or is not an index; it is derived from the evidence, so delete it and import again",
        path.display()
    )]
    NotAnIndex {
        /// The file.
        path: PathBuf,
        /// What DuckDB said.
        #[source]
        source: Complaint,
    },
    /// The file is a DuckDB database with other tables in it.
    #[error("{} is a DuckDB database that Proofhouse did not make; it is left as it is", path.display())]
    ForeignDatabase {
        /// The file.
        path: PathBuf,
    },
    /// The index was made by a newer Proofhouse.
    #[error(
        "the index {} has layout {found}, this program knows up to {known}; \
         use the newer program, or delete the file and import again",
        path.display()
    )]
    NewerLayout {
        /// The index.
        path: PathBuf,
        /// Layout in the file.
        found: i64,
        /// Layout of this program.
        known: i64,
    },
    /// The index was made by an older Proofhouse and this handle may not change it.
    #[error("the index {} has layout {found}, this program needs {known}; import makes it again", path.display())]
    OlderLayout {
        /// The index.
        path: PathBuf,
        /// Layout in the file.
        found: i64,
        /// Layout of this program.
        known: i64,
    },
    /// The index was opened for reading.
    #[error("the index was opened for reading and cannot be changed")]
    ReadOnly,
    /// A file of the index cannot be made, written or removed.
    #[error("cannot write {}; is the folder writable and the disk not full?", path.display())]
    Unwritable {
        /// The file.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// The path has no UTF-8 form, which DuckDB needs.
    #[error("DuckDB cannot open {}: the path is not UTF-8", path.display())]
    PathNotUtf8 {
        /// The path.
        path: PathBuf,
    },
    /// The evidence folder cannot be listed.
    #[error("the evidence cannot be listed")]
    List(#[source] Box<dyn Error + Send + Sync>),
    /// The text is not SQL.
    #[error("the query is not valid SQL: {message}")]
    Syntax {
        /// What DuckDB's parser said.
        message: String,
    },
    /// The text is SQL, but not a query.
    #[error(
        "only queries are accepted (SELECT, FROM, WITH, VALUES, DESCRIBE, SHOW, SUMMARIZE): \
         the index is derived from the evidence and is not edited; found {found:?}"
    )]
    NotAQuery {
        /// The beginning of the text.
        found: String,
    },
    /// The text has more or fewer than one statement.
    #[error("expected one query, found {count} statements")]
    Statements {
        /// How many.
        count: usize,
    },
    /// The query failed.
    #[error("the query failed")]
    Query(#[source] Complaint),
    /// Rows cannot be written out.
    #[error("the rows cannot be written")]
    Output(#[source] io::Error),
    /// Two results are statements about different things.
    #[error("{a} and {b} cannot be compared: {}", differences.join("; "))]
    DifferentScope {
        /// One record.
        a: Digest,
        /// The other.
        b: Digest,
        /// Each difference in words: what, and both values.
        differences: Vec<String>,
    },
    /// A history spans more than one timing contract, host or input.
    #[error(
        "the history of {gate} {cell} has {} timing scopes ({}); name one: numbers of different scopes are \
         never put in one line", scopes.len(), scopes.join(", ")
    )]
    MixedScopes {
        /// The gate.
        gate: String,
        /// The cell.
        cell: String,
        /// The scopes that are there.
        scopes: Vec<String>,
    },
    /// No such record is in the index.
    #[error("no evidence {digest} is in the index; import it first")]
    UnknownEvidence {
        /// The digest asked for.
        digest: Digest,
    },
    /// The record holds no times.
    #[error("evidence {digest} holds no times: it is a {kind} record")]
    NotTimed {
        /// The record.
        digest: Digest,
        /// Its gate kind.
        kind: String,
    },
    /// A record in the index is not what was put there.
    #[error("the indexed record {digest} is not readable; delete the index and import again")]
    BadBody {
        /// The record.
        digest: String,
        /// Why.
        #[source]
        source: CanonicalError,
    },
    /// DuckDB refused something that the index itself does.
    #[error("the index failed while {doing}")]
    Database {
        /// What was being done.
        doing: &'static str,
        /// What DuckDB said.
        #[source]
        source: Complaint,
    },
}

/// Names what was being done when DuckDB failed.
pub(crate) fn doing(doing: &'static str) -> impl FnOnce(duckdb::Error) -> StoreError {
    move |source| StoreError::Database { doing, source: source.into() }
}

/// A query that DuckDB refused.
pub(crate) fn refused(source: duckdb::Error) -> StoreError {
    StoreError::Query(source.into())
}

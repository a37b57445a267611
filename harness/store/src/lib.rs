//! The DuckDB index over the evidence folder.
//!
//! The folder is the truth and this is derived from it: it can be deleted and made again, holds nothing that a
//! record does not, and changes no record. It answers SQL ([`Store::query`]), gives the rows that reports are
//! made of ([`Store::report`]), and refuses to put numbers of different timing contracts side by side
//! ([`Store::compare`], [`Store::history`]).
//!
//! Workers and GPU hosts never need it.
//!
//! ```no_run
//! // Compiled only: a documentation test has no run path to libduckdb. `tests/query.rs` runs the same lines.
//! use proofhouse_store::{Format, Store, synthetic::Synthetic};
//!
//! # fn main() -> Result<(), proofhouse_store::StoreError> {
//! let mut index = Store::in_memory()?;
//! // An evidence folder is a source, too; this one makes its records up.
//! index.ingest(&Synthetic { cells: 2, samples: 100 })?;
//! let mut text = Vec::new();
//! index.write_query("SELECT cell, verdict FROM cells ORDER BY cell", Format::Csv, &mut text)?;
//! assert!(text.starts_with(b"cell,verdict\r\nrows=1 hidden=1024 BF16 contiguous normal,pass\r\n"));
//! assert!(index.query("DELETE FROM verdicts").is_err());
//! # Ok(())
//! # }
//! ```

mod compare;
mod error;
mod format;
mod ingest;
mod layout;
mod query;
mod reals;
mod records;
mod rows;
mod scope;
mod source;
mod store;
pub mod synthetic;

pub use compare::{Change, History, HistoryPoint, SideBySide};
pub use error::{Complaint, StoreError};
pub use format::{Format, table};
pub use ingest::{Ingested, Refused};
pub use layout::LAYOUT;
pub use query::{Column, Rows};
pub use rows::{Heading, Selection};
pub use scope::contract_words;
pub use source::{Source, SourceError};
pub use store::{Access, Store};

//! Rows in, bytes out: HTML, Markdown, SVG and JUnit from the same rows.
//!
//! This crate reads nothing and writes nothing; it draws a [`ReportModel`] and says in every output which evidence
//! it was made from.
//!
//! [`ReportModel`]: proofhouse_schema::report::ReportModel

mod html;
mod junit;
mod log;
mod markdown;
mod order;
mod plot;
mod remarks;
mod sentences;
mod series;
mod tables;
mod tally;
mod words;

pub use html::html;
pub use junit::junit;
pub use log::{LogTail, plain};
pub use markdown::markdown;
pub use plot::{PlotError, forest, intervals, matrix, scatter, sizes, standings};
pub use remarks::Remarks;
pub use sentences::{crossover_sentence, flip_sentence};
pub use tables::{Filled, TableError, TableFault, difference, fill};
pub use tally::{GateTally, Tally};

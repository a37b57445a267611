//! The checker: it makes the inputs, holds the oracle and judges outputs, in a process that no candidate can reach.
//!
//! | module | what it does |
//! |---|---|
//! | [`catalog`] | the contract as the harness knows it |
//! | [`convert`] | types of the harness to types of the contract and back |
//! | `finite` | which value classes can leave nothing finite to compare |
//! | [`contents`] | what the tensors of a case hold: seeded, or from a file |
//! | [`master`] | contents and expected outputs, kept within a bound |
//! | `rows` | expected outputs and comparisons of a large case, runs of rows side by side |
//! | [`image`] | a case's file: header, guards, storage, poison |
//! | [`judge`] | a file after a run against the file as it was posed |
//! | [`qualify`] | the mutation battery, through the same judge |
//! | `spread` | work on many bytes, by several threads |
//! | [`checker`] | the verbs |

pub mod catalog;
pub mod checker;
pub mod contents;
pub mod convert;
mod error;
mod finite;
pub mod image;
pub mod judge;
pub mod master;
pub mod qualify;
mod rows;
mod spread;

pub use checker::Checker;
pub use error::CheckerError;

//! The evidence folder: immutable records, hash-chained logs, blobs, verification, and no database.
//!
//! ```text
//! evidence/
//!   <gate-id>/<utc-date>-<12 hex>.json   cells and their verdicts; also session/ and selftest/
//!   blobs/<sha256>                       compressed sample columns
//!   log/<writer>.jsonl                   one hash chain per writer
//!   .lock                                held by the one run that writes
//!   .partial/                            work that is not evidence yet
//! ```
//!
//! A file's bytes are the canonical bytes of its record and its id is their sha256. Writing is: temporary file,
//! fsync, a line in the writer's log, fsync, rename without replacing. A writer that is killed leaves either
//! nothing, or a temporary file whose digest the log already names; the next writer finishes that rename. So log
//! and files always agree, and [`Folder::verify`] treats any difference as a finding.

mod blob;
mod calm;
mod date;
mod error;
mod folder;
mod log;
mod merge;
mod partial;
mod survey;
mod verify;
mod writer;

pub use calm::Calm;
pub use date::{now, utc_date, utc_rfc3339, utc_stamp};
pub use error::EvidenceError;
pub use folder::{Folder, Stored};
pub use log::LogLine;
pub use merge::Imported;
pub use survey::{Odd, Survey};
pub use verify::{Finding, FindingKind, Verification};
pub use writer::Writer;

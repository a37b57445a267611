//! Probes of host and source. A probe that fails is a value (`unavailable`, with why), never an absent key and never
//! an error: a record says what could not be known.

mod bundle;
mod digest;
mod host;
mod source;

pub use digest::{DigestError, file_digest, folder_digest};
pub use host::{host, machine_id};
pub use source::source;

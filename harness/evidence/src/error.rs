//! What can go wrong with an evidence folder.

use std::io;
use std::path::{Path, PathBuf};

use proofhouse_schema::canonical::{CanonicalError, Digest};
use proofhouse_schema::samples::SamplesError;

/// An error of the evidence folder. Each names the path.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EvidenceError {
    /// The disk is full. What was written before is whole.
    #[error("{path}: no space is left on the device; what was written before is whole", path = .path.display())]
    Full {
        /// The file or folder.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// The folder cannot be written.
    #[error("{path}: the evidence folder cannot be written ({what})", path = .path.display())]
    ReadOnly {
        /// What was tried.
        what: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// Any other IO error.
    #[error("{path}: cannot {what}", path = .path.display())]
    Io {
        /// What was tried.
        what: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// A file or folder cannot be read.
    #[error("{path}: cannot be read", path = .path.display())]
    Unreadable {
        /// The file or folder.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// Another run writes to the folder.
    #[error("{path}: another run ({holder}) writes to this evidence folder; wait for it, or give --evidence DIR",
        path = .path.display())]
    Locked {
        /// The lock file.
        path: PathBuf,
        /// Who holds it, as the lock file says.
        holder: String,
    },
    /// A run writes to the folder that is to be verified.
    #[error("{path}: a run ({holder}) writes to this evidence folder, and what it has not finished would look wrong; \
        verify when it has ended", path = .path.display())]
    Busy {
        /// The folder.
        path: PathBuf,
        /// Who holds it, as the lock file says.
        holder: String,
    },
    /// A run wrote to the folder while it was verified.
    #[error("{path}: a run wrote to this evidence folder while it was verified; verify again", path = .path.display())]
    Disturbed {
        /// The folder.
        path: PathBuf,
    },
    /// A file is too large to be a record or a log.
    #[error("{path}: {size} bytes, {limit} at most are accepted", path = .path.display())]
    TooLarge {
        /// The file.
        path: PathBuf,
        /// Its size in bytes.
        size: u64,
        /// The limit in bytes.
        limit: u64,
    },
    /// Not canonical JSON.
    #[error("{path}: not a record", path = .path.display())]
    NotCanonical {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        source: CanonicalError,
    },
    /// A record of a newer (or unknown) schema.
    #[error("{path}: schema {found:?}; this version reads {known:?}: use a newer proofhouse", path = .path.display())]
    Schema {
        /// The file.
        path: PathBuf,
        /// The schema found.
        found: String,
        /// The schema that is read.
        known: &'static str,
    },
    /// The file's name does not say its digest.
    #[error("{path}: the name says {named}, the bytes have {found}: the file was edited or renamed", path = .path.display())]
    WrongName {
        /// The file.
        path: PathBuf,
        /// The digest's prefix in the name.
        named: String,
        /// The digest of the bytes.
        found: Digest,
    },
    /// A path that is not UTF-8, or not one that a writer makes.
    #[error("{path}: not a path that an evidence folder has", path = .path.display())]
    Path {
        /// The path.
        path: PathBuf,
    },
    /// Another file of the same name with other bytes.
    #[error("{path}: exists with other bytes; evidence is never overwritten", path = .path.display())]
    Exists {
        /// The file.
        path: PathBuf,
    },
    /// The blob's bytes are not those of its name.
    #[error("{path}: the blob's bytes have digest {found}: it was edited or cut", path = .path.display())]
    BlobDigest {
        /// The file.
        path: PathBuf,
        /// The digest of the bytes.
        found: Digest,
    },
    /// The blob holds no samples.
    #[error("{path}: the blob holds no samples", path = .path.display())]
    Blob {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        source: SamplesError,
    },
    /// A broken hash chain.
    #[error("{path}:{line}: the hash chain is broken: {what}", path = .path.display())]
    Chain {
        /// The log.
        path: PathBuf,
        /// The line, from 1.
        line: usize,
        /// What is wrong.
        what: String,
    },
    /// Two logs of one writer where neither continues the other.
    #[error("{path}: both folders have a log of this writer and neither continues the other", path = .path.display())]
    Diverged {
        /// The log.
        path: PathBuf,
    },
    /// The folder to import has findings.
    #[error("{path}: not imported, {count} findings; the first: {first}", path = .path.display())]
    Rejected {
        /// The folder.
        path: PathBuf,
        /// How many.
        count: usize,
        /// The first one.
        first: String,
    },
}

impl EvidenceError {
    /// Sorts an IO error by what a person can do about it.
    pub(crate) fn io(what: &'static str, path: &Path, source: io::Error) -> Self {
        let path = path.to_owned();
        match source.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
                Self::Full { path, source }
            }
            io::ErrorKind::ReadOnlyFilesystem | io::ErrorKind::PermissionDenied => {
                Self::ReadOnly { what, path, source }
            }
            _ => Self::Io { what, path, source },
        }
    }
}

/// An error with its causes, for findings, which are sentences.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text.push_str(": ");
        text.push_str(&error.to_string());
        cause = error.source();
    }
    text
}

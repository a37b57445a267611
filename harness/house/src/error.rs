//! Everything that can go wrong before proofhouse itself runs.

use std::fmt;
use std::io;
use std::path::PathBuf;

use crate::pins::DUCKDB_VERSION;

/// A set-up failure; its text says what to do next.
#[derive(Debug, thiserror::Error)]
pub enum HouseError {
    /// No source had the library.
    #[error(
        "libduckdb {DUCKDB_VERSION} for {machine} is not here\n{}\n{REMEDIES}",
        Tried::list(tried)
    )]
    LibraryNotFound {
        /// `OS ARCH ENV` of this machine.
        machine: String,
        /// Each source that was asked, and its answer.
        tried: Vec<Tried>,
    },
    /// The bytes are not the pinned ones.
    #[error(
        "{} has the wrong {algorithm} digest\n  expected {expected}\n  found    {found}\n\
         It is not used. Delete it if it is a stale or cut-off download; if you brought this library \
         yourself on purpose, name its sha256 in PROOFHOUSE_DUCKDB_LIB_SHA256.",
        path.display()
    )]
    DigestMismatch {
        /// The file that was read.
        path: PathBuf,
        /// `sha256` or `sha512`.
        algorithm: &'static str,
        /// Pinned digest, hex.
        expected: String,
        /// Digest of the file, hex.
        found: String,
    },
    /// Nobody vouches for the bytes of a library that the user brought.
    #[error(
        "PROOFHOUSE_DUCKDB_LIB names {}, but no digest is pinned for {machine}; \
         set PROOFHOUSE_DUCKDB_LIB_SHA256 to the sha256 that the file must have",
        path.display()
    )]
    NoDigest {
        /// The library named by the user.
        path: PathBuf,
        /// `OS ARCH ENV` of this machine.
        machine: String,
    },
    /// The user's variable names nothing usable.
    #[error("PROOFHOUSE_DUCKDB_LIB is {}, which is neither {file} nor a folder that holds it", path.display())]
    OverrideMissing {
        /// Value of the variable.
        path: PathBuf,
        /// File name looked for.
        file: &'static str,
    },
    /// The package tarball cannot be unpacked.
    #[error("{} is not a whole package tarball", path.display())]
    BadTarball {
        /// The tarball.
        path: PathBuf,
        /// What the decoder said.
        source: io::Error,
    },
    /// The tarball holds a path that leads out of the folder it is unpacked in.
    #[error("{} holds the entry '{entry}', which leads out of its folder; nothing of it is used", path.display())]
    UnsafeEntry {
        /// The tarball.
        path: PathBuf,
        /// The offending entry's path.
        entry: String,
    },
    /// The tarball does not hold the library exactly once.
    #[error("{} holds {found} entries '{entry}', expected 1", path.display())]
    EntryCount {
        /// The tarball.
        path: PathBuf,
        /// The wanted entry.
        entry: String,
        /// How many were there.
        found: usize,
    },
    /// The library entry is larger than the pinned size.
    #[error("{}: the entry '{entry}' is {found} bytes, expected {expected}", path.display())]
    EntrySize {
        /// The tarball.
        path: PathBuf,
        /// The wanted entry.
        entry: String,
        /// Pinned size, bytes.
        expected: u64,
        /// Size in the tarball's header, bytes.
        found: u64,
    },
    /// A file or folder cannot be written.
    #[error("cannot write {}; is the folder writable and the disk not full?", path.display())]
    Unwritable {
        /// What was to be written.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// A file cannot be read.
    #[error("cannot read {}", path.display())]
    Unreadable {
        /// What was to be read.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// A program cannot be started.
    #[error("cannot start {program}")]
    NotStarted {
        /// The program.
        program: String,
        /// What the system said.
        source: io::Error,
    },
    /// The build of proofhouse failed; cargo has said why.
    #[error("the build failed (cargo ended with {status}); its messages are above")]
    BuildFailed {
        /// Exit status in words.
        status: String,
    },
    /// This binary cannot tell where the repository or the target folder is.
    #[error("{what} cannot be found from {}; run it as `cargo house` inside the repository", from.display())]
    NoLayout {
        /// What was looked for.
        what: &'static str,
        /// Where the search began.
        from: PathBuf,
    },
}

const REMEDIES: &str = "\
Do one of these, then run the command again:
  - install npm (a part of Node.js) and be on the network once: the library is then fetched, checked and cached
  - bring the library: PROOFHOUSE_DUCKDB_LIB=/path/to/libduckdb.so (or its folder) cargo house ...
    a build other than the pinned one also needs PROOFHOUSE_DUCKDB_LIB_SHA256=<sha256 of the file>
  - compile DuckDB from source, 25 to 40 CPU minutes once: PROOFHOUSE_DUCKDB_FROM_SOURCE=1 cargo house ...";

/// One source of the library and why it did not serve.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tried {
    /// The source in words, with its path or package.
    pub source: String,
    /// Why it did not serve.
    pub outcome: String,
}

impl Tried {
    fn list(tried: &[Tried]) -> String {
        let lines: Vec<String> = tried.iter().map(Tried::to_string).collect();
        format!("Tried, in this order:\n{}", lines.join("\n"))
    }
}

impl fmt::Display for Tried {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "  - {}: {}", self.source, self.outcome)
    }
}

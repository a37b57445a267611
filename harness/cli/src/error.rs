//! How a command can fail, and the exit code of each.

use std::io;
use std::path::PathBuf;

use proofhouse_evidence::EvidenceError;
use proofhouse_gate::declare::DeclarationErrors;
use proofhouse_report::{PlotError, TableError};
use proofhouse_runner::RunError;
use proofhouse_schema::exit::Exit;
#[cfg(feature = "index")]
use proofhouse_store::StoreError;

/// What to do about evidence that cannot be read as such.
const VERIFY: &str = "`proofhouse verify` lists everything that is wrong with the evidence folder";

/// A command failed. Its chain is printed once, in `main`.
#[derive(Debug, thiserror::Error)]
pub enum CliError {
    /// No project above the current folder.
    #[error("no folder with gates/ at or above {start}; go into a project, or give --root DIR", start = .start.display())]
    NoProject {
        /// Where the search began.
        start: PathBuf,
    },
    /// A folder that is asked for is not there.
    #[error("{what} {path} is not there", path = .path.display())]
    NoFolder {
        /// What it is.
        what: &'static str,
        /// The path.
        path: PathBuf,
    },
    /// An archive that is no result of a run.
    #[error("{path} holds no folder evidence/; accepted: an evidence folder, or a file that `run --result` wrote", path = .path.display())]
    NoEvidence {
        /// The archive.
        path: PathBuf,
    },
    /// Declarations are bad; they are rendered with excerpts.
    #[error("declarations are not valid")]
    Declarations(DeclarationErrors),
    /// An unknown profile.
    #[error("profile {found:?} is not declared in profiles.toml: declared are {known}")]
    Profile {
        /// What was asked for.
        found: String,
        /// What there is.
        known: String,
    },
    /// Two providers with one id.
    #[error("provider {id} is declared twice: in {first} and in {second}", first = .first.display(), second = .second.display())]
    TwoProviders {
        /// The id.
        id: String,
        /// One folder.
        first: PathBuf,
        /// The other folder.
        second: PathBuf,
    },
    /// A binary that belongs beside this one is missing.
    #[error("{path} is not there; `cargo house setup` builds it", path = .path.display())]
    NoBinary {
        /// The path.
        path: PathBuf,
    },
    /// The command that goes into a bundle is missing.
    #[error("{path} is not there; `cargo house bundle` builds the command that goes into a bundle, `--command FILE` names another", path = .path.display())]
    NoBundled {
        /// The path.
        path: PathBuf,
    },
    /// The evidence folder.
    #[error(transparent)]
    Evidence(#[from] EvidenceError),
    /// The run.
    #[error(transparent)]
    Run(#[from] RunError),
    /// The index.
    #[cfg(feature = "index")]
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A plot.
    #[error(transparent)]
    Plot(#[from] PlotError),
    /// A document's tables.
    #[error(transparent)]
    Table(#[from] TableError),
    /// Evidence that nothing may be rendered from.
    #[error("the evidence in {path} is not whole: nothing is rendered from it", path = .path.display())]
    NotWhole {
        /// The evidence folder.
        path: PathBuf,
    },
    /// A file that is written.
    #[error("{path}: cannot be written", path = .path.display())]
    Write {
        /// The path.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// A file that is read.
    #[error("{path}: cannot be read", path = .path.display())]
    Read {
        /// The path.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// Wrong usage that the parser cannot see.
    #[error("{0}")]
    Usage(String),
}

impl CliError {
    /// The exit code.
    pub fn exit(&self) -> Exit {
        match self {
            Self::Usage(_) => Exit::Usage,
            Self::Write { .. } | Self::Plot(_) => Exit::WriteError,
            Self::NotWhole { .. } => Exit::Failed,
            Self::Evidence(error) => of_evidence(error),
            Self::Run(error) => of_run(error),
            #[cfg(feature = "index")]
            Self::Store(StoreError::Unwritable { .. } | StoreError::Output { .. }) => {
                Exit::WriteError
            }
            _ => Exit::Setup,
        }
    }

    /// What to do about it, where that is not in the error itself.
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            Self::Evidence(error) => hint(error),
            Self::NotWhole { .. } => Some(VERIFY),
            Self::Run(error) => hint_of_run(error),
            _ => None,
        }
    }
}

/// What to do about an error of a run.
pub fn hint_of_run(error: &RunError) -> Option<&'static str> {
    evidence_of(error).and_then(hint)
}

/// What was read and is not evidence keeps a command from beginning; what was to be imported and is not fails.
const fn of_evidence(error: &EvidenceError) -> Exit {
    match error {
        EvidenceError::Full { .. }
        | EvidenceError::ReadOnly { .. }
        | EvidenceError::Exists { .. }
        | EvidenceError::Io { .. } => Exit::WriteError,
        EvidenceError::Rejected { .. } | EvidenceError::Diverged { .. } => Exit::Failed,
        _ => Exit::Setup,
    }
}

const fn hint(error: &EvidenceError) -> Option<&'static str> {
    match error {
        EvidenceError::NotCanonical { .. }
        | EvidenceError::Schema { .. }
        | EvidenceError::WrongName { .. }
        | EvidenceError::Path { .. }
        | EvidenceError::TooLarge { .. }
        | EvidenceError::BlobDigest { .. }
        | EvidenceError::Blob { .. }
        | EvidenceError::Chain { .. }
        | EvidenceError::Unreadable { .. } => Some(VERIFY),
        _ => None,
    }
}

/// The runner knows of evidence only that it could not be had; its cause says more.
fn evidence_of(error: &RunError) -> Option<&EvidenceError> {
    match error {
        RunError::Evidence(fault) => fault.source.downcast_ref(),
        _ => None,
    }
}

fn of_run(error: &RunError) -> Exit {
    evidence_of(error).map_or(error.exit(), of_evidence)
}

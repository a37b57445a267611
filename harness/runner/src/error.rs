//! Why a run could not be made, or could not go on.

use std::path::PathBuf;

use proofhouse_schema::canonical::CanonicalError;
use proofhouse_schema::ids::{GateId, ProviderId};

use crate::custody::CustodyError;
use crate::ports::EvidenceError;

/// Why a run could not be made, or could not go on. What befalls a single cell is no error but evidence.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// A gate names a provider that has no folder.
    #[error("gate {gate} names provider {provider}, which has no folder: known are {known}")]
    UnknownProvider {
        /// The gate.
        gate: GateId,
        /// The provider.
        provider: ProviderId,
        /// The providers that are there.
        known: String,
    },
    /// A file or folder of a provider could not be read.
    #[error("provider {provider}: {path} could not be read")]
    ProviderFiles {
        /// The provider.
        provider: ProviderId,
        /// The path.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// Something has no canonical form.
    #[error("{what} has no canonical form")]
    Canonical {
        /// What.
        what: String,
        /// Why.
        #[source]
        source: CanonicalError,
    },
    /// Evidence could not be read or written.
    #[error("evidence could not be read or written")]
    Evidence(#[from] EvidenceError),
    /// Another run holds what this run needs alone.
    #[error("another run holds what this run needs alone")]
    Custody(#[from] CustodyError),
    /// A file that was asked for beside the evidence could not be written.
    #[error("{} cannot be written", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// The runner could not set itself up.
    #[error("the runner could not {what}")]
    Setup {
        /// What it could not do.
        what: String,
        /// Why.
        #[source]
        source: std::io::Error,
    },
}

impl RunError {
    /// The exit code that this error asks for.
    #[must_use]
    pub fn exit(&self) -> proofhouse_schema::exit::Exit {
        use proofhouse_schema::exit::Exit;
        match self {
            RunError::Evidence(_) | RunError::Write { .. } => Exit::WriteError,
            _ => Exit::Setup,
        }
    }
}

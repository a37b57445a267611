//! What can go wrong in the checker.

use std::path::PathBuf;

use proofhouse_contract::ContractError;
use proofhouse_schema::canonical::{CanonicalError, Digest};
use proofhouse_worker::Decline;

/// Why a checker's request fails.
#[derive(Debug, thiserror::Error)]
pub enum CheckerError {
    /// The contract refuses the case.
    #[error("the contract refuses the case")]
    Contract(#[source] Box<ContractError>),
    /// The case names a refusal that the operator does not have.
    #[error("{operator} has no refusal {name:?}")]
    UnknownRefusal {
        /// The operator.
        operator: String,
        /// The name.
        name: String,
    },
    /// The case's row is not there.
    #[error("row {row} of a case with {rows} rows")]
    NoSuchRow {
        /// The row.
        row: u64,
        /// The case's rows.
        rows: u64,
    },
    /// The case's tensors take more bytes than any case may.
    #[error("the case's tensors take {bytes} bytes; accepted: at most {accepted}")]
    TooLarge {
        /// Bytes of all tensors.
        bytes: u64,
        /// The most.
        accepted: u64,
    },
    /// The case's tensors and the checker's copies of them do not fit the machine.
    #[error(
        "the case's tensors take {bytes} bytes and the checker's copies of them {needed}, which this machine does not have; accepted: smaller extents"
    )]
    NoMemory {
        /// Bytes of all tensors.
        bytes: u64,
        /// Bytes of all copies.
        needed: u64,
        /// What the allocator says.
        source: std::collections::TryReserveError,
    },
    /// No case of that name was posed.
    #[error("case {0:?} was never posed, or was released")]
    UnknownCase(String),
    /// A file could not be read.
    #[error("{} cannot be read", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// A file could not be written.
    #[error("{} cannot be written", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// An input file leaves the gates folder.
    #[error("input file {0:?} is not below the gates folder")]
    Outside(String),
    /// An input file is not the one that the gate names.
    #[error("{} has sha256 {found}, the gate names {expected}", path.display())]
    OtherFile {
        /// The file.
        path: PathBuf,
        /// Its digest.
        found: Digest,
        /// The gate's digest.
        expected: Digest,
    },
    /// An input file is no safetensors file.
    #[error("{} is not a safetensors file", path.display())]
    NotSafetensors {
        /// The file.
        path: PathBuf,
        /// Why.
        source: safetensors::SafeTensorError,
    },
    /// A tensor of an input file does not fit the case.
    #[error(
        "tensor {name:?} of the input file for `{tensor}` of {operator}: found {found}; accepted: {accepted}"
    )]
    Misfit {
        /// The operator.
        operator: String,
        /// The operator's tensor.
        tensor: String,
        /// The name in the file.
        name: String,
        /// What was found.
        found: String,
        /// What is accepted.
        accepted: String,
    },
    /// The case names tensors that the operator does not have or that are not read.
    #[error("{operator} reads no tensor `{tensor}`")]
    NotAnInput {
        /// The operator.
        operator: String,
        /// The tensor.
        tensor: String,
    },
    /// The file of a case has another size or header than it was posed with.
    #[error("{} is no longer the file that was posed: it has another length, another header, or is no plain file", path.display())]
    FileReplaced {
        /// The file.
        path: PathBuf,
    },
    /// A value has no canonical form.
    #[error("no canonical form")]
    Canonical(#[from] CanonicalError),
    /// A value has no JSON form.
    #[error("no JSON form")]
    Json(#[from] serde_json::Error),
}

impl From<ContractError> for CheckerError {
    fn from(error: ContractError) -> Self {
        CheckerError::Contract(Box::new(error))
    }
}

impl From<CheckerError> for Decline {
    fn from(error: CheckerError) -> Self {
        if let CheckerError::Contract(error) = &error {
            return proofhouse_worker_contract::refused(error);
        }
        let mut text = error.to_string();
        let mut cause = std::error::Error::source(&error);
        while let Some(error) = cause {
            text.push_str(": ");
            text.push_str(&error.to_string());
            cause = error.source();
        }
        Decline::Failed(text)
    }
}

//! What a backend did wrong, on which case.

use std::fmt;

use crate::case::Case;
use crate::compare::Comparison;
use crate::error::ContractError;

/// What a backend did wrong.
#[derive(Clone, Debug, PartialEq)]
pub enum Problem {
    /// It refused a valid call.
    Refused(Box<ContractError>),
    /// An output is not the oracle's.
    Disagrees(Box<Comparison>),
    /// It wrote outside a tensor's elements.
    StrayWrite {
        /// The tensor.
        tensor: &'static str,
        /// Index of the byte in the storage.
        byte: usize,
    },
    /// It changed a tensor that is only read.
    InputChanged {
        /// The tensor.
        tensor: &'static str,
    },
    /// An output depends on what its memory held before.
    KeptPoison {
        /// The tensor.
        tensor: &'static str,
    },
    /// It accepted an invalid call.
    Accepted {
        /// The refusal's name.
        refusal: String,
    },
    /// It refused an invalid call with another error than the contract's.
    WrongError {
        /// The refusal's name.
        refusal: String,
        /// The error.
        error: Box<ContractError>,
    },
    /// The same inputs gave other bits.
    NotRepeatable {
        /// The tensor.
        tensor: &'static str,
    },
    /// A row alone gave other bits than the same row in a batch.
    BatchDependent {
        /// The tensor.
        tensor: &'static str,
        /// The row.
        row: u64,
    },
    /// The suite found nothing to check: no operator is supported.
    NothingChecked,
}

impl From<ContractError> for Problem {
    fn from(error: ContractError) -> Self {
        Self::Refused(Box::new(error))
    }
}

/// A conformance failure: who, on what, and what went wrong.
#[derive(Clone, Debug, PartialEq)]
pub struct Failure {
    /// The backend's name.
    pub backend: String,
    /// The case; `None` when there was none.
    pub case: Option<Box<Case>>,
    /// What went wrong.
    pub problem: Problem,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.backend)?;
        if let Some(case) = &self.case {
            write!(f, " on {case}")?;
        }
        match &self.problem {
            Problem::Refused(error) => write!(f, ": refused a valid call: {error}"),
            Problem::Disagrees(comparison) => {
                write!(
                    f,
                    ": `{}` differs: {} of {} elements out of tolerance, {} of the wrong class, first {:?}",
                    comparison.tensor,
                    comparison.out_of_tolerance,
                    comparison.elements,
                    comparison.class_mismatches,
                    comparison.first_bad.first(),
                )
            }
            Problem::StrayWrite { tensor, byte } => {
                write!(f, ": wrote outside `{tensor}`, at byte {byte} of its storage")
            }
            Problem::InputChanged { tensor } => write!(f, ": changed the input `{tensor}`"),
            Problem::KeptPoison { tensor } => {
                write!(f, ": `{tensor}` depends on what its memory held before")
            }
            Problem::Accepted { refusal } => write!(f, ": accepted the invalid call `{refusal}`"),
            Problem::WrongError { refusal, error } => {
                write!(f, ": refused `{refusal}` with the wrong error: {error}")
            }
            Problem::NotRepeatable { tensor } => write!(f, ": `{tensor}` differs from run to run"),
            Problem::BatchDependent { tensor, row } => {
                write!(f, ": row {row} of `{tensor}` depends on the other rows")
            }
            Problem::NothingChecked => write!(f, ": supports no operator, so nothing was checked"),
        }
    }
}

impl std::error::Error for Failure {}

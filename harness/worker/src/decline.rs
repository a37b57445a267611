//! Answers that are no result: a typed refusal, "not this case", a failure.

use proofhouse_schema::protocol::{Reply, TypedError};

/// Why a provider gives no result for a case.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Decline {
    /// The input is invalid, and the provider says which argument and why.
    #[error("{}: `{}` ({}): found {}; accepted: {}", .0.operator, .0.argument, .0.kind, .0.found, .0.accepted)]
    Refused(TypedError),
    /// The provider does not do this case.
    #[error("unsupported: {0}")]
    Unsupported(String),
    /// Something else went wrong.
    #[error("failed: {0}")]
    Failed(String),
}

impl Decline {
    /// The answer that carries it.
    #[must_use]
    pub fn into_reply(self, case: &str) -> Reply {
        let case = case.to_owned();
        match self {
            Decline::Refused(error) => Reply::Refused { case, error },
            Decline::Unsupported(reason) => Reply::Unsupported { case, reason },
            Decline::Failed(detail) => Reply::Failed { detail: format!("case {case}: {detail}") },
        }
    }
}

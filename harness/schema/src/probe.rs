//! A probe that fails is a value.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What a probe found, or why it found nothing. A record never lacks the key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Probe<T> {
    /// The probe's result.
    Known(T),
    /// Why there is none.
    Unavailable(String),
}

impl<T> Probe<T> {
    /// The result, if there is one.
    pub fn known(&self) -> Option<&T> {
        match self {
            Probe::Known(value) => Some(value),
            Probe::Unavailable(_) => None,
        }
    }

    /// Wraps a result; an error becomes the reason.
    pub fn from_result<E: std::fmt::Display>(result: Result<T, E>) -> Self {
        match result {
            Ok(value) => Probe::Known(value),
            Err(error) => Probe::Unavailable(error.to_string()),
        }
    }
}

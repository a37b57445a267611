//! Ids as newtypes: one grammar, checked when made.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// An id that does not follow its grammar.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{what} {found:?} is not valid: accepted are {accepted}")]
pub struct IdError {
    /// Which id.
    pub what: &'static str,
    /// What was found.
    pub found: String,
    /// What is accepted.
    pub accepted: &'static str,
}

macro_rules! id {
    ($(#[$doc:meta])* $name:ident, $what:literal, $accepted:literal, $check:expr) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, JsonSchema)]
        #[serde(transparent)]
        pub struct $name(String);

        impl $name {
            /// Checks the grammar.
            ///
            /// # Errors
            /// [`IdError`] with what was found and what is accepted.
            pub fn new(text: impl Into<String>) -> Result<Self, IdError> {
                let text = text.into();
                let check: fn(&str) -> bool = $check;
                if check(&text) {
                    Ok(Self(text))
                } else {
                    Err(IdError { what: $what, found: text, accepted: $accepted })
                }
            }

            /// The id's text.
            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl AsRef<str> for $name {
            fn as_ref(&self) -> &str {
                &self.0
            }
        }

        impl std::str::FromStr for $name {
            type Err = IdError;
            fn from_str(text: &str) -> Result<Self, IdError> {
                Self::new(text)
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                Self::new(String::deserialize(deserializer)?).map_err(serde::de::Error::custom)
            }
        }
    };
}

fn word(text: &str) -> bool {
    !text.is_empty()
        && text.len() <= 64
        && text.starts_with(|c: char| c.is_ascii_lowercase())
        && text
            .chars()
            .all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_' || c == '-')
}

id!(
    /// A provider: anything that can run an operator (`cpu`, `numpy`, `torch`).
    ProviderId, "provider id",
    "a lower-case letter, then lower-case letters, digits, '-' and '_' (64 at most)",
    word
);
id!(
    /// An operator's one name (`rms_norm`).
    OperatorName, "operator name",
    "a lower-case letter, then lower-case letters, digits and '_' (64 at most)",
    |t| word(t) && !t.contains('-')
);
id!(
    /// A gate: `<folder>.<file>` of its TOML below `gates/` (`rms_norm.correctness`).
    GateId, "gate id",
    "two or more words joined by '.', each of lower-case letters, digits, '-' and '_'",
    |t| t.len() <= 128 && t.contains('.') && t.split('.').all(word)
);
id!(
    /// A profile: how much is measured (`quick`, `full`, `claim`).
    ProfileId, "profile id",
    "a lower-case letter, then lower-case letters, digits, '-' and '_' (64 at most)",
    word
);
id!(
    /// One writer of an evidence folder: a machine's salted id and a start stamp.
    WriterId, "writer id",
    "a lower-case letter, then lower-case letters, digits, '-' and '_' (64 at most)",
    word
);

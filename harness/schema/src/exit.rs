//! Documented exit codes; of several, the worst wins.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// How a command ended. The order of the variants is the order of precedence, the worst first.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Exit {
    /// Evidence or a report could not be written (110).
    WriteError,
    /// Set-up failed, or a declaration is bad (96).
    Setup,
    /// A worker broke the protocol (102).
    Protocol,
    /// A gate failed; verification or claims failed (100).
    Failed,
    /// A measurement is not trustworthy (103).
    Invalid,
    /// A worker crashed, hung or ran out of a limit (105).
    Errored,
    /// A gate was not shown to fail (106).
    Unqualified,
    /// The data cannot decide (101).
    Inconclusive,
    /// A required gate did not run (104).
    NotRun,
    /// Nothing was selected (4).
    NothingSelected,
    /// Interrupted (130).
    Interrupted,
    /// Wrong usage (2).
    Usage,
    /// All required gates passed (0).
    Passed,
}

impl Exit {
    /// Every way to end, the worst first.
    pub const ALL: [Exit; 13] = [
        Exit::WriteError,
        Exit::Setup,
        Exit::Protocol,
        Exit::Failed,
        Exit::Invalid,
        Exit::Errored,
        Exit::Unqualified,
        Exit::Inconclusive,
        Exit::NotRun,
        Exit::NothingSelected,
        Exit::Interrupted,
        Exit::Usage,
        Exit::Passed,
    ];

    /// The process exit code.
    #[must_use]
    pub const fn code(self) -> u8 {
        match self {
            Exit::WriteError => 110,
            Exit::Setup => 96,
            Exit::Protocol => 102,
            Exit::Failed => 100,
            Exit::Invalid => 103,
            Exit::Errored => 105,
            Exit::Unqualified => 106,
            Exit::Inconclusive => 101,
            Exit::NotRun => 104,
            Exit::NothingSelected => 4,
            Exit::Interrupted => 130,
            Exit::Usage => 2,
            Exit::Passed => 0,
        }
    }

    /// What the code means, in a line.
    #[must_use]
    pub const fn meaning(self) -> &'static str {
        match self {
            Exit::WriteError => "evidence or a report could not be written",
            Exit::Setup => "set-up failed or a declaration is bad",
            Exit::Protocol => "a worker broke the protocol",
            Exit::Failed => "a gate failed, or verification or a claim did",
            Exit::Invalid => "a measurement is not trustworthy",
            Exit::Errored => "a worker crashed, hung or passed a limit",
            Exit::Unqualified => "a gate was not shown to fail on planted faults",
            Exit::Inconclusive => "the data cannot decide",
            Exit::NotRun => "a required gate did not run",
            Exit::NothingSelected => "nothing was selected",
            Exit::Interrupted => "interrupted",
            Exit::Usage => "wrong usage",
            Exit::Passed => "all required gates passed",
        }
    }

    /// The worse of two.
    #[must_use]
    pub fn worst(self, other: Exit) -> Exit {
        self.min(other)
    }
}

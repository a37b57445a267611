//! Verdicts and their reasons. Every ending is modeled; none is guessed towards pass.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::canonical::Digest;
use crate::evidence::Grade;
use crate::exit::Exit;
use crate::ids::{GateId, ProviderId};
use crate::real::Real;

/// The judgment of one cell or of one gate.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// What was asked holds.
    Pass,
    /// What was asked does not hold.
    Fail,
    /// The data cannot decide.
    Inconclusive,
    /// The measurement is not trustworthy.
    Invalid,
    /// A typed refusal: the provider says that it does not do this.
    Unsupported,
    /// It did not run: no device, no package, and why.
    NotRun,
    /// A crash, a hang, a limit, a broken protocol.
    Errored,
    /// The gate was not shown to fail on planted faults.
    Unqualified,
}

impl Verdict {
    /// Every verdict.
    pub const ALL: [Verdict; 8] = [
        Verdict::Pass,
        Verdict::Fail,
        Verdict::Inconclusive,
        Verdict::Invalid,
        Verdict::Unsupported,
        Verdict::NotRun,
        Verdict::Errored,
        Verdict::Unqualified,
    ];

    /// The word as it is printed and stored.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Verdict::Pass => "pass",
            Verdict::Fail => "fail",
            Verdict::Inconclusive => "inconclusive",
            Verdict::Invalid => "invalid",
            Verdict::Unsupported => "unsupported",
            Verdict::NotRun => "not-run",
            Verdict::Errored => "errored",
            Verdict::Unqualified => "unqualified",
        }
    }

    /// The exit code that a *required* cell with this verdict asks for. A required cell that the candidate
    /// does not support did not run.
    #[must_use]
    pub const fn exit(self) -> Exit {
        match self {
            Verdict::Pass => Exit::Passed,
            Verdict::Fail => Exit::Failed,
            Verdict::Inconclusive => Exit::Inconclusive,
            Verdict::Invalid => Exit::Invalid,
            Verdict::Unsupported | Verdict::NotRun => Exit::NotRun,
            Verdict::Errored => Exit::Errored,
            Verdict::Unqualified => Exit::Unqualified,
        }
    }
}

impl std::fmt::Display for Verdict {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

impl std::str::FromStr for Verdict {
    type Err = crate::ids::IdError;
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Verdict::ALL.into_iter().find(|v| v.as_str() == text).ok_or_else(|| crate::ids::IdError {
            what: "verdict",
            found: text.to_owned(),
            accepted: "pass, fail, inconclusive, invalid, unsupported, not-run, errored, unqualified",
        })
    }
}

/// What a paired comparison says of the candidate.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum Speed {
    /// The interval lies above 1 + margin.
    Win,
    /// The interval lies inside [1/(1+margin), 1+margin].
    Parity,
    /// The interval lies below 1/(1+margin).
    Loss,
    /// As win, from one replicate: exploratory, never a win.
    Lead,
    /// As parity, from one replicate.
    Even,
    /// As loss, from one replicate.
    Trail,
    /// The data cannot decide.
    Inconclusive,
}

impl Speed {
    /// The word as it is printed and stored.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Speed::Win => "win",
            Speed::Parity => "parity",
            Speed::Loss => "loss",
            Speed::Lead => "lead",
            Speed::Even => "even",
            Speed::Trail => "trail",
            Speed::Inconclusive => "inconclusive",
        }
    }
}

impl std::fmt::Display for Speed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Which speed verdict a gate requires against each baseline.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum Require {
    /// Faster: win (or, exploratory, lead).
    Win,
    /// Not slower: win or parity (lead or even).
    NoLoss,
    /// Measured is enough; the number is what is wanted.
    Measured,
}

/// Why a verdict is what it is. `code` is stable and machine-readable; `detail` is a sentence for people.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Reason {
    /// Stable, kebab-case: `out-of-tolerance`, `guard-overwritten`, `no-samples`.
    pub code: String,
    /// The sentence: what, where, what was found, what is accepted.
    pub detail: String,
}

impl Reason {
    /// A reason from its two parts.
    #[must_use]
    pub fn new(code: &str, detail: impl Into<String>) -> Self {
        Self { code: code.to_owned(), detail: detail.into() }
    }
}

/// A ratio with its interval. Above 1 the candidate is faster: baseline time over candidate time.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Estimate {
    /// exp of the mean over replicates of the mean log ratio within blocks.
    pub ratio: Real,
    /// The 95 % interval's lower end.
    pub low: Real,
    /// The 95 % interval's upper end.
    pub high: Real,
    /// Half the interval's width on the log scale, as a fraction.
    pub half_width: Real,
    /// One ratio per replicate.
    pub replicates: Vec<Real>,
    /// Two-sided p-value of ratio = 1; with one replicate, from its blocks (exploratory).
    pub p_value: Real,
    /// Ratio when the candidate ran first over the ratio when it ran second, with its 95 % interval.
    pub order_effect: Option<OrderEffect>,
}

/// How much the order within a block matters.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct OrderEffect {
    /// Ratio when first over ratio when second.
    pub effect: Real,
    /// The 95 % interval's lower end.
    pub low: Real,
    /// The 95 % interval's upper end.
    pub high: Real,
}

/// The candidate against one baseline.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Comparison {
    /// The candidate.
    pub candidate: ProviderId,
    /// The baseline and its version: a speed-up always names both.
    pub baseline: ProviderId,
    /// The baseline's version.
    pub baseline_version: String,
    /// What is said.
    pub speed: Speed,
    /// The numbers; absent when the data allow none.
    pub estimate: Option<Estimate>,
    /// The declared margin, as a fraction.
    pub margin: f64,
    /// Why.
    pub reasons: Vec<Reason>,
}

/// A verdict on one provider's part in one cell.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct VerdictBody {
    /// [`crate::SCHEMA`].
    pub schema: String,
    /// The evidence that is judged.
    pub evidence: Digest,
    /// The gate.
    pub gate: GateId,
    /// The cell's key.
    pub cell: String,
    /// Who is judged: the candidate of the evidence.
    pub provider: ProviderId,
    /// Name and version of the judge.
    pub judge: String,
    /// The judgment.
    pub verdict: Verdict,
    /// Why, as data.
    pub reasons: Vec<Reason>,
    /// Baseline gates: one comparison per baseline.
    pub comparisons: Vec<Comparison>,
    /// Exploratory, qualified or claim.
    pub grade: Grade,
    /// Whether the cell decides the exit code.
    pub required: bool,
}

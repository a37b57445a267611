//! What a judge notes on its way, and the verdict that follows.

use proofhouse_schema::verdict::{Reason, Verdict};

/// The most reasons that a verdict keeps.
const MAX_REASONS: usize = 24;

/// Which noted verdict wins, first come first: a checker that was not shown to fail decides nothing, a crash shows
/// nothing, and a failure that was seen stays one whatever else is missing.
const PRECEDENCE: [Verdict; 8] = [
    Verdict::Unqualified,
    Verdict::Errored,
    Verdict::Unsupported,
    Verdict::Fail,
    Verdict::Invalid,
    Verdict::NotRun,
    Verdict::Inconclusive,
    Verdict::Pass,
];

/// Notes of one judgment.
#[derive(Debug, Default)]
pub(crate) struct Notes(Vec<(Verdict, Reason)>);

impl Notes {
    /// Notes a reason for a verdict.
    pub(crate) fn add(&mut self, verdict: Verdict, code: &str, detail: impl Into<String>) {
        self.0.push((verdict, Reason::new(code, detail)));
    }

    /// Whether a verdict was noted.
    pub(crate) fn has(&self, verdict: Verdict) -> bool {
        self.0.iter().any(|(noted, _)| *noted == verdict)
    }

    /// Whether nothing but passes was noted.
    pub(crate) fn is_clean(&self) -> bool {
        self.0.iter().all(|(noted, _)| *noted == Verdict::Pass)
    }

    /// The verdict and its reasons, those of the verdict first. No note at all: pass.
    pub(crate) fn rule(mut self) -> (Verdict, Vec<Reason>) {
        let verdict =
            PRECEDENCE.into_iter().find(|verdict| self.has(*verdict)).unwrap_or(Verdict::Pass);
        self.0.sort_by_key(|(noted, _)| *noted != verdict);
        let more = self.0.len().saturating_sub(MAX_REASONS);
        let mut reasons: Vec<Reason> =
            self.0.into_iter().take(MAX_REASONS).map(|(_, reason)| reason).collect();
        if more > 0 {
            reasons.push(Reason::new("more", format!("{more} more reasons are left out")));
        }
        (verdict, reasons)
    }
}

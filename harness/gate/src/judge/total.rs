//! From the verdicts of cells to the verdict of a gate and the exit code of a run.

use std::collections::BTreeMap;

use proofhouse_schema::exit::Exit;
use proofhouse_schema::gate::TimingRule;
use proofhouse_schema::verdict::{Comparison, Require, Speed, Verdict, VerdictBody};

use crate::stats::holm;

/// What a set of cells comes to.
#[derive(Debug, Clone, PartialEq)]
pub struct Total {
    /// The worst of the required cells; of informative ones where there is no required one.
    pub verdict: Verdict,
    /// How the run ends.
    pub exit: Exit,
    /// Cells that decide.
    pub required: usize,
    /// Every cell.
    pub cells: usize,
    /// Cells by verdict, informative ones too.
    pub counts: BTreeMap<Verdict, usize>,
}

/// The total of some cells. The worst required cell wins, by the order of exit codes.
///
/// No cell at all, or none that is required, is not green: nothing that decides was selected.
#[must_use]
pub fn total<'a>(verdicts: impl IntoIterator<Item = &'a VerdictBody>) -> Total {
    let mut total = Total {
        verdict: Verdict::NotRun,
        exit: Exit::Passed,
        required: 0,
        cells: 0,
        counts: BTreeMap::new(),
    };
    let mut worst: Option<(Exit, Verdict)> = None;
    let mut told: Option<(Exit, Verdict)> = None;
    for body in verdicts {
        total.cells += 1;
        *total.counts.entry(body.verdict).or_default() += 1;
        let this = (exit_of(body), body.verdict);
        let place = if body.required {
            total.required += 1;
            &mut worst
        } else {
            &mut told
        };
        *place = Some(place.map_or(this, |before| if this.0 < before.0 { this } else { before }));
    }
    total.exit = worst.map_or(Exit::NothingSelected, |(exit, _)| exit);
    total.verdict = worst.or(told).map_or(Verdict::NotRun, |(_, verdict)| verdict);
    total
}

/// The exit code that one cell asks for. A worker that broke the protocol has its own.
#[must_use]
pub fn exit_of(body: &VerdictBody) -> Exit {
    let protocol = body.verdict == Verdict::Errored
        && body.reasons.iter().any(|reason| reason.code == super::PROTOCOL);
    if protocol { Exit::Protocol } else { body.verdict.exit() }
}

/// The total of one gate, where many cells share one requirement.
///
/// As [`total`]; besides, a gate that requires a win has one only if every call holds after Holm's adjustment over all
/// of the gate's comparisons. A call that does not leaves the gate inconclusive; its cell keeps its own verdict.
#[must_use]
pub fn gate_total<'a>(
    rule: Option<&TimingRule>,
    verdicts: impl IntoIterator<Item = &'a VerdictBody>,
) -> Total {
    let verdicts: Vec<&VerdictBody> = verdicts.into_iter().collect();
    let mut total = total(verdicts.iter().copied());
    let win = rule.is_some_and(|rule| rule.require == Require::Win);
    let weak = || adjust(verdicts.iter().copied()).iter().any(|adjusted| !adjusted.holds);
    if win && total.verdict == Verdict::Pass && weak() {
        total.verdict = Verdict::Inconclusive;
        if total.required > 0 {
            total.exit = Exit::Inconclusive;
        }
    }
    total
}

/// One comparison with its p-value adjusted for all the comparisons of its gate.
#[derive(Debug, Clone, PartialEq)]
pub struct Adjusted<'a> {
    /// The cell.
    pub cell: &'a str,
    /// The comparison.
    pub comparison: &'a Comparison,
    /// Holm's adjusted p-value; 1 where the comparison has none.
    pub p_value: f64,
    /// Whether the difference that was called holds among all of them at 5 %.
    pub holds: bool,
}

/// Adjusts the p-values of every comparison of a gate (Holm). It sets the gate's total only: a cell keeps its own verdict.
#[must_use]
pub fn adjust<'a>(verdicts: impl IntoIterator<Item = &'a VerdictBody>) -> Vec<Adjusted<'a>> {
    let comparisons: Vec<(&str, &Comparison)> = verdicts
        .into_iter()
        .flat_map(|body| body.comparisons.iter().map(|c| (body.cell.as_str(), c)))
        .collect();
    let raw: Vec<f64> = comparisons
        .iter()
        .map(|(_, comparison)| comparison.estimate.as_ref().map_or(1.0, |e| e.p_value.0))
        .map(|p| if (0.0..=1.0).contains(&p) { p } else { 1.0 })
        .collect();
    // Every value lies in [0, 1], so the adjustment cannot fail; if it did, nothing would hold.
    let adjusted = holm(&raw).unwrap_or_else(|_| vec![1.0; raw.len()]);
    comparisons
        .into_iter()
        .zip(adjusted)
        .map(|((cell, comparison), p_value)| {
            let called =
                matches!(comparison.speed, Speed::Win | Speed::Loss | Speed::Lead | Speed::Trail);
            Adjusted { cell, comparison, p_value, holds: called && p_value < 0.05 }
        })
        .collect()
}

//! What is shown at the end of a run where there is no index to draw a report from: how many of which verdict, by gate.

use std::collections::BTreeMap;

use proofhouse_runner::Outcome;
use proofhouse_schema::verdict::Verdict;

use super::out;
use crate::arguments::{Common, Output, RunArguments};
use crate::error::CliError;
use crate::project::Project;
use crate::terminal::{Paint, Table, counted};

/// Prints the count of each verdict, gate by gate.
///
/// # Errors
/// When standard output cannot be written.
pub fn show(
    project: &Project,
    common: &Common,
    asked: &RunArguments,
    outcome: &Outcome,
    _title: &str,
) -> Result<(), CliError> {
    if asked.format != Output::Human {
        return Ok(());
    }
    let mut gates: BTreeMap<String, BTreeMap<Verdict, usize>> = BTreeMap::new();
    for verdict in &outcome.verdicts {
        let counts = gates.entry(verdict.gate.to_string()).or_default();
        *counts.entry(verdict.verdict).or_default() += 1;
    }
    let mut table = Table::new(&["gate", "verdicts"]);
    for (gate, counts) in gates {
        let words: Vec<String> =
            counts.iter().map(|(verdict, count)| format!("{count} {verdict}")).collect();
        table.row(vec![gate, words.join(", ")]);
    }
    let paint = Paint::stdout(common.color);
    out(&format!("\n{}", table.render(|head| paint.faint(head))))?;
    out(&format!(
        "\n{} judged, {} from evidence used again\nevidence  {} (no report: this command has no index)\n",
        counted(outcome.verdicts.len() as u64, "cell"),
        outcome.reused,
        project.shown(&project.evidence)
    ))
}

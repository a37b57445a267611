//! A candidate under compute-sanitizer: every tool ran, counted no error, and the outputs are right.

use proofhouse_schema::evidence::{CellRecord, Outcome, SanitizerObservation, SanitizerRun};
use proofhouse_schema::verdict::Verdict;

use super::notes::Notes;
use super::outputs::{Demand, check_outputs, check_qualification};

/// The tools that must all have run.
pub const TOOLS: [&str; 4] = ["memcheck", "racecheck", "initcheck", "synccheck"];

/// Judges a sanitizer cell.
pub(crate) fn judge(record: &CellRecord, seen: &SanitizerObservation, notes: &mut Notes) {
    check_qualification(&seen.qualification, notes);
    for tool in TOOLS {
        if !seen.tools.iter().any(|run| run.tool == tool) {
            notes.add(Verdict::Invalid, "tool-missing", format!("{tool} did not run"));
        }
    }
    let empty = record.case.dims.get("rows") == Some(&0);
    for run in &seen.tools {
        check_run(run, empty, notes);
    }
}

fn check_run(run: &SanitizerRun, empty: bool, notes: &mut Notes) {
    let tool = &run.tool;
    let first = run.report.first().map_or(String::new(), |line| format!(": {line}"));
    match run.errors {
        Some(0) => {}
        Some(errors) => {
            let detail = format!("{tool} counted {errors} errors{first}");
            notes.add(Verdict::Fail, "sanitizer-errors", detail);
        }
        None => {
            let detail = format!("{tool} gave no summary{first}");
            notes.add(Verdict::Invalid, "no-summary", detail);
        }
    }
    match &run.pass.outcome {
        Outcome::Ran => {
            let demand = Demand { empty, wrong: Verdict::Fail, finite: true };
            check_outputs(&format!("{tool}: "), &run.pass, &demand, notes);
        }
        Outcome::Refused(error) => {
            let detail = format!("{tool}: refused {} of {}", error.kind, error.argument);
            notes.add(Verdict::Fail, "refused", detail);
        }
        Outcome::Unsupported(reason) => {
            notes.add(Verdict::Unsupported, "unsupported", format!("{tool}: {reason}"));
        }
        Outcome::Failed(detail) => {
            notes.add(Verdict::Errored, "untyped-failure", format!("{tool}: {detail}"));
        }
    }
}

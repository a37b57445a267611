//! Outputs against the oracle's, and invalid inputs against the refusals they must get.

use proofhouse_schema::evidence::{CellRecord, CorrectnessObservation, Outcome, Pass, Purpose};
use proofhouse_schema::gate::Expect;
use proofhouse_schema::protocol::TypedError;
use proofhouse_schema::verdict::Verdict;

use super::notes::Notes;
use super::outputs::{Demand, check_outputs, check_qualification, purpose};

/// Judges a correctness cell.
pub(crate) fn judge(record: &CellRecord, seen: &CorrectnessObservation, notes: &mut Notes) {
    check_qualification(&seen.qualification, notes);
    if seen.passes.is_empty() {
        notes.add(
            Verdict::Invalid,
            "no-passes",
            "the candidate was not run; accepted: at least once",
        );
        return;
    }
    for pass in &seen.passes {
        check_outcome(pass, notes);
    }
    match &record.case.expect {
        Expect::Outputs => expect_outputs(record, seen, notes),
        Expect::Refusal { kind, argument, .. } => {
            expect_refusal(record, seen, (kind, argument), notes);
        }
    }
}

fn check_outcome(pass: &Pass, notes: &mut Notes) {
    let run = purpose(pass.purpose);
    match &pass.outcome {
        Outcome::Failed(detail) => {
            notes.add(Verdict::Errored, "untyped-failure", format!("{run}: {detail}"));
        }
        Outcome::Unsupported(reason) => {
            notes.add(Verdict::Unsupported, "unsupported", format!("{run}: {reason}"));
        }
        Outcome::Ran | Outcome::Refused(_) => {}
    }
}

fn expect_outputs(record: &CellRecord, seen: &CorrectnessObservation, notes: &mut Notes) {
    let rows = record.case.dims.get("rows").copied();
    for pass in &seen.passes {
        match &pass.outcome {
            Outcome::Ran => {
                let finite = pass.purpose != Purpose::SingleRow;
                let demand = Demand { empty: rows == Some(0), wrong: Verdict::Fail, finite };
                check_outputs("", pass, &demand, notes);
            }
            Outcome::Refused(error) => {
                let run = purpose(pass.purpose);
                let detail = format!("{run}: a valid case was refused: {}", words(error));
                notes.add(Verdict::Fail, "refused", detail);
            }
            Outcome::Failed(_) | Outcome::Unsupported(_) => {}
        }
    }
    let mut needed = vec![Purpose::First, Purpose::Repeat, Purpose::Renewed];
    if rows.is_none_or(|rows| rows > 1) {
        needed.push(Purpose::SingleRow);
    }
    for need in needed {
        if !seen.passes.iter().any(|pass| pass.purpose == need) {
            let detail = format!("there was no {}", purpose(need));
            notes.add(Verdict::Invalid, "pass-missing", detail);
        }
    }
    compare_runs(seen, notes);
}

/// Repeats must equal the first run bit for bit, and a row alone must equal that row among others.
fn compare_runs(seen: &CorrectnessObservation, notes: &mut Notes) {
    let ran = |want: Purpose| {
        seen.passes.iter().filter(move |p| p.purpose == want && p.outcome == Outcome::Ran)
    };
    let Some(first) = ran(Purpose::First).next() else { return };
    for repeat in ran(Purpose::Repeat).chain(ran(Purpose::First)) {
        for (tensor, digest) in &first.digests {
            match repeat.digests.get(tensor) {
                Some(found) if found == digest => {}
                Some(_) => {
                    let detail = format!(
                        "the same inputs gave other bytes of {tensor} in the repeated run; accepted: the same bits"
                    );
                    notes.add(Verdict::Fail, "not-repeatable", detail);
                }
                None => {
                    let detail = format!("the repeated run has no digest of {tensor}");
                    notes.add(Verdict::Invalid, "digest-missing", detail);
                }
            }
        }
    }
    for single in ran(Purpose::SingleRow) {
        if single.rows.is_empty() || single.rows.len() != first.rows.len() {
            let detail = format!(
                "{} rows were digested alone and {} among others; accepted: the same number, at least one",
                single.rows.len(),
                first.rows.len()
            );
            notes.add(Verdict::Invalid, "row-digest-missing", detail);
        } else if single.rows != first.rows {
            let detail =
                "a row alone gave other bits than among other rows; accepted: the same bits";
            notes.add(Verdict::Fail, "batch-variant", detail);
        }
    }
}

fn expect_refusal(
    record: &CellRecord,
    seen: &CorrectnessObservation,
    (kind, argument): (&str, &str),
    notes: &mut Notes,
) {
    let mut asked = false;
    for pass in &seen.passes {
        asked |= pass.purpose == Purpose::Refusal;
        for finding in &pass.findings {
            let detail = format!("{}: {}", purpose(pass.purpose), finding.detail);
            notes.add(Verdict::Fail, &finding.code, detail);
        }
        match &pass.outcome {
            Outcome::Ran => {
                let detail =
                    format!("the invalid input was accepted; expected: {kind} of {argument}");
                notes.add(Verdict::Fail, "accepted-invalid", detail);
            }
            Outcome::Refused(error) => {
                let named = error.operator == record.case.operator.as_str();
                if error.kind != kind || error.argument != argument || !named {
                    let detail = format!(
                        "refused with {}; expected: {kind} of {argument} in {}",
                        words(error),
                        record.case.operator
                    );
                    notes.add(Verdict::Fail, "wrong-refusal", detail);
                }
            }
            Outcome::Failed(_) | Outcome::Unsupported(_) => {}
        }
    }
    if !asked {
        notes.add(
            Verdict::Invalid,
            "pass-missing",
            "the invalid input was not given to the candidate",
        );
    }
}

fn words(error: &TypedError) -> String {
    format!(
        "{} of {} in {} (found {}, accepted {})",
        error.kind, error.argument, error.operator, error.found, error.accepted
    )
}

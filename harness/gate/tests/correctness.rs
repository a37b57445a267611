//! Every rule of a correctness verdict has a record that turns it red, and an honest one that stays green.

#![allow(clippy::unwrap_used, reason = "tests")]

mod judging;

use judging::{refusal_error, right_outputs, right_refusal, turns};
use proofhouse_schema::canonical::Digest;
use proofhouse_schema::evidence::{BadElement, Ending, Finding, Observation, Outcome, Purpose};
use proofhouse_schema::gate::{GateKind, Level};
use proofhouse_schema::real::Real;
use proofhouse_schema::verdict::Verdict;

fn finding(code: &str) -> Finding {
    Finding { code: code.into(), detail: "a planted fault".into() }
}

#[test]
fn honest_records_pass_without_a_reason() {
    for honest in [right_outputs(), right_refusal()] {
        let body = honest.judge();
        assert_eq!(body.verdict, Verdict::Pass, "{:?}", body.reasons);
        assert!(body.reasons.is_empty() && body.required);
    }
}

#[test]
fn one_row_needs_no_run_of_one_row_alone() {
    let mut honest = right_outputs();
    honest.record.case.dims.insert("rows".into(), 1);
    honest.correctness().passes.retain(|pass| pass.purpose != Purpose::SingleRow);
    assert_eq!(honest.judge().verdict, Verdict::Pass);
}

#[test]
fn a_case_without_rows_passes_with_empty_outputs_only() {
    let mut honest = right_outputs();
    honest.record.case.dims.insert("rows".into(), 0);
    honest.correctness().passes.retain(|pass| pass.purpose != Purpose::SingleRow);
    for pass in &mut honest.correctness().passes {
        pass.outputs[0].elements = 0;
        pass.outputs[0].finite = 0;
    }
    assert_eq!(honest.judge().verdict, Verdict::Pass, "{:?}", honest.judge().reasons);
    turns(&honest, Verdict::Invalid, "elements-in-empty-case", |seen| {
        seen.pass(Purpose::First).outputs[0].elements = 1;
    });
    turns(&honest, Verdict::Fail, "guard-overwritten", |seen| {
        seen.pass(Purpose::First).findings.push(finding("guard-overwritten"));
    });
    turns(&honest, Verdict::Fail, "refused", |seen| {
        seen.pass(Purpose::First).outcome = Outcome::Refused(refusal_error());
    });
}

#[test]
fn wrong_outputs_fail_in_any_run() {
    let honest = right_outputs();
    for purpose in [Purpose::First, Purpose::Repeat, Purpose::Renewed, Purpose::SingleRow] {
        turns(&honest, Verdict::Fail, "out-of-tolerance", |seen| {
            let output = &mut seen.pass(purpose).outputs[0];
            output.out_of_tolerance = 1;
            output.bad =
                vec![BadElement { index: vec![1, 2], expected: Real(1.0), found: Real(2.0) }];
        });
        turns(&honest, Verdict::Fail, "class-mismatch", |seen| {
            seen.pass(purpose).outputs[0].class_mismatches = 1;
        });
        for code in ["guard-overwritten", "input-changed", "unwritten", "silent-fallback"] {
            turns(&honest, Verdict::Fail, code, |seen| {
                seen.pass(purpose).findings.push(finding(code));
            });
        }
    }
}

#[test]
fn the_first_bad_element_is_named() {
    let mut wrong = right_outputs();
    let output = &mut wrong.pass(Purpose::First).outputs[0];
    output.out_of_tolerance = 1;
    output.bad = vec![BadElement { index: vec![1, 2], expected: Real(1.0), found: Real(f64::NAN) }];
    let detail = &wrong.judge().reasons[0].detail;
    assert!(detail.contains("[1, 2]: expected 1, found NaN"), "{detail}");
}

#[test]
fn nothing_compared_is_never_a_pass() {
    let honest = right_outputs();
    turns(&honest, Verdict::Invalid, "no-passes", |seen| seen.correctness().passes.clear());
    turns(&honest, Verdict::Invalid, "nothing-compared", |seen| {
        seen.pass(Purpose::Renewed).outputs.clear();
    });
    turns(&honest, Verdict::Invalid, "nothing-compared", |seen| {
        seen.pass(Purpose::First).outputs[0].elements = 0;
    });
    turns(&honest, Verdict::Invalid, "nothing-finite", |seen| {
        seen.pass(Purpose::First).outputs[0].finite = 0;
    });
    turns(&honest, Verdict::Invalid, "impossible-counts", |seen| {
        seen.pass(Purpose::First).outputs[0].finite = 1000;
    });
    for purpose in [Purpose::First, Purpose::Repeat, Purpose::Renewed, Purpose::SingleRow] {
        turns(&honest, Verdict::Invalid, "pass-missing", |seen| {
            seen.correctness().passes.retain(|pass| pass.purpose != purpose);
        });
    }
}

#[test]
fn a_row_alone_may_be_a_row_of_nan() {
    let mut honest = right_outputs();
    honest.pass(Purpose::SingleRow).outputs[0].finite = 0;
    assert_eq!(honest.judge().verdict, Verdict::Pass);
}

#[test]
fn other_bits_in_the_repeated_run_fail() {
    let honest = right_outputs();
    turns(&honest, Verdict::Fail, "not-repeatable", |seen| {
        seen.pass(Purpose::Repeat).digests.insert("y".into(), Digest::of(b"other"));
    });
    turns(&honest, Verdict::Invalid, "digest-missing", |seen| {
        seen.pass(Purpose::Repeat).digests.clear();
    });
    turns(&honest, Verdict::Invalid, "digest-missing", |seen| {
        seen.pass(Purpose::First).digests.clear();
    });
}

#[test]
fn a_row_that_depends_on_other_rows_fails() {
    let honest = right_outputs();
    turns(&honest, Verdict::Fail, "batch-variant", |seen| {
        seen.pass(Purpose::SingleRow).rows = vec![Digest::of(b"other")];
    });
    turns(&honest, Verdict::Invalid, "row-digest-missing", |seen| {
        seen.pass(Purpose::SingleRow).rows.clear();
    });
    turns(&honest, Verdict::Invalid, "row-digest-missing", |seen| {
        seen.pass(Purpose::First).rows.clear();
        seen.pass(Purpose::SingleRow).rows.clear();
    });
}

#[test]
fn how_a_run_ends_decides() {
    let honest = right_outputs();
    turns(&honest, Verdict::Fail, "refused", |seen| {
        seen.pass(Purpose::First).outcome = Outcome::Refused(refusal_error());
    });
    turns(&honest, Verdict::Errored, "untyped-failure", |seen| {
        seen.pass(Purpose::Repeat).outcome = Outcome::Failed("a bug".into());
    });
    turns(&honest, Verdict::Unsupported, "unsupported", |seen| {
        seen.correctness().passes.truncate(1);
        seen.pass(Purpose::First).outcome = Outcome::Unsupported("no BF16".into());
    });
}

#[test]
fn a_checker_that_was_not_shown_to_fail_decides_nothing() {
    for honest in [right_outputs(), right_refusal()] {
        turns(&honest, Verdict::Unqualified, "checker-unqualified", |seen| {
            seen.correctness().qualification.mutants = 0;
            seen.correctness().qualification.killed = 0;
        });
        turns(&honest, Verdict::Unqualified, "checker-unqualified", |seen| {
            seen.correctness().qualification.killed -= 1;
            seen.correctness().qualification.survivors.push("scale-1.01".into());
        });
        turns(&honest, Verdict::Unqualified, "checker-unqualified", |seen| {
            seen.correctness().qualification.false_alarms = 1;
        });
    }
    turns(&right_outputs(), Verdict::Unqualified, "out-of-tolerance", |seen| {
        seen.correctness().qualification.killed -= 1;
        seen.pass(Purpose::First).outputs[0].out_of_tolerance = 1;
    });
}

#[test]
fn an_invalid_input_must_get_its_own_refusal() {
    let honest = right_refusal();
    let refused = |change: fn(&mut proofhouse_schema::protocol::TypedError)| {
        move |seen: &mut judging::Seen| {
            let mut error = refusal_error();
            change(&mut error);
            seen.pass(Purpose::Refusal).outcome = Outcome::Refused(error);
        }
    };
    turns(&honest, Verdict::Fail, "wrong-refusal", refused(|e| e.kind = "overlap".into()));
    turns(&honest, Verdict::Fail, "wrong-refusal", refused(|e| e.argument = "x".into()));
    turns(&honest, Verdict::Fail, "wrong-refusal", refused(|e| e.operator = "min_p".into()));
    turns(&honest, Verdict::Fail, "accepted-invalid", |seen| {
        seen.pass(Purpose::Refusal).outcome = Outcome::Ran;
    });
    turns(&honest, Verdict::Errored, "untyped-failure", |seen| {
        seen.pass(Purpose::Refusal).outcome = Outcome::Failed("ValueError".into());
    });
    turns(&honest, Verdict::Unsupported, "unsupported", |seen| {
        seen.pass(Purpose::Refusal).outcome = Outcome::Unsupported("no refusals".into());
    });
    turns(&honest, Verdict::Fail, "guard-overwritten", |seen| {
        seen.pass(Purpose::Refusal).findings.push(finding("guard-overwritten"));
    });
    turns(&honest, Verdict::Invalid, "no-passes", |seen| seen.correctness().passes.clear());
    turns(&honest, Verdict::Invalid, "pass-missing", |seen| {
        seen.pass(Purpose::Refusal).purpose = Purpose::First;
    });
}

#[test]
fn every_ending_has_its_verdict() {
    let honest = right_outputs();
    let endings = [
        (Ending::Exit(1), "exited"),
        (Ending::Signal(11), "killed-by-signal"),
        (Ending::Timeout, "timeout"),
        (Ending::MemoryLimit, "memory-limit"),
        (Ending::Protocol, "protocol"),
        (Ending::NotStarted, "not-started"),
        (Ending::Interrupted, "interrupted"),
    ];
    for (ending, code) in endings {
        turns(&honest, Verdict::Errored, code, |seen| {
            seen.record.observation = Observation::Errored {
                ending,
                provider: judging::id("cpu"),
                detail: "it ended".into(),
            };
        });
    }
    turns(&honest, Verdict::NotRun, "not-run", |seen| {
        seen.record.observation = Observation::NotRun { reason: "no Python".into() };
    });
    turns(&honest, Verdict::Unsupported, "unsupported", |seen| {
        seen.record.observation = Observation::Unsupported { reason: "no BF16".into() };
    });
}

#[test]
fn a_record_of_another_kind_or_schema_is_invalid() {
    let honest = right_outputs();
    turns(&honest, Verdict::Invalid, "other-observation", |seen| {
        seen.record.gate.kind = GateKind::Baseline;
    });
    turns(&honest, Verdict::Invalid, "other-schema", |seen| {
        seen.record.schema = "proofhouse/v2".into();
    });
}

#[test]
fn an_informative_gate_is_told_and_not_required() {
    let mut honest = right_outputs();
    honest.record.gate.level = Level::Informative;
    assert!(!honest.judge().required);
}

#[test]
fn a_flood_of_reasons_is_bounded() {
    let mut wrong = right_outputs();
    wrong.pass(Purpose::First).findings = vec![finding("guard-overwritten"); 1000];
    let reasons = wrong.judge().reasons;
    assert_eq!(reasons.len(), 25);
    assert_eq!(reasons[24].code, "more");
}

//! Grades, and what many verdicts come to.

#![allow(clippy::unwrap_used, reason = "tests")]

mod judging;

use judging::{Speeds, fast, right_outputs, timed};
use proofhouse_gate::judge::{adjust, gate_total, grade, total};
use proofhouse_schema::evidence::{Ending, Grade, Observation};
use proofhouse_schema::exit::Exit;
use proofhouse_schema::probe::Probe;
use proofhouse_schema::verdict::{Require, Verdict, VerdictBody};

fn body(verdict: Verdict) -> VerdictBody {
    let mut body = right_outputs().judge();
    body.verdict = verdict;
    body
}

#[test]
fn nothing_judged_is_not_green() {
    let nothing = total(&[]);
    assert_eq!((nothing.exit, nothing.verdict), (Exit::NothingSelected, Verdict::NotRun));
    let mut told = body(Verdict::Pass);
    told.required = false;
    assert_eq!(total(&[told]).exit, Exit::NothingSelected);
}

#[test]
fn the_worst_required_cell_wins() {
    let pass = body(Verdict::Pass);
    assert_eq!(total([&pass, &pass]).exit, Exit::Passed);
    for verdict in Verdict::ALL {
        let other = body(verdict);
        for found in [total([&pass, &other]), total([&other, &pass])] {
            assert_eq!((found.verdict, found.exit), (verdict, verdict.exit()), "{verdict}");
        }
    }
    let (fail, invalid) = (body(Verdict::Fail), body(Verdict::Invalid));
    let found = total([&invalid, &fail, &pass]);
    assert_eq!((found.exit, found.cells, found.counts[&Verdict::Pass]), (Exit::Failed, 3, 1));
}

#[test]
fn informative_cells_are_told_and_decide_nothing() {
    let mut told = body(Verdict::Fail);
    told.required = false;
    let found = total([&told, &body(Verdict::Pass)]);
    assert_eq!((found.exit, found.required, found.cells), (Exit::Passed, 1, 2));
}

#[test]
fn a_broken_protocol_has_its_own_exit_code() {
    let mut broken = right_outputs();
    broken.record.observation = Observation::Errored {
        ending: Ending::Protocol,
        provider: judging::id("cpu"),
        detail: "a wrong nonce".into(),
    };
    assert_eq!(total([&broken.judge()]).exit, Exit::Protocol);
}

#[test]
fn five_replicates_with_everything_known_are_a_claim() {
    for honest in [right_outputs(), timed(&fast())] {
        let (grade, reasons) = grade(&honest.record, honest.session.as_ref());
        assert_eq!((grade, reasons), (Grade::Claim, Vec::new()));
        assert_eq!(honest.judge().grade, Grade::Claim);
    }
}

#[test]
fn fewer_replicates_are_worth_less() {
    for (replicates, expected) in [
        (1, Grade::Exploratory),
        (2, Grade::Exploratory),
        (3, Grade::Qualified),
        (4, Grade::Qualified),
    ] {
        let seen = timed(&Speeds { replicates, ..fast() });
        assert_eq!(grade(&seen.record, seen.session.as_ref()).0, expected, "{replicates}");
    }
}

#[test]
fn anything_unknown_is_exploratory_and_a_dirty_tree_is_no_claim() {
    let graded = |spoil: &dyn Fn(&mut judging::Seen)| {
        let mut seen = timed(&fast());
        spoil(&mut seen);
        grade(&seen.record, seen.session.as_ref()).0
    };
    let gone = || Probe::Unavailable("it failed".to_owned());
    assert_eq!(graded(&|seen| seen.record.source.revision = gone()), Grade::Exploratory);
    assert_eq!(graded(&|seen| seen.record.source.tree = gone()), Grade::Exploratory);
    assert_eq!(
        graded(&|seen| seen.record.source.dirty = Probe::Unavailable("no git".into())),
        Grade::Exploratory
    );
    assert_eq!(graded(&|seen| seen.record.source.dirty = Probe::Known(true)), Grade::Exploratory);
    assert_eq!(
        graded(&|seen| {
            seen.record.source.dirty = Probe::Known(true);
            seen.record.source.diff = Some(proofhouse_schema::canonical::Digest::of(b"diff"));
        }),
        Grade::Qualified
    );
    assert_eq!(graded(&|seen| seen.record.candidate.version = gone()), Grade::Exploratory);
    assert_eq!(graded(&|seen| seen.record.baselines[1].version = gone()), Grade::Exploratory);
    assert_eq!(
        graded(&|seen| seen.record.checker.binary = Probe::Unavailable("no file".into())),
        Grade::Exploratory
    );
    assert_eq!(graded(&|seen| seen.record.inputs.clear()), Grade::Exploratory);
    assert_eq!(graded(&|seen| seen.record.reproduce.clear()), Grade::Exploratory);
    assert_eq!(graded(&|seen| seen.session().host.cpu = gone()), Grade::Exploratory);
    assert_eq!(graded(&|seen| seen.session = None), Grade::Exploratory);
}

#[test]
fn holm_takes_back_a_call_that_only_one_of_many_cells_makes() {
    let verdict = |p: f64| {
        let mut body = timed(&Speeds { ratios: &[("numpy", 2.0)], ..fast() }).judge();
        body.comparisons[0].estimate.as_mut().unwrap().p_value.0 = p;
        body
    };
    let alone = [verdict(0.02)];
    let found = adjust(&alone);
    assert!(found[0].holds && (found[0].p_value - 0.02).abs() < 1e-12);
    let many: Vec<VerdictBody> = [0.02, 0.3, 0.6].map(verdict).into();
    let found = adjust(&many);
    assert!(!found[0].holds && (found[0].p_value - 0.06).abs() < 1e-12);
    let mut bare = verdict(f64::NAN);
    bare.comparisons[0].estimate = None;
    assert!(!adjust(&[bare])[0].holds);
    assert!(adjust(&[]).is_empty());
}

#[test]
fn a_gate_that_requires_wins_needs_every_call_to_hold_after_holm() {
    let seen = timed(&Speeds { ratios: &[("numpy", 2.0)], ..fast() });
    let rule = seen.record.gate.timing.clone();
    let verdict = |p: f64| {
        let mut body = seen.judge();
        body.comparisons[0].estimate.as_mut().unwrap().p_value.0 = p;
        body
    };
    let strong: Vec<VerdictBody> = [1e-6, 1e-5, 0.04].map(verdict).into();
    assert_eq!(gate_total(rule.as_ref(), &strong).exit, Exit::Passed);
    let weak: Vec<VerdictBody> = [1e-6, 0.03, 0.04].map(verdict).into();
    let found = gate_total(rule.as_ref(), &weak);
    assert_eq!((found.verdict, found.exit), (Verdict::Inconclusive, Exit::Inconclusive));
    assert_eq!(total(&weak).exit, Exit::Passed, "the cells keep their verdicts");
    assert_eq!(gate_total(None, &weak).exit, Exit::Passed);
    assert_eq!(gate_total(rule.as_ref(), &[]).exit, Exit::NothingSelected);
}

#[test]
fn a_parity_never_counts_as_a_difference() {
    let tie =
        timed(&Speeds { ratios: &[("numpy", 1.0)], require: Require::NoLoss, ..fast() }).judge();
    assert!(!adjust(std::slice::from_ref(&tie))[0].holds);
}

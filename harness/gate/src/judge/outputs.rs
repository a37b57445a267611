//! One run's outputs against the oracle's.

use proofhouse_schema::evidence::{Pass, Purpose, QualificationScore, TensorComparison};
use proofhouse_schema::verdict::Verdict;

use super::notes::Notes;

/// What a run's outputs are held to.
pub(crate) struct Demand {
    /// Whether the case has no rows: then there is nothing to compare, and outputs must be empty.
    pub(crate) empty: bool,
    /// The verdict for outputs that are wrong.
    pub(crate) wrong: Verdict,
    /// Whether some element must be finite; not so for one row alone, which may be a row of NaN.
    pub(crate) finite: bool,
}

/// Notes a checker that was not shown to find planted faults.
pub(crate) fn check_qualification(score: &QualificationScore, notes: &mut Notes) {
    if score.qualified() {
        return;
    }
    let detail = format!(
        "the checker found {} of {} planted faults and called {} honest outputs wrong{}; accepted: all, of at least one, and none",
        score.killed,
        score.mutants,
        score.false_alarms,
        match score.survivors.as_slice() {
            [] => String::new(),
            survivors => format!(" (not found: {})", survivors.join(", ")),
        }
    );
    notes.add(Verdict::Unqualified, "checker-unqualified", detail);
}

/// Notes what is wrong with a run that ended.
pub(crate) fn check_outputs(who: &str, pass: &Pass, demand: &Demand, notes: &mut Notes) {
    let run = format!("{who}{}", purpose(pass.purpose));
    for finding in &pass.findings {
        notes.add(demand.wrong, &finding.code, format!("{run}: {}", finding.detail));
    }
    if pass.outputs.is_empty() && !demand.empty {
        notes.add(Verdict::Invalid, "nothing-compared", format!("{run}: no output was compared"));
    }
    for output in &pass.outputs {
        check_output(&run, output, demand, notes);
    }
    let names = pass.outputs.iter().map(|output| &output.tensor);
    if !names.eq(pass.outputs.iter().map(|o| &o.tensor).filter(|t| pass.digests.contains_key(*t))) {
        let detail = format!("{run}: an output has no digest");
        notes.add(Verdict::Invalid, "digest-missing", detail);
    }
}

fn check_output(run: &str, output: &TensorComparison, demand: &Demand, notes: &mut Notes) {
    let tensor = &output.tensor;
    if output.class_mismatches > 0 {
        let detail = format!(
            "{run}: {} of {} elements of {tensor} differ in class (NaN, +inf, -inf, finite){}; accepted: none",
            output.class_mismatches,
            output.elements,
            first_bad(output)
        );
        notes.add(demand.wrong, "class-mismatch", detail);
    }
    if output.out_of_tolerance > 0 {
        let detail = format!(
            "{run}: {} of {} elements of {tensor} lie outside the tolerance (largest error {} ulp, {} absolute){}; accepted: none",
            output.out_of_tolerance,
            output.elements,
            output.max_ulp.0,
            output.max_abs.0,
            first_bad(output)
        );
        notes.add(demand.wrong, "out-of-tolerance", detail);
    }
    if demand.empty {
        if output.elements > 0 {
            let detail = format!(
                "{run}: {} elements of {tensor} compared in a case without rows",
                output.elements
            );
            notes.add(Verdict::Invalid, "elements-in-empty-case", detail);
        }
        return;
    }
    if output.elements == 0 {
        let detail = format!("{run}: no element of {tensor} was compared");
        notes.add(Verdict::Invalid, "nothing-compared", detail);
    } else if demand.finite && output.finite == 0 {
        let detail = format!(
            "{run}: no element of {tensor} is finite in the oracle, so no error was measured"
        );
        notes.add(Verdict::Invalid, "nothing-finite", detail);
    }
    if output.finite > output.elements
        || output.class_mismatches > output.elements
        || output.out_of_tolerance > output.elements
    {
        let detail = format!("{run}: the counts of {tensor} contradict each other");
        notes.add(Verdict::Invalid, "impossible-counts", detail);
    }
}

fn first_bad(output: &TensorComparison) -> String {
    output.bad.first().map_or(String::new(), |bad| {
        format!(", first at {:?}: expected {}, found {}", bad.index, bad.expected.0, bad.found.0)
    })
}

/// The words for a run in reasons.
pub(crate) fn purpose(purpose: Purpose) -> &'static str {
    match purpose {
        Purpose::First => "first run",
        Purpose::Repeat => "repeated run",
        Purpose::Renewed => "run with renewed contents",
        Purpose::SingleRow => "run of one row alone",
        Purpose::Refusal => "run with the invalid input",
        Purpose::Timed => "timed run",
        Purpose::Replay => "replayed graph",
        Purpose::Eager => "eager run",
        Purpose::Sanitized => "run under the sanitizer",
    }
}

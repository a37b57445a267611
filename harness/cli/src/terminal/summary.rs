//! The verdict table at the end of a run.

use proofhouse_report::{GateTally, Remarks, Tally, plain};
use proofhouse_schema::report::{CellRow, ReportModel};
use proofhouse_schema::verdict::{Comparison, Verdict};

use super::{Paint, Table};

/// Reasons that are told at the end of a run; the report has the rest.
const REASONS: usize = 8;

/// A table of gates, and one of speeds, as a person reads them at the end of a run.
pub fn summary(model: &ReportModel, remarks: &Remarks, paint: Paint) -> String {
    let mut out = gates(model, paint);
    let reasons = reasons(model, remarks, paint);
    if !reasons.is_empty() {
        out.push_str(&format!("\n{reasons}"));
    }
    let speeds = speeds(model, paint);
    if !speeds.is_empty() {
        out.push('\n');
        out.push_str(&speeds);
    }
    out
}

fn gates(model: &ReportModel, paint: Paint) -> String {
    let mut table = Table::new(&["verdict", "gate", ">pass", ">of", "others"]);
    for gate in GateTally::all(model) {
        let worst = gate.tally.worst();
        let shown = if gate.required || worst == Verdict::Pass {
            paint.verdict(worst, worst.as_str())
        } else {
            paint.faint(worst.as_str())
        };
        let level = if gate.required { "" } else { " (informative)" };
        table.painted(vec![
            (worst.as_str().to_owned(), Some(shown)),
            (format!("{}{level}", gate.gate), None),
            (gate.tally.count(Verdict::Pass).to_string(), None),
            (gate.tally.total().to_string(), None),
            (others(&gate.tally), None),
        ]);
    }
    table.render(|head| paint.faint(head))
}

/// Why cells did not pass: one entry per verdict and reason, required ones first, with the last words of crashed processes.
fn reasons(model: &ReportModel, remarks: &Remarks, paint: Paint) -> String {
    let mut found: Vec<(&CellRow, &str, usize)> = Vec::new();
    for cell in model.cells.iter().filter(|cell| cell.verdict != Verdict::Pass) {
        let reason = cell.reasons.first().map_or("no reason is recorded", |r| r.detail.as_str());
        let same = |(first, said, _): &&mut (&CellRow, &str, usize)| {
            *said == reason && (first.verdict, first.required) == (cell.verdict, cell.required)
        };
        match found.iter_mut().find(same) {
            Some((_, _, count)) => *count += 1,
            None => found.push((cell, reason, 1)),
        }
    }
    found.sort_by_key(|(cell, ..)| (!cell.required, cell.verdict.exit()));
    let mut out = String::new();
    for (cell, reason, count) in found.iter().take(REASONS) {
        let who = match count {
            1 => format!("{} {} {}", cell.gate, cell.cell, cell.provider),
            _ => format!("{count} cells, the first {} {}", cell.gate, cell.cell),
        };
        let level = if cell.required { "" } else { " (informative)" };
        let word = paint.verdict(cell.verdict, cell.verdict.as_str());
        out.push_str(&format!("{word}{level} {who}\n    {}\n", paint.faint(&plain(reason))));
        for tail in remarks.last_words(cell) {
            out.push_str(&format!("    last words of {}:\n", tail.who));
            let lines = tail.lines.iter().map(|line| format!("      | {}\n", paint.faint(line)));
            out.extend(lines);
        }
    }
    if found.len() > REASONS {
        out.push_str(&format!("and {} more; the report has them\n", found.len() - REASONS));
    }
    out
}

fn others(tally: &Tally) -> String {
    let others: Vec<String> = tally
        .present()
        .iter()
        .filter(|(verdict, _)| *verdict != Verdict::Pass)
        .map(|(verdict, count)| format!("{count} {verdict}"))
        .collect();
    others.join(", ")
}

/// One line per operator and baseline: the geometric mean of the ratios, and what was called how often.
fn speeds(model: &ReportModel, paint: Paint) -> String {
    let mut lines: Vec<(String, String, Vec<&Comparison>)> = Vec::new();
    for cell in &model.cells {
        for comparison in &cell.comparisons {
            let baseline = format!("{} {}", comparison.baseline, comparison.baseline_version);
            let operator = cell.operator.to_string();
            match lines.iter_mut().find(|(o, b, _)| *o == operator && *b == baseline) {
                Some((_, _, comparisons)) => comparisons.push(comparison),
                None => lines.push((operator, baseline, vec![comparison])),
            }
        }
    }
    if lines.is_empty() {
        return String::new();
    }
    let mut table = Table::new(&["operator", "against", ">least", ">mean", ">most", "called"]);
    for (operator, baseline, comparisons) in lines {
        let ratios: Vec<f64> =
            comparisons.iter().filter_map(|c| c.estimate.as_ref()).map(|e| e.ratio.0).collect();
        let least = ratios.iter().copied().fold(f64::INFINITY, f64::min);
        let most = ratios.iter().copied().fold(0.0, f64::max);
        let mean = (ratios.iter().map(|r| r.ln()).sum::<f64>() / ratios.len() as f64).exp();
        let number = |value: f64| if ratios.is_empty() { "-".to_owned() } else { times(value) };
        let worst = comparisons.iter().map(|c| c.speed).min_by_key(|s| rank(*s));
        let called = called(&comparisons);
        let shown = worst.map(|speed| paint.speed(speed, &called));
        table.painted(vec![
            (operator, None),
            (baseline, None),
            (number(least), None),
            (number(mean), None),
            (number(most), None),
            (called, shown),
        ]);
    }
    table.render(|head| paint.faint(head))
}

/// A ratio in three digits or more: `1.05x`, `12.3x`, `750x`.
fn times(ratio: f64) -> String {
    let digits = match ratio {
        r if r < 9.995 => 2,
        r if r < 99.95 => 1,
        _ => 0,
    };
    format!("{ratio:.digits$}x")
}

fn rank(speed: proofhouse_schema::verdict::Speed) -> u8 {
    use proofhouse_schema::verdict::Speed;
    match speed {
        Speed::Loss | Speed::Trail => 0,
        Speed::Inconclusive => 1,
        Speed::Parity | Speed::Even => 2,
        Speed::Win | Speed::Lead => 3,
    }
}

fn called(comparisons: &[&Comparison]) -> String {
    let mut counts: Vec<(&str, usize)> = Vec::new();
    for comparison in comparisons {
        let word = comparison.speed.as_str();
        match counts.iter_mut().find(|(w, _)| *w == word) {
            Some((_, count)) => *count += 1,
            None => counts.push((word, 1)),
        }
    }
    counts.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    counts.iter().map(|(word, count)| format!("{count} {word}")).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::times;

    #[test]
    fn ratios_have_three_digits_and_no_more_than_they_need() {
        let said = [0.5, 1.047, 9.996, 12.34, 99.96, 749.77].map(times);
        assert_eq!(said, ["0.50x", "1.05x", "10.0x", "12.3x", "100x", "750x"]);
    }
}

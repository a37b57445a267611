//! The report as Markdown, for pull requests and step summaries.

use std::fmt::Write as _;

use proofhouse_schema::report::ReportModel;
use proofhouse_schema::verdict::Verdict;

use crate::log::plain;
use crate::order;
use crate::remarks::Remarks;
use crate::tally::{GateTally, Tally};
use crate::words;

/// Cells that are listed at most under "not passed".
const MOST: usize = 50;

/// Renders the report.
#[must_use]
pub fn markdown(model: &ReportModel, remarks: &Remarks) -> String {
    let mut out = String::new();
    // Writing to a String cannot fail.
    let _ = write(&mut out, model, remarks);
    out
}

fn write(out: &mut String, model: &ReportModel, remarks: &Remarks) -> std::fmt::Result {
    let all = Tally::of(&model.cells);
    writeln!(out, "# {}\n", escape(&model.title))?;
    let counts: Vec<String> = all.present().iter().map(|(v, n)| format!("{n} {v}")).collect();
    let counts = if counts.is_empty() { "no cell".to_owned() } else { counts.join(", ") };
    writeln!(out, "{} · {} · {counts}\n", escape(&model.tool), model.generated)?;
    for gap in &remarks.gaps {
        writeln!(out, "> **The evidence is not whole:** {}\n", escape(&plain(gap)))?;
    }
    if !model.cells.iter().any(|cell| cell.required) {
        writeln!(out, "No required cell: this report proves nothing.\n")?;
    }
    gates(out, model)?;
    speed(out, model)?;
    not_passed(out, model, remarks)
}

fn gates(out: &mut String, model: &ReportModel) -> std::fmt::Result {
    writeln!(out, "| gate | kind | level | verdict | cells |\n|---|---|---|---|---|")?;
    for gate in GateTally::all(model) {
        let level = if gate.required { "required" } else { "informative" };
        let counts: Vec<String> =
            gate.tally.present().iter().map(|(v, n)| format!("{n} {v}")).collect();
        let worst = gate.tally.worst();
        let mark = words::mark(worst);
        let counts = counts.join(", ");
        writeln!(out, "| {} | {} | {level} | {mark} {worst} | {counts} |", gate.gate, gate.kind)?;
    }
    writeln!(out)
}

fn speed(out: &mut String, model: &ReportModel) -> std::fmt::Result {
    let mut cells: Vec<_> = model.cells.iter().collect();
    order::by_gate(&mut cells);
    let rows: Vec<_> =
        cells.into_iter().flat_map(|c| c.comparisons.iter().map(move |x| (c, x))).collect();
    if rows.is_empty() {
        return Ok(());
    }
    writeln!(out, "## Speed\n")?;
    writeln!(
        out,
        "Baseline time over candidate time with its 95 % interval; above 1 the candidate is faster.\n"
    )?;
    writeln!(out, "| operator | shape | dtype | candidate | baseline | ratio | says | grade |")?;
    writeln!(out, "|---|---|---|---|---|---|---|---|")?;
    for (cell, c) in rows {
        let baseline = format!("{} {}", c.baseline, escape(&c.baseline_version));
        let (ratio, grade) = (words::ratio(c), cell.grade.as_str());
        writeln!(
            out,
            "| {} | {} | {} | {} | {baseline} | {ratio} | {} | {grade} |",
            cell.operator, cell.shape, cell.dtype, c.candidate, c.speed
        )?;
    }
    writeln!(out)
}

fn not_passed(out: &mut String, model: &ReportModel, remarks: &Remarks) -> std::fmt::Result {
    let mut cells: Vec<_> = model.cells.iter().filter(|c| c.verdict != Verdict::Pass).collect();
    order::by_gate(&mut cells);
    if cells.is_empty() {
        return Ok(());
    }
    writeln!(out, "## Not passed\n")?;
    for cell in cells.iter().take(MOST) {
        let level = if cell.required { "" } else { " (informative)" };
        let (mark, verdict) = (words::mark(cell.verdict), cell.verdict);
        writeln!(
            out,
            "- {mark} **{verdict}**{level} {} `{}` {}",
            cell.gate, cell.cell, cell.provider
        )?;
        for reason in &cell.reasons {
            writeln!(out, "  - {}", escape(&plain(&reason.detail)))?;
        }
        for tail in remarks.last_words(cell) {
            writeln!(out, "  - last words of {}:\n", escape(&tail.who))?;
            // Indented by four beyond the list's text, lines are shown as they are.
            for line in &tail.lines {
                writeln!(out, "        {line}")?;
            }
            writeln!(out)?;
        }
    }
    if cells.len() > MOST {
        writeln!(out, "- and {} more", cells.len() - MOST)?;
    }
    Ok(())
}

/// Text that cannot break out of a table cell or become markup.
pub(crate) fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '|' | '*' | '_' | '`' | '<' | '>' | '[' | ']' | '\\' => {
                out.push('\\');
                out.push(c);
            }
            '\n' | '\r' => out.push(' '),
            c => out.push(c),
        }
    }
    out
}

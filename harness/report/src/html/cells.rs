//! All cells, and the facts of one.

use maud::{Markup, html as page};
use proofhouse_schema::report::{CellRow, ReportModel};
use proofhouse_schema::verdict::Verdict;

use super::word;
use crate::log::LogTail;
use crate::order;
use crate::words;

/// The table of all cells, with a box to search in.
pub(super) fn section(model: &ReportModel) -> Markup {
    let mut cells: Vec<&CellRow> = model.cells.iter().collect();
    order::by_gate(&mut cells);
    page! {
        section #cells {
            h2 { "All cells" }
            p.filter {
                label for="filter" { "Show cells with all of these words" } br;
                input #filter type="search" placeholder="rms_norm BF16 fail" autocomplete="off";
                " " span #shown aria-live="polite" {} " cells"
            }
            div.scroll tabindex="0" role="region" aria-label="all cells" {
                table {
                    thead { tr {
                        th { "verdict" } th { "gate" } th { "cell" } th { "candidate" } th { "seen" } th.wide-only { "evidence" }
                    } }
                    tbody {
                        @for cell in &cells {
                            tr data-text=(search_text(cell)) {
                                td { (word(cell.verdict)) }
                                td { (cell.gate) }
                                td.key { (cell.cell) }
                                td { (cell.provider) }
                                td.seen { (seen(cell)) }
                                td.wide-only { code title=(cell.evidence) { (cell.evidence.short()) } }
                            }
                        }
                    }
                }
            }
        }
    }
}

fn search_text(cell: &CellRow) -> String {
    let kind = if cell.required { "required" } else { "informative" };
    format!(
        "{} {} {} {} {} {kind}",
        cell.verdict, cell.gate, cell.cell, cell.provider, cell.evidence
    )
    .to_lowercase()
}

/// What was seen in a cell, in a few words.
fn seen(cell: &CellRow) -> Markup {
    page! {
        @if let Some(ulp) = cell.max_ulp { "max " (format!("{ulp:.2}")) " ulp" }
        @for (index, comparison) in cell.comparisons.iter().enumerate() {
            @if index > 0 || cell.max_ulp.is_some() { br; }
            (comparison.speed) " " (words::ratio_alone(comparison)) " / " (comparison.baseline)
        }
        @if cell.max_ulp.is_none() && cell.comparisons.is_empty() {
            @if let Some(reason) = cell.reasons.first() { (reason.detail) }
        }
    }
}

/// The first reason of a cell that did not pass, for a line that is folded.
pub(super) fn first_reason(cell: &CellRow) -> Markup {
    let reason = cell.reasons.first().filter(|_| cell.verdict != Verdict::Pass);
    page! { @if let Some(reason) = reason { span.faint.reason { (reason.detail) } } }
}

/// Why a cell has its verdict.
pub(super) fn reasons(cell: &CellRow) -> Markup {
    page! {
        @if !cell.reasons.is_empty() {
            ul { @for reason in &cell.reasons { li { code { (reason.code) } " " (reason.detail) } } }
        } @else if cell.verdict != Verdict::Pass {
            p.faint { "The verdict has no reason recorded." }
        }
    }
}

/// What processes that ended badly said last.
pub(super) fn last_words(tails: &[LogTail]) -> Markup {
    page! {
        @for tail in tails {
            h4 { "last words of " (tail.who) }
            pre { @for line in &tail.lines { (line) "\n" } }
        }
    }
}

/// Where a cell comes from and how to run it again.
pub(super) fn facts(cell: &CellRow) -> Markup {
    page! {
        dl {
            dt { "grade" } dd { (cell.grade.as_str()) }
            @if let Some(contract) = &cell.contract { dt { "timing contract" } dd { (contract) } }
            dt { "evidence" } dd { code { (cell.file) } }
            dt { "run again" } dd { code { (words::command(&cell.reproduce)) } }
        }
    }
}

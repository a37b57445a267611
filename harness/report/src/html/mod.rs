//! The report as one HTML file: no network, no dependency, readable at phone width, in print, dark and light.

mod cells;
mod orderings;
mod sessions;
mod speed;

use maud::{DOCTYPE, Markup, PreEscaped, html as page};
use proofhouse_schema::gate::GateKind;
use proofhouse_schema::report::{CellRow, ReportModel};
use proofhouse_schema::verdict::Verdict;

use crate::order;
use crate::plot::{self, PlotError};
use crate::remarks::Remarks;
use crate::tally::{GateTally, Tally, is_refusal};
use crate::words;

const STYLE: &str = include_str!("style.css");
/// Cells of a list that stand open; the rest folds.
pub(super) const SHOWN: usize = 25;
/// Cells that did not pass and are told with their reasons; the table of all cells has the rest.
const TOLD: usize = 200;
const FILTER: &str = include_str!("filter.js");

/// Renders the report.
///
/// # Errors
/// [`PlotError`] when a plot cannot be drawn.
pub fn html(model: &ReportModel, remarks: &Remarks) -> Result<String, PlotError> {
    let matrices = matrices(model)?;
    let speed = speed::section(model, remarks)?;
    let markup = page! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="generator" content=(model.tool);
                title { (model.title) }
                style { (PreEscaped(STYLE)) }
            }
            body {
                main {
                    (head(model, remarks))
                    (not_passed(model, remarks))
                    (gates(model))
                    (matrices)
                    (speed)
                    (cells::section(model))
                    (sessions::section(model))
                    (foot(model))
                }
                script { (PreEscaped(FILTER)) }
            }
        }
    };
    Ok(markup.into_string())
}

/// The class that colors a verdict.
pub(super) const fn class(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Pass => "good",
        Verdict::Fail | Verdict::Errored => "bad",
        Verdict::Inconclusive | Verdict::Invalid | Verdict::Unqualified => "open",
        Verdict::Unsupported | Verdict::NotRun => "quiet",
    }
}

/// A verdict as a word with its mark.
pub(super) fn word(verdict: Verdict) -> Markup {
    page! { span class={ "word " (class(verdict)) } { (words::mark(verdict)) " " (verdict) } }
}

fn head(model: &ReportModel, remarks: &Remarks) -> Markup {
    let required = Tally::of(model.cells.iter().filter(|c| c.required));
    let all = Tally::of(&model.cells);
    page! {
        header {
            h1 { (model.title) }
            p.faint { (model.tool) " · " (model.generated) " · " (all.total()) " cells, " (required.total()) " of them required" }
            @if !remarks.gaps.is_empty() {
                div.warning role="alert" {
                    p { strong { "The evidence is not whole." } " Run " code { "proofhouse verify" } " before you rest anything on this page." }
                    ul { @for gap in &remarks.gaps { li { (gap) } } }
                }
            }
            ul.chips aria-label="cells by verdict" {
                @for (verdict, count) in all.present() {
                    li class={ "chip " (class(verdict)) } { (words::mark(verdict)) " " (count) " " (verdict) }
                }
            }
            @if required.total() == 0 {
                p.open { "No required cell: this report proves nothing." }
            } @else {
                p { "Required cells together: " (word(required.worst())) "." }
            }
            nav aria-label="sections" {
                a href="#not-passed" { "Not passed" }
                a href="#gates" { "Gates" }
                a href="#matrices" { "By shape and dtype" }
                a href="#speed" { "Speed" }
                a href="#cells" { "All cells" }
                a href="#sessions" { "Machines and controls" }
            }
        }
    }
}

fn not_passed(model: &ReportModel, remarks: &Remarks) -> Markup {
    let mut cells: Vec<&CellRow> =
        model.cells.iter().filter(|c| c.verdict != Verdict::Pass).collect();
    order::by_gate(&mut cells);
    cells.sort_by_key(|c| (!c.required, c.verdict.exit()));
    let (first, rest) = cells.split_at(cells.len().min(SHOWN));
    page! {
        section #not-passed {
            h2 { "Not passed" }
            @if cells.is_empty() {
                p { "Every cell passed." }
            }
            @for cell in first { (entry(cell, remarks)) }
            @if !rest.is_empty() {
                details {
                    summary { (rest.len()) " more" }
                    div {
                        @for cell in rest.iter().take(TOLD - SHOWN) { (entry(cell, remarks)) }
                        @if cells.len() > TOLD {
                            p { "And " (cells.len() - TOLD) " more: the table of " a href="#cells" { "all cells" } " has them." }
                        }
                    }
                }
            }
        }
    }
}

fn entry(cell: &CellRow, remarks: &Remarks) -> Markup {
    page! {
        details {
            summary {
                (word(cell.verdict))
                span { (cell.gate) }
                span.faint { (cell.cell) " · " (cell.provider) @if !cell.required { " · informative" } }
                (cells::first_reason(cell))
            }
            div { (cells::reasons(cell)) (cells::last_words(&remarks.last_words(cell))) (cells::facts(cell)) }
        }
    }
}

fn gates(model: &ReportModel) -> Markup {
    page! {
        section #gates {
            h2 { "Gates" }
            div.scroll tabindex="0" role="region" aria-label="gates" {
                table {
                    thead { tr {
                        th { "verdict" } th { "gate" } th { "cells" } th { "refusals" } th.wide-only { "kind" } th.wide-only { "level" }
                    } }
                    tbody {
                        @for gate in GateTally::all(model) {
                            tr {
                                td { (word(gate.tally.worst())) }
                                td { (gate.gate) }
                                td {
                                    @for (index, (verdict, count)) in gate.tally.present().into_iter().enumerate() {
                                        @if index > 0 { ", " }
                                        (count) " " (verdict)
                                    }
                                }
                                td { (refusals(&gate.refusals)) }
                                td.wide-only { (gate.kind) }
                                td.wide-only { @if gate.required { "required" } @else { "informative" } }
                            }
                        }
                    }
                }
            }
        }
    }
}

/// Invalid inputs that got the typed refusal they must get.
fn refusals(tally: &Tally) -> String {
    match tally.total() {
        0 => "–".to_owned(),
        total => format!("{} of {total} right", tally.count(Verdict::Pass)),
    }
}

fn matrices(model: &ReportModel) -> Result<Markup, PlotError> {
    let mut plots = Vec::new();
    for (operator, cells) in by_operator(model, GateKind::Correctness) {
        plots.push((operator.clone(), plot::matrix(&operator, &cells)?));
    }
    Ok(page! {
        section #matrices {
            h2 { "Correctness by shape and dtype" }
            p.faint { "Each square: the worst verdict over layouts, values and candidates, and how many cells passed. A dash: not asked. Invalid inputs are counted under Gates." }
            div.side {
                @for (operator, svg) in &plots {
                    div {
                        h3 { (operator) }
                        div.plot tabindex="0" role="region" aria-label={ "matrix of " (operator) } { (PreEscaped(plot::inline(svg))) }
                    }
                }
            }
            @if plots.is_empty() { p { "No correctness cell." } }
        }
    })
}

/// Operators in order with their cells of a kind by shape. Refusal cells have no shape of their own and are left out.
pub(super) fn by_operator(model: &ReportModel, kind: GateKind) -> Vec<(String, Vec<&CellRow>)> {
    let mut found: Vec<(String, Vec<&CellRow>)> = Vec::new();
    let cells = model.cells.iter().filter(|c| c.kind == kind && !is_refusal(c));
    for cell in cells {
        let operator = cell.operator.as_str();
        match found.iter_mut().find(|(name, _)| name == operator) {
            Some((_, cells)) => cells.push(cell),
            None => found.push((operator.to_owned(), vec![cell])),
        }
    }
    found.iter_mut().for_each(|(_, cells)| order::by_shape(cells));
    found
}

fn foot(model: &ReportModel) -> Markup {
    page! {
        footer {
            h2 { "Made from" }
            p {
                "This page is drawn from the evidence records named in each cell. A verdict can be checked without this page: "
                code { "proofhouse verify" } " re-hashes every record, follows the logs and judges the stored samples again."
            }
            details {
                summary { (model.cells.len()) " records by sha256" }
                div { pre { @for cell in &model.cells { (cell.evidence) "  " (cell.file) "\n" } } }
            }
        }
    }
}

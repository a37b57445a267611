//! Speed: one forest plot per operator, then every cell with its times and samples.

use maud::{Markup, PreEscaped, html as page};
use proofhouse_schema::gate::GateKind;
use proofhouse_schema::report::{CellRow, ReportModel};
use proofhouse_schema::verdict::Verdict;

use super::{SHOWN, by_operator, cells, orderings, word};
use crate::plot::{self, PlotError};
use crate::remarks::Remarks;
use crate::words;

/// Timed cells up to which all have plots of their own. Of more, those that did not pass have, and the first of each
/// operator: a page of hundreds stays small, and the evidence has the samples of all.
const DRAWN: usize = 100;
const DRAWN_OF_EACH: usize = 6;

pub(super) fn section(model: &ReportModel, remarks: &Remarks) -> Result<Markup, PlotError> {
    let timed = model.cells.iter().filter(|cell| cell.kind == GateKind::Baseline).count();
    let mut operators = Vec::new();
    for (operator, cells) in by_operator(model, GateKind::Baseline) {
        let forest = plot::forest(&operator, &cells)?;
        let draws = |at: usize, c: &CellRow| {
            timed <= DRAWN || at < DRAWN_OF_EACH || c.verdict != Verdict::Pass
        };
        let details = cells.iter().enumerate().map(|(at, c)| cell(c, draws(at, c)));
        let details = details.collect::<Result<Vec<_>, _>>()?;
        let orders = remarks.orderings.iter().filter(|gate| gate.operator.as_str() == operator);
        let orders = orders.map(orderings::gate).collect::<Result<Vec<_>, _>>()?;
        operators.push((operator, forest, orders, details));
    }
    Ok(page! {
        section #speed {
            h2 { "Speed against named baselines" }
            p.faint {
                "Each line: baseline time over candidate time with its 95 % interval, paired within blocks. The gray band is the margin: "
                "an interval inside it is a tie. One replicate can only say lead, even or trail; win, parity and loss need three fresh processes."
            }
            @for (operator, forest, orders, details) in &operators {
                h3 { (operator) }
                div.plot.wide tabindex="0" role="region" aria-label={ "ratios of " (operator) } { (PreEscaped(plot::inline(forest))) }
                @for order in orders { (order) }
                (folded(details))
            }
            @if operators.is_empty() { p { "No timed cell." } }
        }
    })
}

/// Cells one below the other, the later ones of many folded.
fn folded(details: &[Markup]) -> Markup {
    let (first, rest) = details.split_at(details.len().min(SHOWN));
    page! {
        @for detail in first { (detail) }
        @if !rest.is_empty() {
            details {
                summary { (rest.len()) " more" }
                div { @for detail in rest { (detail) } }
            }
        }
    }
}

fn cell(cell: &CellRow, drawn: bool) -> Result<Markup, PlotError> {
    let plots = if drawn { Some((plot::intervals(cell)?, plot::scatter(cell)?)) } else { None };
    Ok(page! {
        details {
            summary {
                (word(cell.verdict))
                span { (cell.shape) " " (cell.dtype) }
                @for comparison in &cell.comparisons {
                    span.faint { (comparison.speed) " " (words::ratio(comparison)) " / " (comparison.baseline) }
                }
                (cells::first_reason(cell))
            }
            div {
                (times(cell))
                @if let Some((intervals, scatter)) = &plots {
                    div.side {
                        div { h4 { "Time per call" } div.plot { (PreEscaped(plot::inline(intervals))) } }
                        div { h4 { "Samples, in the order they were taken" } div.plot { (PreEscaped(plot::inline(scatter))) } }
                    }
                } @else {
                    p.faint { "Not drawn in a page of so many cells; its samples: " code { "proofhouse query \"SELECT * FROM samples\"" } }
                }
                (comparisons(cell))
                (cells::reasons(cell))
                (cells::facts(cell))
            }
        }
    })
}

fn times(cell: &CellRow) -> Markup {
    let bytes = cell.traffic.map(|(read, written)| (read.0 + written.0) as f64);
    page! {
        div.scroll tabindex="0" role="region" aria-label="times" {
            table {
                thead { tr {
                    th { "provider" } th.number { "median" } th.number { "10th to 90th percentile" } th.number { "samples" } th.number { "moved" }
                } }
                tbody {
                    @for (provider, s) in &cell.times {
                        tr {
                            td { (provider) @if *provider == cell.provider { " (candidate)" } }
                            td.number { (words::time(s.p50_ns.0)) }
                            td.number { (words::time(s.p10_ns.0)) " to " (words::time(s.p90_ns.0)) }
                            td.number { (s.count) }
                            td.number {
                                @match bytes {
                                    Some(bytes) => { (format!("{:.1} GB/s", bytes / s.p50_ns.0)) }
                                    None => { "not declared" }
                                }
                            }
                        }
                    }
                }
            }
        }
    }
}

fn comparisons(cell: &CellRow) -> Markup {
    page! {
        dl {
            @for c in &cell.comparisons {
                dt { (c.candidate) " / " (c.baseline) " " (c.baseline_version) }
                dd {
                    (c.speed) " " (words::ratio(c)) ", margin " (format!("{:.1} %", c.margin * 100.0))
                    @if let Some(e) = &c.estimate {
                        ", replicates " (e.replicates.iter().map(|r| format!("{:.3}", r.0)).collect::<Vec<_>>().join(", "))
                        @if let Some(o) = &e.order_effect {
                            ", order effect " (format!("{:.3} [{:.3}, {:.3}]", o.effect.0, o.low.0, o.high.0))
                        }
                    }
                    @for reason in &c.reasons { br; span.faint { (reason.detail) } }
                }
            }
        }
    }
}

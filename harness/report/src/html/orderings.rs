//! Who stands where: one gate's providers over its cells, and their times against what varies.

use maud::{Markup, PreEscaped, html as page};
use proofhouse_schema::ids::ProviderId;
use proofhouse_schema::ordering::{GateOrdering, Ranking};

use crate::plot::{self, PlotError};
use crate::sentences::{crossover_sentence, flip_sentence};

/// Sentences of one kind that are shown; `proofhouse compare` has all of them.
const TOLD: usize = 12;

/// Providers whose table has room beside the plot.
const BESIDE: usize = 4;

/// The part of one gate.
pub(super) fn gate(gate: &GateOrdering) -> Result<Markup, PlotError> {
    let times = plot::longest(gate)?;
    let ids = plot::in_order(gate);
    Ok(page! {
        details open {
            summary { strong { "Who stands where" } span { (gate.gate) } span.faint { (gate.candidate) " on " (gate.place) } }
            div {
                @if ids.is_empty() {
                    p { "No cell of this gate could be ranked." }
                } @else {
                    div class=(if ids.len() > BESIDE { "" } else { "side" }) {
                        @if let Some(svg) = &times {
                            div { h4 { "Time per call" } div.plot { (PreEscaped(plot::inline(svg))) } }
                        }
                        div { h4 { "Time over the first's" } (squares(gate, &ids)) }
                    }
                    p.faint { "Framed: nobody is called faster; = shares that place. Calls are the judge's, for every pair of providers." }
                }
                (sentences(gate))
            }
        }
    })
}

fn squares(gate: &GateOrdering, ids: &[&ProviderId]) -> Markup {
    let deepest = plot::deepest(gate);
    page! {
        div.scroll.tall tabindex="0" role="region" aria-label={ "standings of " (gate.gate) } {
            table {
                thead { tr { th { "cell" } @for id in ids { th { (id) } } } }
                tbody {
                    @if let Some(overall) = &gate.overall {
                        tr { td { strong { "mean of " (overall.cells.len()) } } @for id in ids { (square(&overall.ranking, id, deepest)) } }
                    }
                    @for cell in &gate.cells {
                        tr { td.key { (cell.cell) } @for id in ids { (square(&cell.ranking, id, deepest)) } }
                    }
                }
            }
        }
    }
}

fn square(ranking: &Ranking, id: &ProviderId, deepest: f64) -> Markup {
    let Some(standing) = ranking.standings.iter().find(|s| s.provider == *id) else {
        return page! { td.square { "–" } };
    };
    let ratio = plot::over_first(standing);
    let best = standing.rank == 1;
    let tied = best && ranking.standings.iter().filter(|s| s.rank == 1).count() > 1;
    let class =
        format!("square d{}{}", plot::shade(ratio, deepest), if best { " best" } else { "" });
    page! { td class=(class) { (plot::times(ratio)) @if tied { " =" } } }
}

fn sentences(gate: &GateOrdering) -> Markup {
    let called = gate.crossovers.iter().filter(|crossover| !crossover.turns.is_empty());
    let called: Vec<String> = called.map(crossover_sentence).collect();
    let flips: Vec<String> = gate.flips.iter().map(flip_sentence).collect();
    page! {
        (listed("The order turns", &called))
        (listed("Other than over the gate", &flips))
        @if !gate.unranked.is_empty() {
            p { (gate.unranked.len()) (if gate.unranked.len() == 1 { " cell" } else { " cells" }) " could not be ranked; the table of " a href="#cells" { "all cells" } " says why." }
        }
    }
}

fn listed(head: &str, sentences: &[String]) -> Markup {
    page! {
        @if !sentences.is_empty() {
            h4 { (head) }
            ul {
                @for sentence in sentences.iter().take(TOLD) { li { (sentence) } }
                @if sentences.len() > TOLD { li { "and " (sentences.len() - TOLD) " more" } }
            }
        }
    }
}

//! The machines, and the controls whose answers are known.

use maud::{Markup, html as page};
use proofhouse_schema::evidence::{Control, SessionRecord};
use proofhouse_schema::probe::Probe;
use proofhouse_schema::report::ReportModel;

pub(super) fn section(model: &ReportModel) -> Markup {
    page! {
        section #sessions {
            h2 { "Machines and controls" }
            @for (digest, session) in &model.sessions {
                h3 { "Session " code title=(digest) { (digest.short()) } }
                (facts(session))
                (controls(&session.controls))
            }
            @if model.sessions.is_empty() { p { "No session record." } }
        }
    }
}

fn probe<T: std::fmt::Display>(probe: &Probe<T>) -> String {
    match probe {
        Probe::Known(value) => value.to_string(),
        Probe::Unavailable(why) => format!("unavailable: {why}"),
    }
}

fn facts(session: &SessionRecord) -> Markup {
    let host = &session.host;
    page! {
        dl {
            dt { "CPU" } dd { (probe(&host.cpu)) ", " (probe(&host.cores)) " cores, " (host.features.join(" ")) }
            dt { "memory" } dd { (probe(&host.memory)) ", last-level cache " (probe(&host.last_level_cache)) }
            dt { "system" } dd { (probe(&host.distribution)) ", " (probe(&host.kernel)) ", " (probe(&host.container)) }
            dt { "clock policy" } dd { "as found; governor " (probe(&host.governor)) "; load " (probe(&host.load)) }
            dt { "source" } dd { code { (probe(&session.source.revision)) } ", dirty: " (probe(&session.source.dirty)) }
            dt { "profile" } dd { (session.profile.id) ", " (session.profile.replicates) " replicates, " (session.profile.blocks) " blocks" }
            dt { "machine" } dd { code { (probe(&host.machine)) } }
            @for (name, value) in &session.ceilings {
                dt { (name.replace('_', " ")) } dd { (ceiling(name, value)) }
            }
            @for (name, score) in &session.qualification {
                dt { "checker, " (name) } dd {
                    (score.killed) " of " (score.mutants) " planted faults found, " (score.false_alarms) " false alarms"
                }
            }
        }
    }
}

fn ceiling(name: &str, value: &Probe<proofhouse_schema::real::Real>) -> String {
    match value {
        Probe::Known(rate) if name.ends_with("bytes_per_s") => format!("{:.2} GB/s", rate.0 / 1e9),
        other => probe(other),
    }
}

fn controls(controls: &[Control]) -> Markup {
    page! {
        @if !controls.is_empty() {
            div.scroll tabindex="0" role="region" aria-label="controls" {
                table {
                    thead { tr { th { "control" } th.number { "planted" } th { "called" } th.number { "ratio" } th { "answer" } } }
                    tbody {
                        @for control in controls {
                            tr {
                                td { (control.name) }
                                td.number { (format!("{:.0} %", control.planted * 100.0)) }
                                td { (control.speed) }
                                td.number {
                                    @match &control.estimate {
                                        Some(e) => { (format!("{:.3} [{:.3}, {:.3}]", e.ratio.0, e.low.0, e.high.0)) }
                                        None => { "no estimate" }
                                    }
                                }
                                td {
                                    @if control.right { span.good { "✓ right" } } @else { span.bad { "✗ wrong" } }
                                }
                            }
                        }
                    }
                }
            }
        }
    }
}

//! Progress of a run: bars on a terminal, plain lines elsewhere, JSON lines on request.

use std::io::IsTerminal as _;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use proofhouse_report::plain;
use proofhouse_schema::event::{CellFinished, Event};
use proofhouse_schema::verdict::Verdict;

use super::{Paint, counted, print, tell};

/// Plain progress is told at most this often.
const PLAIN_EVERY: Duration = Duration::from_secs(5);

/// Takes the events of a run.
pub trait Sink: Send {
    /// One event.
    fn event(&mut self, event: &Event);
}

/// Events for a program: one JSON object a line on stdout.
#[derive(Debug)]
pub struct JsonLines;

impl Sink for JsonLines {
    fn event(&mut self, event: &Event) {
        if let Ok(line) = serde_json::to_string(event) {
            // A reader that went away misses the rest; the evidence is written all the same.
            let _ = print(&(line + "\n"));
        }
    }
}

/// Events for a person, on stderr.
pub struct Progress {
    bar: Option<ProgressBar>,
    paint: Paint,
    cells: u64,
    done: u64,
    last: Instant,
}

impl Progress {
    /// A bar on a terminal, plain lines elsewhere.
    pub fn new(paint: Paint) -> Self {
        let bar = std::io::stderr().is_terminal().then(|| {
            let bar =
                ProgressBar::with_draw_target(Some(0), ProgressDrawTarget::stderr_with_hz(10));
            let style = "{spinner} {pos}/{len} {bar:32} {elapsed_precise} {wide_msg}";
            bar.set_style(
                ProgressStyle::with_template(style)
                    .unwrap_or_else(|_| ProgressStyle::default_bar())
                    .progress_chars("━╸─"),
            );
            bar.enable_steady_tick(Duration::from_millis(120));
            bar
        });
        Self { bar, paint, cells: 0, done: 0, last: Instant::now() }
    }

    /// Events as JSON lines.
    pub fn json() -> JsonLines {
        JsonLines
    }

    fn line(&self, text: &str) {
        match &self.bar {
            Some(bar) => bar.suspend(|| tell(text)),
            None => tell(text),
        }
    }

    fn message(&mut self, text: String) {
        if let Some(bar) = &self.bar {
            bar.set_message(text);
        }
    }

    fn finished(&mut self, cell: &CellFinished) {
        self.done += 1;
        if let Some(bar) = &self.bar {
            bar.inc(1);
        } else if self.last.elapsed() >= PLAIN_EVERY {
            self.last = Instant::now();
            tell(&format!("{}/{} cells, at {} {}", self.done, self.cells, cell.gate, cell.cell));
        }
        let silent = matches!(cell.verdict, Verdict::Pass) || (!cell.required && cell.reused);
        if !silent && !matches!(cell.verdict, Verdict::NotRun | Verdict::Unsupported) {
            let word = self.paint.verdict(cell.verdict, cell.verdict.as_str());
            let level = if cell.required { "" } else { " (informative)" };
            let reason = cell.reasons.first().map_or("", |r| r.detail.as_str());
            let place = format!("{} {} {}", cell.gate, cell.cell, cell.provider);
            self.line(&format!("{word}{level} {place}: {}", self.paint.faint(&plain(reason))));
        }
    }
}

impl Sink for Progress {
    fn event(&mut self, event: &Event) {
        match event {
            Event::Planned { gates, cells, reused, excluded } => {
                self.cells = *cells;
                if let Some(bar) = &self.bar {
                    bar.set_length(*cells);
                    bar.set_message("getting ready: environments, checkers, controls");
                }
                let (planned, of) = (counted(*cells, "cell"), counted(*gates, "gate"));
                self.line(&format!(
                    "{planned} of {of}; evidence used again: {reused}; excluded by their gates: {excluded}"
                ));
            }
            Event::StepStarted { step } => {
                self.message(step.clone());
                if self.bar.is_none() {
                    tell(&format!("{step} ..."));
                }
            }
            Event::StepFinished { step, outcome, elapsed_ms } => {
                if *elapsed_ms > 2000.0 {
                    let outcome = plain(outcome);
                    self.line(&format!("{step}: {outcome} ({:.1} s)", elapsed_ms / 1e3));
                }
                self.message(String::new());
            }
            Event::ProviderAbsent { provider, reason } => {
                let word = self.paint.open("absent");
                self.line(&format!("{word} {provider}: {}", plain(reason)));
            }
            Event::CellStarted { gate, cell, provider } => {
                self.message(format!("{gate} {cell} {provider}"));
            }
            Event::CellFinished(cell) => self.finished(cell),
            Event::Warning { message } => {
                let word = self.paint.open("warning");
                self.line(&format!("{word} {}", plain(message)));
            }
            Event::Finished { .. } => {
                if let Some(bar) = &self.bar {
                    bar.finish_and_clear();
                }
            }
        }
    }
}

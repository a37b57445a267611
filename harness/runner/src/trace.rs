//! A trace of a run: what was asked of which process and how long it took, as trace events that Perfetto and
//! `chrome://tracing` read. It is for finding where the time goes; it is no evidence.

use std::cell::RefCell;
use std::fs::File;
use std::io::{self, LineWriter, Write as _};
use std::path::Path;
use std::time::Instant;

use proofhouse_schema::ids::ProviderId;

/// A trace that is being written; every line is one event, and a file that ends early is still readable.
#[derive(Debug)]
pub(crate) struct Trace {
    begun: Instant,
    file: RefCell<LineWriter<File>>,
}

/// A span of time in a trace.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Span<'a> {
    /// What was done.
    pub(crate) what: &'a str,
    /// About which case.
    pub(crate) about: &'a str,
    /// By which process of which provider.
    pub(crate) provider: &'a ProviderId,
    pub(crate) pid: u32,
    pub(crate) begun: Instant,
}

impl Trace {
    pub(crate) fn create(path: &Path) -> io::Result<Self> {
        let mut file = LineWriter::new(File::create(path)?);
        writeln!(file, "[")?;
        Ok(Self { begun: Instant::now(), file: RefCell::new(file) })
    }

    /// Adds a span that ends now. A trace that cannot be written is cut off: it must not end a run.
    pub(crate) fn add(&self, span: Span<'_>) {
        let us = |time: std::time::Duration| time.as_nanos() as f64 / 1e3;
        let event = serde_json::json!({
            "name": format!("{} {}", span.provider, span.what),
            "cat": span.what,
            "ph": "X",
            "ts": us(span.begun.saturating_duration_since(self.begun)),
            "dur": us(span.begun.elapsed()),
            "pid": span.pid,
            "tid": span.pid,
            "args": { "about": span.about, "provider": span.provider },
        });
        let _ = writeln!(self.file.borrow_mut(), "{event},");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_are_trace_events_of_their_process() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("trace.json");
        let trace = Trace::create(&path).unwrap();
        let provider = ProviderId::new("cuda").unwrap();
        let begun = Instant::now();
        trace.add(Span { what: "prepare", about: "case 1", provider: &provider, pid: 7, begun });
        // A run that is killed drops nothing.
        let text = std::fs::read_to_string(path).unwrap();
        let line = text.lines().nth(1).unwrap().trim_end_matches(',');
        let event: serde_json::Value = serde_json::from_str(line).unwrap();
        assert_eq!(
            (event["name"].as_str(), event["ph"].as_str()),
            (Some("cuda prepare"), Some("X"))
        );
        assert_eq!(
            (event["pid"].as_u64(), event["args"]["about"].as_str()),
            (Some(7), Some("case 1"))
        );
        assert!(event["dur"].as_f64().unwrap() >= 0.0 && event["ts"].as_f64().unwrap() >= 0.0);
    }
}

//! The lines that say where a table belongs and what it shows.

use std::ops::Range;

use proofhouse_schema::device::DeviceKind;
use proofhouse_schema::ids::GateId;
use proofhouse_schema::ordering::GateOrdering;

use super::error::TableFault;

const OPEN: &str = "<!-- proofhouse:";
const CLOSE: &str = "<!-- /proofhouse -->";
/// Some editors begin a file with it.
const BOM: char = '\u{feff}';

/// A table of a document.
pub(super) struct Block {
    /// What it shows.
    pub(super) asked: Asked,
    /// The line of its marker, from 1.
    pub(super) line: usize,
    /// The bytes between the markers.
    pub(super) inside: Range<usize>,
}

/// What a table shows.
pub(super) enum Asked {
    /// The cells of a gate.
    Table { gates: Vec<GateId>, place: Option<String>, columns: Option<Vec<String>> },
    /// A row for each gate.
    Summary {
        gates: Vec<GateId>,
        device: Option<DeviceKind>,
        place: Option<String>,
        columns: Option<Vec<String>>,
    },
}

impl Asked {
    /// The gates that are named; for a summary none means every one.
    pub(super) fn gates(&self) -> &[GateId] {
        match self {
            Self::Table { gates, .. } | Self::Summary { gates, .. } => gates,
        }
    }

    fn place(&self) -> Option<&str> {
        match self {
            Self::Table { place, .. } | Self::Summary { place, .. } => place.as_deref(),
        }
    }

    fn device(&self) -> Option<DeviceKind> {
        match self {
            Self::Table { .. } => None,
            Self::Summary { device, .. } => *device,
        }
    }

    /// Whether it shows a gate.
    pub(super) fn takes(&self, gate: &GateOrdering) -> bool {
        (self.gates().is_empty() || self.gates().contains(&gate.gate))
            && self.device().is_none_or(|device| device == gate.device)
            && self.place().is_none_or(|word| gate.place.contains(word))
    }

    /// What narrows it besides gates, in words.
    pub(super) fn narrowed(&self) -> String {
        let device = self.device().map(|device| format!(" on {device}"));
        let place = self.place().map(|word| format!(" in a place named {word:?}"));
        [device, place].into_iter().flatten().collect()
    }
}

/// Every table of a text, in order; those in code are text like any other. An error names its line.
pub(super) fn blocks(text: &str) -> Result<Vec<Block>, (usize, TableFault)> {
    let mut found = Vec::new();
    let mut open: Option<(Asked, usize, usize)> = None;
    let mut fence: Option<&str> = None;
    let mut at = 0;
    let mark = text.len() - text.trim_start_matches(BOM).len();
    for (number, line) in (1..).zip(text.split_inclusive('\n')) {
        let (begin, end) = (at, at + line.len());
        at = end;
        let line = if begin == 0 { &line[mark..] } else { line };
        let words = line.trim();
        let run = fence_of(words);
        if let Some(opened) = fence {
            // Only a fence of the same kind, at least as long and with nothing after it, ends the code.
            if run.is_some_and(|run| run == words && run.starts_with(opened)) {
                fence = None;
            }
            continue;
        }
        if run.is_some() {
            fence = run;
            continue;
        }
        if is_indented_code(line) {
            continue;
        }
        if words == CLOSE {
            let (asked, line, start) = open.take().ok_or((number, TableFault::NotOpened))?;
            found.push(Block { asked, line, inside: start..begin });
        } else if words.starts_with(OPEN) {
            if let Some((_, line, _)) = open {
                return Err((line, TableFault::NotClosed));
            }
            // A marker on a last line without an end of line has no table after it.
            open = Some((asked(words).map_err(|fault| (number, fault))?, number, end));
        } else if is_near_miss(words) {
            return Err((number, TableFault::Malformed { found: words.to_owned() }));
        }
    }
    match open {
        Some((_, line, _)) => Err((line, TableFault::NotClosed)),
        None => Ok(found),
    }
}

/// The run of backticks or tildes that a line of a fence begins with.
fn fence_of(words: &str) -> Option<&str> {
    let mark = words.chars().next().filter(|mark| matches!(mark, '`' | '~'))?;
    let run = &words[..words.len() - words.trim_start_matches(mark).len()];
    // Backticks after a run of backticks are code within a line.
    let inline = mark == '`' && words[run.len()..].contains(mark);
    (run.len() >= 3 && !inline).then_some(run)
}

/// Four columns make a line code, a tab as well.
fn is_indented_code(line: &str) -> bool {
    let indent = &line[..line.len() - line.trim_start_matches([' ', '\t']).len()];
    indent.len() >= 4 || indent.contains('\t')
}

/// A comment that is meant for the tool and would be passed over. Words in `code` are text.
fn is_near_miss(line: &str) -> bool {
    let squeezed: String = line.chars().filter(|c| !c.is_whitespace()).collect();
    let lower = squeezed.to_ascii_lowercase();
    ["<!--proofhouse", "<!--/proofhouse"]
        .into_iter()
        .any(|mark| lower.match_indices(mark).any(|(at, _)| !lower[..at].ends_with('`')))
}

fn asked(line: &str) -> Result<Asked, TableFault> {
    let malformed = || TableFault::Malformed { found: line.to_owned() };
    let inner = line.strip_prefix(OPEN).and_then(|rest| rest.strip_suffix("-->"));
    let mut words = inner.ok_or_else(malformed)?.split_whitespace();
    let kind = words.next().ok_or_else(malformed)?;
    let mut pairs: Vec<(&str, &str)> = Vec::new();
    for word in words {
        pairs.push(word.split_once('=').ok_or_else(malformed)?);
    }
    let accepted = match kind {
        "table" => "gate, place, columns",
        "summary" => "gates, device, place, columns",
        found => return Err(TableFault::UnknownTable { found: found.to_owned() }),
    };
    for (at, (key, _)) in pairs.iter().enumerate() {
        let known = accepted.split(", ").any(|known| known == *key);
        if !known || pairs[..at].iter().any(|(before, _)| before == key) {
            return Err(TableFault::BadKey { found: (*key).to_owned(), accepted });
        }
    }
    let value =
        |wanted: &str| pairs.iter().find(|(key, _)| *key == wanted).map(|(_, value)| *value);
    let list = |text: &str| text.split(',').map(str::to_owned).collect::<Vec<_>>();
    let columns = value("columns").map(list);
    let place = value("place").map(str::to_owned);
    if kind == "table" {
        let id = value("gate").ok_or(TableFault::NoGate)?;
        return Ok(Asked::Table { gates: vec![gate(id)?], place, columns });
    }
    let gates = value("gates").map(list).unwrap_or_default();
    let gates = gates.iter().map(|id| gate(id)).collect::<Result<_, _>>()?;
    let device = value("device").map(|word| {
        word.parse().map_err(|_| TableFault::BadValue {
            key: "device",
            found: word.to_owned(),
            accepted: "cpu, cuda".to_owned(),
        })
    });
    Ok(Asked::Summary { gates, device: device.transpose()?, place, columns })
}

fn gate(text: &str) -> Result<GateId, TableFault> {
    GateId::new(text).map_err(|error| TableFault::BadValue {
        key: "gate",
        found: text.to_owned(),
        accepted: error.accepted.to_owned(),
    })
}

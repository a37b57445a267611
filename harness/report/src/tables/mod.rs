//! Tables in Markdown files, filled from providers in order.
//!
//! A table stands between two lines, each alone on its line and outside of code:
//! ```text
//! <!-- proofhouse:table gate=rms_norm.baseline columns=shape,time,ratio -->
//! <!-- /proofhouse -->
//! ```
//! Everything between them belongs to the tool.

mod cells;
mod difference;
mod error;
mod marker;
mod summary;

use std::collections::BTreeSet;

use proofhouse_schema::ids::GateId;
use proofhouse_schema::ordering::GateOrdering;

pub use difference::difference;
pub use error::{TableError, TableFault};

use marker::{Asked, Block, blocks};

/// A filled document.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Filled {
    /// The whole text.
    pub text: String,
    /// How many tables it has; at least one.
    pub tables: usize,
}

/// Fills every table of a document. `declared` are the gates that the project knows.
///
/// # Errors
/// [`TableError`] for a document without a table, a marker that is not closed or not understood, a gate that nobody knows,
/// and a table for which there is no evidence.
pub fn fill(
    file: &str,
    text: &str,
    gates: &[GateOrdering],
    declared: &BTreeSet<GateId>,
) -> Result<Filled, TableError> {
    let at = |line: usize| {
        let file = file.to_owned();
        move |fault: TableFault| TableError { file, line, fault }
    };
    let blocks = blocks(text).map_err(|(line, fault)| at(line)(fault))?;
    if blocks.is_empty() {
        return Err(at(0)(TableFault::NoTable));
    }
    let tables = blocks.len();
    let mut filled = String::with_capacity(text.len());
    let mut done = 0;
    for Block { asked, line, inside } in blocks {
        let table = drawn(&asked, gates, declared).map_err(at(line))?;
        filled.push_str(&text[done..inside.start]);
        // Blank lines keep the table apart from the comments for every reader of Markdown.
        filled.push_str(&format!("\n{table}\n"));
        done = inside.end;
    }
    filled.push_str(&text[done..]);
    Ok(Filled { text: filled, tables })
}

fn drawn(
    asked: &Asked,
    gates: &[GateOrdering],
    declared: &BTreeSet<GateId>,
) -> Result<String, TableFault> {
    let known = |id: &GateId| {
        if declared.contains(id) || gates.iter().any(|gate| gate.gate == *id) {
            return Ok(());
        }
        Err(TableFault::UnknownGate { found: id.to_string(), known: alike(id, declared) })
    };
    asked.gates().iter().try_for_each(known)?;
    let taken: Vec<&GateOrdering> = gates.iter().filter(|gate| asked.takes(gate)).collect();
    // A gate that is named and not measured is not left out of a summary in silence.
    let missing = asked.gates().iter().find(|id| !taken.iter().any(|gate| gate.gate == **id));
    if let Some(missing) = missing {
        return Err(TableFault::NoEvidence { of: format!("gate {missing}{}", asked.narrowed()) });
    }
    if taken.is_empty() {
        return Err(TableFault::NoEvidence { of: format!("any gate{}", asked.narrowed()) });
    }
    match asked {
        Asked::Table { columns, .. } => cells::table(&taken, columns.as_deref()),
        Asked::Summary { columns, .. } => summary::table(&taken, columns.as_deref()),
    }
}

/// Declared gates of the same operator, or all of them.
fn alike(id: &GateId, declared: &BTreeSet<GateId>) -> String {
    let operator = |id: &GateId| id.as_str().split('.').next().map(str::to_owned);
    let same: Vec<&str> = declared
        .iter()
        .filter(|other| operator(other) == operator(id))
        .map(GateId::as_str)
        .collect();
    let all = || declared.iter().map(GateId::as_str).collect();
    let names: Vec<&str> = if same.is_empty() { all() } else { same };
    names.join(", ")
}

/// A column of a table: the word that asks for it, its head, and whether it holds numbers.
struct Column<C> {
    word: &'static str,
    head: &'static str,
    number: bool,
    column: C,
}

impl<C> Column<C> {
    const fn new(word: &'static str, head: &'static str, number: bool, column: C) -> Self {
        Self { word, head, number, column }
    }
}

/// The columns that words ask for.
fn chosen<'c, C>(all: &'c [Column<C>], words: &[String]) -> Result<Vec<&'c Column<C>>, TableFault> {
    let find = |word: &String| {
        let found = all.iter().find(|column| column.word == *word);
        found.ok_or_else(|| TableFault::BadValue {
            key: "columns",
            found: word.clone(),
            accepted: all.iter().map(|column| column.word).collect::<Vec<_>>().join(", "),
        })
    };
    let twice = words.iter().enumerate().find(|(at, word)| words[..*at].contains(word));
    if let Some((_, word)) = twice {
        return Err(TableFault::TwiceColumn { found: word.clone() });
    }
    words.iter().map(find).collect()
}

/// The two head lines of a table.
fn heads<C>(columns: &[&Column<C>]) -> String {
    let names: Vec<&str> = columns.iter().map(|column| column.head).collect();
    let rules: Vec<&str> =
        columns.iter().map(|column| if column.number { "--:" } else { "---" }).collect();
    format!("| {} |\n|{}|\n", names.join(" | "), rules.join("|"))
}

/// A line of a table.
fn line(cells: &[String]) -> String {
    format!("| {} |\n", cells.join(" | "))
}

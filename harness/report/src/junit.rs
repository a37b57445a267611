//! The report as JUnit XML: one suite per gate, one case per cell. What did not pass is never a pass there: a failed
//! cell is a failure, every other ending an error, and a cell that does not decide is skipped with its reason.

use std::io;

use proofhouse_schema::report::{CellRow, ReportModel};
use proofhouse_schema::verdict::Verdict;
use quick_xml::Writer;
use quick_xml::events::{BytesDecl, BytesEnd, BytesStart, BytesText, Event};

/// Renders the report.
///
/// # Errors
/// Never in practice: the writer is a buffer.
pub fn junit(model: &ReportModel) -> io::Result<Vec<u8>> {
    let mut out = Writer::new_with_indent(Vec::new(), b' ', 2);
    out.write_event(Event::Decl(BytesDecl::new("1.0", Some("UTF-8"), None)))?;
    let mut root = BytesStart::new("testsuites");
    root.push_attribute(("name", "proofhouse"));
    count(&mut root, model.cells.iter());
    out.write_event(Event::Start(root))?;
    let mut rest = model.cells.as_slice();
    while let Some(first) = rest.first() {
        let length = rest.iter().take_while(|c| c.gate == first.gate).count();
        let (suite, after) = rest.split_at(length);
        write_suite(&mut out, suite)?;
        rest = after;
    }
    out.write_event(Event::End(BytesEnd::new("testsuites")))?;
    let mut bytes = out.into_inner();
    bytes.push(b'\n');
    Ok(bytes)
}

#[derive(PartialEq, Eq, Clone, Copy)]
enum Outcome {
    Passed,
    Failure,
    Error,
    Skipped,
}

fn outcome(cell: &CellRow) -> Outcome {
    match cell.verdict {
        Verdict::Pass => Outcome::Passed,
        _ if !cell.required => Outcome::Skipped,
        Verdict::Fail => Outcome::Failure,
        _ => Outcome::Error,
    }
}

fn count<'a>(element: &mut BytesStart<'_>, cells: impl Iterator<Item = &'a CellRow> + Clone) {
    let of = |o: Outcome| cells.clone().filter(|c| outcome(c) == o).count().to_string();
    element.push_attribute(("tests", cells.clone().count().to_string().as_str()));
    element.push_attribute(("failures", of(Outcome::Failure).as_str()));
    element.push_attribute(("errors", of(Outcome::Error).as_str()));
    element.push_attribute(("skipped", of(Outcome::Skipped).as_str()));
}

fn write_suite(out: &mut Writer<Vec<u8>>, cells: &[CellRow]) -> io::Result<()> {
    let mut suite = BytesStart::new("testsuite");
    suite.push_attribute(("name", cells[0].gate.as_str()));
    count(&mut suite, cells.iter());
    out.write_event(Event::Start(suite))?;
    for cell in cells {
        write_case(out, cell)?;
    }
    out.write_event(Event::End(BytesEnd::new("testsuite")))
}

fn write_case(out: &mut Writer<Vec<u8>>, cell: &CellRow) -> io::Result<()> {
    let mut case = BytesStart::new("testcase");
    case.push_attribute(("name", clean(&format!("{} [{}]", cell.cell, cell.provider)).as_str()));
    case.push_attribute(("classname", cell.gate.as_str()));
    let element = match outcome(cell) {
        Outcome::Passed => return out.write_event(Event::Empty(case)),
        Outcome::Failure => "failure",
        Outcome::Error => "error",
        Outcome::Skipped => "skipped",
    };
    out.write_event(Event::Start(case))?;
    let mut inner = BytesStart::new(element);
    let first = cell.reasons.first().map_or("no reason recorded", |r| r.detail.as_str());
    let message = clean(&format!("{}: {first}", cell.verdict));
    inner.push_attribute(("message", message.as_str()));
    out.write_event(Event::Start(inner))?;
    let lines: Vec<String> =
        cell.reasons.iter().map(|r| format!("{}: {}", r.code, r.detail)).collect();
    let text = clean(&format!("{}\nevidence: {}", lines.join("\n"), cell.file));
    out.write_event(Event::Text(BytesText::new(&text)))?;
    out.write_event(Event::End(BytesEnd::new(element)))?;
    out.write_event(Event::End(BytesEnd::new("testcase")))
}

/// XML 1.0 has no place for most control characters, not even escaped.
fn clean(text: &str) -> String {
    text.chars()
        .map(|c| if c.is_control() && !matches!(c, '\n' | '\t') { '\u{fffd}' } else { c })
        .collect()
}

//! The report as JUnit XML: one suite per gate, one case per cell. What did not pass is never a pass there: a failed
//! cell is a failure, every other ending an error, and a cell that does not decide is skipped with its reason. Evidence
//! that is not whole is an error of a suite of its own.

use std::io;

use proofhouse_schema::report::{CellRow, ReportModel};
use proofhouse_schema::verdict::Verdict;
use quick_xml::Writer;
use quick_xml::events::{BytesDecl, BytesEnd, BytesStart, BytesText, Event};

use crate::remarks::Remarks;

/// Renders the report.
///
/// # Errors
/// Never in practice: the writer is a buffer.
pub fn junit(model: &ReportModel, remarks: &Remarks) -> io::Result<Vec<u8>> {
    let mut out = Writer::new_with_indent(Vec::new(), b' ', 2);
    out.write_event(Event::Decl(BytesDecl::new("1.0", Some("UTF-8"), None)))?;
    let mut root = BytesStart::new("testsuites");
    root.push_attribute(("name", "proofhouse"));
    Counts::of(model.cells.iter()).and_errors(remarks.gaps.len()).write(&mut root);
    out.write_event(Event::Start(root))?;
    write_gaps(&mut out, &remarks.gaps)?;
    let mut rest = model.cells.as_slice();
    while let Some(first) = rest.first() {
        let length = rest.iter().take_while(|c| c.gate == first.gate).count();
        let (suite, after) = rest.split_at(length);
        write_suite(&mut out, suite, remarks)?;
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

/// Cases by outcome.
#[derive(Default)]
struct Counts {
    tests: usize,
    failures: usize,
    errors: usize,
    skipped: usize,
}

impl Counts {
    fn of<'a>(cells: impl Iterator<Item = &'a CellRow>) -> Self {
        let mut counts = Self::default();
        for cell in cells {
            counts.tests += 1;
            match outcome(cell) {
                Outcome::Passed => {}
                Outcome::Failure => counts.failures += 1,
                Outcome::Error => counts.errors += 1,
                Outcome::Skipped => counts.skipped += 1,
            }
        }
        counts
    }

    fn and_errors(self, more: usize) -> Self {
        Self { tests: self.tests + more, errors: self.errors + more, ..self }
    }

    fn write(&self, element: &mut BytesStart<'_>) {
        element.push_attribute(("tests", self.tests.to_string().as_str()));
        element.push_attribute(("failures", self.failures.to_string().as_str()));
        element.push_attribute(("errors", self.errors.to_string().as_str()));
        element.push_attribute(("skipped", self.skipped.to_string().as_str()));
    }
}

/// One error for each reason why the evidence is not whole.
fn write_gaps(out: &mut Writer<Vec<u8>>, gaps: &[String]) -> io::Result<()> {
    if gaps.is_empty() {
        return Ok(());
    }
    let mut suite = BytesStart::new("testsuite");
    suite.push_attribute(("name", "evidence"));
    Counts::default().and_errors(gaps.len()).write(&mut suite);
    out.write_event(Event::Start(suite))?;
    for gap in gaps {
        let mut case = BytesStart::new("testcase");
        case.push_attribute(("name", "the evidence is whole"));
        case.push_attribute(("classname", "evidence"));
        out.write_event(Event::Start(case))?;
        let mut error = BytesStart::new("error");
        error.push_attribute(("message", clean(gap).as_str()));
        out.write_event(Event::Empty(error))?;
        out.write_event(Event::End(BytesEnd::new("testcase")))?;
    }
    out.write_event(Event::End(BytesEnd::new("testsuite")))
}

fn write_suite(out: &mut Writer<Vec<u8>>, cells: &[CellRow], remarks: &Remarks) -> io::Result<()> {
    let mut suite = BytesStart::new("testsuite");
    suite.push_attribute(("name", cells[0].gate.as_str()));
    Counts::of(cells.iter()).write(&mut suite);
    out.write_event(Event::Start(suite))?;
    for cell in cells {
        write_case(out, cell, remarks)?;
    }
    out.write_event(Event::End(BytesEnd::new("testsuite")))
}

fn write_case(out: &mut Writer<Vec<u8>>, cell: &CellRow, remarks: &Remarks) -> io::Result<()> {
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
    let mut lines: Vec<String> =
        cell.reasons.iter().map(|r| format!("{}: {}", r.code, r.detail)).collect();
    for tail in remarks.last_words(cell) {
        lines.push(format!("last words of {}:", tail.who));
        lines.extend(tail.lines.iter().map(|line| format!("    {line}")));
    }
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

//! Plots, tables and pages of providers in order say what the order says.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod model;
mod planted;

use std::collections::BTreeSet;

use planted::gate;
use proofhouse_report::{Remarks, TableFault, fill, html, sizes, standings};
use proofhouse_schema::ids::GateId;
use proofhouse_schema::ordering::GateOrdering;
use proofhouse_schema::verdict::Verdict;

const ROWS: [u64; 3] = [1, 128, 8192];

fn declared() -> BTreeSet<GateId> {
    ["rms_norm.cuda.baseline", "rms_norm.cuda.hot", "min_p.baseline"]
        .map(|id| id.parse().unwrap())
        .into()
}

fn filled(marker: &str, gates: &[GateOrdering]) -> Result<String, TableFault> {
    let text = format!("before\n{marker}\nold\n<!-- /proofhouse -->\nafter\n");
    let found = fill("a.md", &text, gates, &declared());
    found.map(|filled| filled.text).map_err(|error| error.fault)
}

const TABLE: &str = "<!-- proofhouse:table gate=rms_norm.cuda.baseline -->";
const SUMMARY: &str = "<!-- proofhouse:summary -->";

#[test]
fn plots_are_well_formed_named_and_have_every_provider() {
    let gate = gate(7, &ROWS);
    for svg in [sizes(&gate).unwrap().unwrap(), standings(&gate).unwrap().unwrap()] {
        let tree = roxmltree::Document::parse(&svg).unwrap();
        assert!(tree.root_element().attribute("aria-label").is_some());
        for name in ["cuda", "flashinfer", "torch", "NVIDIA H200", "rms_norm.cuda.baseline"] {
            let named =
                |node: roxmltree::Node<'_, '_>| node.text().is_some_and(|t| t.contains(name));
            assert!(tree.descendants().any(named), "{name}");
        }
        assert!(!svg.contains("NaN") && !svg.contains("inf\""), "{svg}");
        assert!(svg.contains("prefers-color-scheme: dark"));
    }
    assert!(sizes(&gate).unwrap().unwrap().contains("memory floor"));
}

#[test]
fn a_gate_in_which_nothing_varies_alone_has_no_times_against_size() {
    let mut single = gate(3, &[1]);
    single.cells.truncate(1);
    assert!(sizes(&single).unwrap().is_none());
    assert!(standings(&single).unwrap().is_some());
    single.cells.clear();
    single.overall = None;
    assert!(standings(&single).unwrap().is_none());
}

#[test]
fn the_page_shows_standings_times_and_turns() {
    let mut model = model::model(0, 7);
    model.cells.iter_mut().for_each(|cell| cell.reasons.clear());
    let remarks = Remarks { orderings: vec![gate(7, &ROWS)], ..Remarks::default() };
    let page = html(&model, &remarks).unwrap();
    let without = html(&model, &Remarks::default()).unwrap();
    assert!(page.contains("Who stands where") && !without.contains("Who stands where"));
    assert!(page.contains("cuda wins up to rows=1, quack from rows=8192 on, undecided at 1024"));
    assert!(page.contains("quack is faster than cuda (1.069x)"));
    assert!(page.contains("1 cell could not be ranked"));
    assert!(page.contains("class=\"square d0 best\""));
    assert_eq!(page.matches("memory floor").count(), 1, "one plot for the longest series");
}

#[test]
fn orders_of_hundreds_of_cells_add_little_to_a_page() {
    let model = model::model(0, 7);
    let rows: Vec<u64> = (0..20).map(|at| 1 << at).collect();
    // Ten gates of forty cells with seven providers.
    let orderings = vec![gate(7, &rows); 10];
    let page = html(&model, &Remarks { orderings, ..Remarks::default() }).unwrap();
    let more = page.len() - html(&model, &Remarks::default()).unwrap().len();
    assert!(more < 500_000, "{more} bytes");
}

#[test]
fn a_page_of_hundreds_of_timed_cells_stays_under_a_megabyte() {
    let mut model = model::model(0, 23);
    for cell in &mut model.cells {
        cell.verdict = Verdict::Pass;
        cell.reasons.clear();
    }
    assert!(model.cells.len() > 200);
    let rows: Vec<u64> = (0..10).map(|at| 1 << at).collect();
    let orderings = vec![gate(7, &rows); 10];
    let page = html(&model, &Remarks { orderings, ..Remarks::default() }).unwrap();
    assert!(page.len() < 1_000_000, "{} bytes", page.len());
    // What did not pass is drawn, however many cells there are.
    let drawn = page.matches("aria-label=\"samples of").count();
    model.cells.iter_mut().for_each(|cell| cell.verdict = Verdict::Inconclusive);
    let open = html(&model, &Remarks::default()).unwrap();
    assert_eq!((drawn, open.matches("aria-label=\"samples of").count()), (18, 207));
}

#[test]
fn a_table_has_a_row_for_each_cell_with_its_facts() {
    let text = filled(TABLE, &[gate(7, &ROWS)]).unwrap();
    assert!(text.starts_with("before\n") && text.ends_with("<!-- /proofhouse -->\nafter\n"));
    assert!(!text.contains("\nold\n"));
    assert!(text.contains(
        "cuda on NVIDIA H200, cold graph device 1 thread, includes allocation, margin 1 %"
    ));
    let row = text.lines().find(|line| line.starts_with("| rows=1 hidden=4096")).unwrap();
    // 1,903.1 ns against 2,203.15.
    assert!(
        row.contains("| 1.90 us | flashinfer 1.0, 2.20 us | 1.158x [1.152, 1.163] | win |"),
        "{row}"
    );
    let digest = &gate(7, &ROWS).cells[0].evidence;
    assert!(row.contains(&format!("`{}`", digest.short())) && row.contains("pass (qualified)"));
    assert_eq!(text.lines().filter(|line| line.starts_with("| rows=")).count(), 7);
}

#[test]
fn a_cell_that_is_not_ranked_stands_in_the_table_with_its_reason() {
    let text = filled(TABLE, &[gate(3, &ROWS)]).unwrap();
    let row = text.lines().find(|line| line.starts_with("| rows=3 hidden=64")).unwrap();
    assert!(row.contains("not ranked: the sample blob 0123 is absent \\| or empty"), "{row}");
    assert!(row.contains("! invalid"), "{row}");
    assert!(text.contains("triton took no part in 1 cell: it is not installed."));
}

#[test]
fn columns_come_as_they_are_asked_for() {
    let marker = "<!-- proofhouse:table gate=rms_norm.cuda.baseline columns=evidence,shape,noise,providers -->";
    let text = filled(marker, &[gate(3, &ROWS)]).unwrap();
    assert!(text.contains("| evidence | shape | noise floor | all, the first first |"), "{text}");
    assert!(
        text.contains("| 0.4 % | 1. cuda 1.90 us; 2. flashinfer 2.20 us; 3. inductor 2.90 us |")
    );
}

#[test]
fn a_summary_has_a_row_for_each_gate_and_counts_what_is_not_ranked() {
    let text = filled(SUMMARY, &[gate(7, &ROWS)]).unwrap();
    assert!(text.contains("cuda on NVIDIA H200, against flashinfer 1.0, inductor 1.0"), "{text}");
    let row = text.lines().find(|line| line.starts_with("| `rms_norm`")).unwrap();
    assert!(row.contains("| 6 of 7 | 1.038x [1.032, 1.043] |"), "{row}");
    assert!(row.contains("quack at rows=8192 hidden=4096 BF16"), "{row}");
    assert!(row.ends_with("| 6 pass, 1 invalid |"), "{row}");
    let mut failing = gate(7, &ROWS);
    failing.cells[0].verdict = Verdict::Fail;
    assert!(filled(SUMMARY, &[failing]).unwrap().contains("5 pass, 1 fail, 1 invalid"));
}

#[test]
fn a_summary_can_be_narrowed_and_is_never_empty() {
    let gates = [gate(3, &ROWS)];
    for marker in [
        "<!-- proofhouse:summary device=cuda place=H200 -->",
        "<!-- proofhouse:summary gates=rms_norm.cuda.baseline -->",
    ] {
        assert!(filled(marker, &gates).unwrap().contains("| `rms_norm` |"), "{marker}");
    }
    for marker in [
        "<!-- proofhouse:summary device=cpu -->",
        "<!-- proofhouse:summary place=A100 -->",
        "<!-- proofhouse:summary gates=rms_norm.cuda.baseline,rms_norm.cuda.hot -->",
        "<!-- proofhouse:table gate=rms_norm.cuda.hot -->",
    ] {
        let fault = filled(marker, &gates).unwrap_err();
        assert!(matches!(fault, TableFault::NoEvidence { .. }), "{marker}: {fault}");
    }
    assert!(matches!(filled(SUMMARY, &[]), Err(TableFault::NoEvidence { .. })));
}

#[test]
fn what_was_filled_is_filled_the_same_again() {
    let gates = [gate(5, &ROWS)];
    let text =
        format!("# A\r\n{TABLE}\r\n<!-- /proofhouse -->\r\n\n{SUMMARY}\n<!-- /proofhouse -->\n");
    let once = fill("a.md", &text, &gates, &declared()).unwrap();
    assert_eq!(once.tables, 2);
    assert!(once.text.starts_with("# A\r\n"));
    assert_eq!(fill("a.md", &once.text, &gates, &declared()).unwrap(), once);
}

type IsIt = fn(&TableFault) -> bool;

#[test]
fn bad_markers_are_refused_with_their_place() {
    let at = |text: &str| {
        let error = fill("a.md", text, &[gate(3, &ROWS)], &declared()).unwrap_err();
        (error.line, error.fault)
    };
    let line = |marker: &str| at(&format!("a\n\n{marker}\n<!-- /proofhouse -->\n"));
    assert!(matches!(at("nothing here\n"), (0, TableFault::NoTable)));
    assert!(matches!(at(""), (0, TableFault::NoTable)));
    assert!(matches!(at(&format!("a\n{TABLE}\nb\n")), (2, TableFault::NotClosed)));
    assert!(matches!(at(&format!("{TABLE}\n{TABLE}\n")), (1, TableFault::NotClosed)));
    assert!(matches!(at("a\n<!-- /proofhouse -->\n"), (2, TableFault::NotOpened)));
    let unknown = line("<!-- proofhouse:table gate=rms_norm.cuda.bseline -->");
    assert!(
        matches!(&unknown, (3, TableFault::UnknownGate { known, .. }) if known.contains("rms_norm.cuda.hot"))
    );
    let tests: [(&str, IsIt); 10] = [
        ("<!-- proofhouse:tabel gate=a.b -->", |f| matches!(f, TableFault::UnknownTable { .. })),
        ("<!-- proofhouse:table -->", |f| matches!(f, TableFault::NoGate)),
        ("<!-- proofhouse:table gate=rms_norm.cuda.baseline columns=time,time -->", |f| {
            matches!(f, TableFault::TwiceColumn { .. })
        }),
        ("<!-- proofhouse:table gate=a.b gate=a.b -->", |f| matches!(f, TableFault::BadKey { .. })),
        ("<!-- proofhouse:summary speed=1 -->", |f| matches!(f, TableFault::BadKey { .. })),
        ("<!-- proofhouse:summary device=tpu -->", |f| matches!(f, TableFault::BadValue { .. })),
        ("<!-- proofhouse:summary columns=x -->", |f| matches!(f, TableFault::BadValue { .. })),
        ("<!-- proofhouse:summary gates -->", |f| matches!(f, TableFault::Malformed { .. })),
        ("<!-- Proofhouse:summary -->", |f| matches!(f, TableFault::Malformed { .. })),
        ("text <!-- proofhouse:summary -->", |f| matches!(f, TableFault::Malformed { .. })),
    ];
    for (marker, is_it) in tests {
        let (found, fault) = line(marker);
        assert!(found == 3 && is_it(&fault), "{marker}: {found} {fault:?}");
    }
}

#[test]
fn markers_in_code_are_text() {
    let text = format!("```text\n{TABLE}\n```\nwrite `<!-- proofhouse:summary -->` so\n");
    let error = fill("a.md", &text, &[], &declared()).unwrap_err();
    assert_eq!(error.fault, TableFault::NoTable);
    assert_eq!(error.to_string().split(": ").next(), Some("a.md"));
}

#[test]
fn code_ends_where_markdown_ends_it() {
    let close = "<!-- /proofhouse -->";
    let only = |text: &str| fill("a.md", text, &[gate(3, &ROWS)], &declared());
    for code in [
        // A shorter fence, one of the other kind and one with a word after it are text within the code.
        format!("~~~~\n~~~\n{TABLE}\n{close}\n~~~~\n"),
        format!("````md\n```\n{TABLE}\n{close}\n```\n````\n"),
        format!("```\n```md\n{TABLE}\n{close}\n```\n"),
        format!("    {TABLE}\n    {close}\n"),
        format!("\t{TABLE}\n\t{close}\n"),
    ] {
        assert_eq!(only(&code).unwrap_err().fault, TableFault::NoTable, "{code}");
        let filled = only(&format!("{code}\n{TABLE}\n{close}\n")).unwrap();
        assert!(filled.tables == 1 && filled.text.starts_with(&code), "{}", filled.text);
    }
    // Backticks within a line open nothing.
    assert_eq!(only(&format!("```a```\n{TABLE}\n{close}\n")).unwrap().tables, 1);
}

#[test]
fn a_byte_order_mark_stays_and_hides_no_marker() {
    let text = format!("\u{feff}{TABLE}\n<!-- /proofhouse -->\n");
    let filled = fill("a.md", &text, &[gate(3, &ROWS)], &declared()).unwrap();
    assert!(filled.tables == 1 && filled.text.starts_with(&format!("\u{feff}{TABLE}\n\n")));
}

//! Every output says what the rows say, and nothing that the rows do not.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod model;

use std::collections::BTreeMap;

use model::model;
use proofhouse_report::{GateTally, Remarks, Tally, html, junit, markdown};
use proofhouse_schema::evidence::{Attempt, Ending};
use proofhouse_schema::probe::Probe;
use proofhouse_schema::report::ReportModel;
use proofhouse_schema::units::Wide;
use proofhouse_schema::verdict::Verdict;

#[test]
fn no_cell_is_never_green() {
    let empty = model(0, 0);
    assert_eq!(Tally::of(&empty.cells).worst(), Verdict::NotRun);
    let page = html(&empty, &Remarks::default()).unwrap();
    assert!(page.contains("this report proves nothing"), "{page}");
}

#[test]
fn the_worst_verdict_of_a_gate_wins() {
    for gate in GateTally::all(&model(8, 1)) {
        let expected = if gate.tally.total() > 3 { Verdict::Fail } else { Verdict::Pass };
        assert_eq!(gate.tally.worst(), expected, "{}", gate.gate);
    }
}

#[test]
fn the_page_names_the_evidence_of_every_cell() {
    let model = model(8, 7);
    let page = html(&model, &Remarks::default()).unwrap();
    for cell in &model.cells {
        assert!(page.contains(cell.evidence.as_str()), "{}", cell.cell);
    }
}

#[test]
fn the_page_escapes_what_it_is_given() {
    let mut model = model(8, 1);
    model.cells[0].cell = "<script>alert(1)</script>".to_owned();
    model.cells[0].reasons[..].iter_mut().for_each(|r| r.detail = "</style><b>".to_owned());
    let page = html(&model, &Remarks::default()).unwrap();
    assert!(!page.contains("<script>alert") && !page.contains("</style><b>"));
}

#[test]
fn the_page_asks_for_nothing_from_the_network() {
    let page = html(&model(8, 7), &Remarks::default()).unwrap();
    for needle in ["src=", "href=\"http", "url(", "@import"] {
        assert!(!page.contains(needle), "{needle}");
    }
}

#[test]
fn every_plot_is_well_formed_and_named() {
    let page = html(&model(8, 7), &Remarks::default()).unwrap();
    let mut rest = page.as_str();
    let mut plots = 0;
    while let Some(at) = rest.find("<svg ") {
        let end = rest[at..].find("</svg>").unwrap() + at + 6;
        let svg = &rest[at..end];
        let tree = roxmltree::Document::parse(svg).unwrap();
        assert!(tree.root_element().attribute("aria-label").is_some());
        assert!(!svg.contains("NaN"), "{svg}");
        plots += 1;
        rest = &rest[end..];
    }
    assert_eq!(plots, 3 + 3 + 2 * 3 * 3 * 7);
}

#[test]
fn a_thousand_timed_cells_are_at_most_eight_megabytes_in_few_elements() {
    let page = html(&model(0, 112), &Remarks::default()).unwrap();
    assert!(page.len() < 8_000_000, "{} bytes", page.len());
    let dots = page.matches("<circle ").count();
    assert!(dots < 1008 * 12, "{dots} circles: samples are drawn one by one again");
}

#[test]
fn junit_counts_what_did_not_pass_and_never_passes_it() {
    let model = model(8, 7);
    let xml = String::from_utf8(junit(&model, &Remarks::default()).unwrap()).unwrap();
    let tree = roxmltree::Document::parse(&xml).unwrap();
    let root = tree.root_element();
    let count = |name: &str| root.attribute(name).unwrap().parse::<usize>().unwrap();
    assert_eq!(count("tests"), model.cells.len());
    let passed =
        root.descendants().filter(|n| n.has_tag_name("testcase") && !n.has_children()).count();
    assert_eq!(passed, Tally::of(&model.cells).count(Verdict::Pass));
    assert_eq!(count("tests") - passed, count("failures") + count("errors") + count("skipped"));
    assert!(count("failures") > 0 && count("errors") > 0 && count("skipped") > 0);
}

#[test]
fn junit_survives_control_characters_and_markup() {
    let mut model = model(8, 1);
    model.cells.iter_mut().for_each(|c| c.cell = "\u{1b}[31m <&>\"'\u{0}".to_owned());
    let xml = String::from_utf8(junit(&model, &Remarks::default()).unwrap()).unwrap();
    roxmltree::Document::parse(&xml).unwrap();
}

#[test]
fn markdown_tables_keep_their_columns() {
    let mut model = model(8, 7);
    model.title = "a | b".to_owned();
    let text = markdown(&model, &Remarks::default());
    let rows: Vec<_> = text.lines().filter(|l| l.starts_with('|')).collect();
    assert!(rows.len() > 60);
    let columns = |line: &str| line.replace("\\|", "").matches('|').count();
    for pair in rows.windows(2) {
        let boundary = pair[1].starts_with("| operator");
        assert!(boundary || columns(pair[0]) == columns(pair[1]), "{pair:?}");
    }
    assert!(text.contains("a \\| b"));
}

#[test]
fn markdown_lists_at_most_fifty_and_says_how_many_more() {
    let text = markdown(&model(40, 0), &Remarks::default());
    assert!(text.contains("more\n"));
}

/// Remarks on a model: a process of every cell ended badly and had something to say, and the evidence has a gap.
fn remarks(model: &ReportModel) -> Remarks {
    let attempt = Attempt {
        provider: "cpu".parse().unwrap(),
        replicate: 0,
        argv: vec![],
        environment: BTreeMap::new(),
        started: Wide(0),
        ended: None,
        hello: None,
        ending: Some(Ending::Signal(11)),
        stderr: "first\n\u{1b}[31mno <kernel> *image*|\u{7}".to_owned(),
        peak_memory: Probe::Unavailable("a test".to_owned()),
        orphans: 0,
    };
    let attempts = model.cells.iter().map(|c| (c.evidence.clone(), vec![attempt.clone()]));
    Remarks {
        gaps: vec!["2 missing: a.json, <b>.json".to_owned()],
        attempts: attempts.collect(),
        ..Remarks::default()
    }
}

#[test]
fn every_output_says_that_the_evidence_is_not_whole() {
    let model = model(8, 1);
    let remarks = remarks(&model);
    let page = html(&model, &remarks).unwrap();
    let head = &page[page.find("<header").unwrap()..page.find("</header").unwrap()];
    assert!(head.contains("not whole") && head.contains("2 missing: a.json, &lt;b&gt;.json"));
    assert!(head.contains("proofhouse verify"), "{head}");
    let text = markdown(&model, &remarks);
    let line = text.lines().find(|line| line.contains("not whole")).unwrap();
    assert!(line.starts_with("> ") && line.contains("2 missing: a.json, \\<b\\>.json"), "{line}");
    let whole = |remarks: &Remarks| {
        let xml = String::from_utf8(junit(&model, remarks).unwrap()).unwrap();
        let tree = roxmltree::Document::parse(&xml).unwrap();
        let count =
            |name: &str| tree.root_element().attribute(name).unwrap().parse::<usize>().unwrap();
        let named = tree
            .descendants()
            .any(|n| n.attribute("message") == Some("2 missing: a.json, <b>.json"));
        (count("tests"), count("errors"), named)
    };
    let (tests, errors, _) = whole(&Remarks::default());
    assert_eq!(whole(&remarks), (tests + 1, errors + 1, true));
    assert!(!html(&model, &Remarks::default()).unwrap().contains("not whole"));
}

#[test]
fn the_last_words_of_a_process_stand_beside_what_did_not_pass() {
    let model = model(8, 1);
    let remarks = remarks(&model);
    let page = html(&model, &remarks).unwrap();
    assert!(page.contains("<pre>first\nno &lt;kernel&gt; *image*|\u{fffd}\n</pre>"));
    let not_passed = model.cells.iter().filter(|c| c.verdict != Verdict::Pass).count();
    assert_eq!(page.matches("last words of cpu, replicate 0").count(), not_passed);
    let text = markdown(&model, &remarks);
    assert!(text.contains("\n        first\n        no <kernel> *image*|\u{fffd}\n"), "{text}");
    let xml = String::from_utf8(junit(&model, &remarks).unwrap()).unwrap();
    roxmltree::Document::parse(&xml).unwrap();
    assert!(xml.contains("last words of cpu, replicate 0:"));
    for out in [page, text, xml] {
        assert!(!out.contains('\u{1b}') && !out.contains('\u{7}'));
    }
}

#[test]
fn markdown_says_that_no_required_cell_proves_nothing() {
    let mut model = model(8, 0);
    assert!(!markdown(&model, &Remarks::default()).contains("proves nothing"));
    model.cells.iter_mut().for_each(|cell| cell.required = false);
    assert!(markdown(&model, &Remarks::default()).contains("proves nothing"));
}

//! The page in a real browser: `cargo test -p proofhouse-report --features browser --test browser`.
//!
//! A copy of the page with a script of the test at either end is loaded in headless Chromium; the script writes what it
//! sees into the frame around it, which Chromium prints.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod model;
mod planted;

use std::ffi::OsString;
use std::fs;
use std::path::Path;
use std::process::Command;

use model::model;
use planted::gate;
use proofhouse_report::{Remarks, html};
use serde_json::Value;

const EARLY: &str = include_str!("browser/early.js");
const PROBE: &str = include_str!("browser/probe.js");
/// Any request is refused, and the refusal is written down.
const POLICY: &str = "<meta http-equiv=\"Content-Security-Policy\" \
    content=\"default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'\">";
/// Shows the page at a width and writes down what its probe says.
const FRAME: &str = "<!doctype html><style>:root { color-scheme: light dark } iframe { width: WIDTHpx; height: 900px; \
    border: 0 }</style><body><script>addEventListener('message', (event) => { const pre = document.createElement('pre'); \
    pre.id = 'probe'; pre.textContent = event.data; document.body.append(pre); });</script>\
    <iframe src='page.html'></iframe>";
const NAMES: [&str; 3] = ["chromium", "chromium-browser", "google-chrome"];

/// Runs Chromium on a page with further options, and gives what it prints.
fn chromium(folder: &Path, page: &Path, options: &[String]) -> String {
    let chosen = std::env::var_os("PROOFHOUSE_CHROMIUM").map(|name| vec![name]);
    let names = chosen.unwrap_or_else(|| NAMES.map(OsString::from).to_vec());
    for name in names {
        let mut command = Command::new(&name);
        command.args([
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-quic",
            "--disable-dev-shm-usage",
            "--no-first-run",
            "--disable-background-networking",
            "--disable-component-update",
            "--disable-sync",
            "--hide-scrollbars",
            "--virtual-time-budget=3000",
        ]);
        let profile = tempfile::tempdir_in(folder).unwrap();
        command.arg(format!("--user-data-dir={}", profile.path().display()));
        command.args(options).arg(format!("file://{}", page.display()));
        match command.output() {
            Ok(output) => {
                let told = String::from_utf8_lossy(&output.stderr);
                assert!(output.status.success(), "{name:?}: {told}");
                return String::from_utf8(output.stdout).unwrap();
            }
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            Err(error) => panic!("{name:?} does not start: {error}"),
        }
    }
    panic!("no chromium on this machine; the feature `browser` needs one");
}

/// What the probe sees in a page at a width in pixels.
fn look(page: &str, width: u32, dark: bool) -> Value {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("page.html");
    let probed = page
        .replacen("<head>", &format!("<head><script>{EARLY}</script>{POLICY}"), 1)
        .replacen("</body>", &format!("<script>{PROBE}</script></body>"), 1);
    fs::write(&path, probed).unwrap();
    // A window has a least width; a frame has not.
    let frame = folder.path().join("frame.html");
    fs::write(&frame, FRAME.replace("WIDTH", &width.to_string())).unwrap();
    let scheme = if dark { 0 } else { 1 };
    let options = [
        "--dump-dom".to_owned(),
        "--window-size=1400,1000".to_owned(),
        format!("--blink-settings=preferredColorScheme={scheme}"),
    ];
    let dom = chromium(folder.path(), &frame, &options);
    let (_, rest) = dom.rsplit_once("<pre id=\"probe\">").expect("the probe wrote nothing");
    let seen: Value = serde_json::from_str(rest.split_once("</pre>").unwrap().0).unwrap();
    assert_eq!((&seen["width"], &seen["dark"]), (&width.into(), &dark.into()));
    seen
}

fn page() -> String {
    let orderings = vec![gate(7, &[1, 8, 32, 128, 1024, 8192])];
    html(&model(8, 7), &Remarks { orderings, ..Remarks::default() }).unwrap()
}

fn assert_empty(seen: &Value, keys: &[&str]) {
    for key in keys {
        assert_eq!(
            seen[key].as_array().unwrap(),
            &Vec::<Value>::new(),
            "{key} at {}",
            seen["width"]
        );
    }
}

#[test]
fn the_page_fits_and_can_be_read_at_every_width_in_light_and_dark() {
    let page = page();
    for (width, dark) in [(360, false), (768, true), (1280, false), (1280, true)] {
        let seen = look(&page, width, dark);
        assert_empty(
            &seen,
            &["errors", "requests", "loaded", "wide", "pale", "crowded", "unreached"],
        );
        assert_eq!(seen["page"][0], seen["page"][1], "the page scrolls sideways at {width}");
        assert!(seen["texts"].as_u64().unwrap() > 1000, "{}", seen["texts"]);
        assert!(seen["stops"].as_u64().unwrap() > 60 && seen["folded"].as_u64().unwrap() > 60);
    }
}

#[test]
fn the_page_has_a_language_a_title_and_a_name_for_every_plot() {
    let seen = look(&page(), 1280, false);
    assert_eq!(
        (&seen["lang"], &seen["title"]),
        (&"en".into(), &"Proofhouse <quick> & \"true\"".into())
    );
    // Matrices, forests, two for each timed cell, and times against size.
    let plots = 3 + 3 + 2 * 3 * 3 * 7 + 1;
    assert_eq!((&seen["plots"], &seen["unnamed"]), (&plots.into(), &0.into()));
}

#[test]
fn the_filter_hides_what_does_not_match_and_counts() {
    let model = model(8, 7);
    let rows = model.cells.len();
    let matching = model.cells.iter().filter(|c| {
        let text = format!("{} {} {}", c.gate, c.cell, c.verdict).to_lowercase();
        ["silu_and_mul", "bf16", "fail"].iter().all(|word| text.contains(word))
    });
    let some = matching.count();
    assert!(some > 0 && some < rows);
    let filter = &look(&html(&model, &Remarks::default()).unwrap(), 1280, false)["filter"];
    assert_eq!(filter["rows"], rows);
    let expected =
        |visible: usize, said: String| serde_json::json!({"visible": visible, "said": said});
    assert_eq!(filter["none"], expected(0, format!("0 of {rows}")));
    assert_eq!(filter["some"], expected(some, format!("{some} of {rows}")));
    assert_eq!(filter["all"], expected(rows, format!("{rows}")));
}

#[test]
fn the_page_prints() {
    let folder = tempfile::tempdir().unwrap();
    let (path, pdf) = (folder.path().join("page.html"), folder.path().join("page.pdf"));
    fs::write(&path, page()).unwrap();
    chromium(folder.path(), &path, &[format!("--print-to-pdf={}", pdf.display())]);
    let bytes = fs::read(pdf).unwrap();
    assert!(bytes.starts_with(b"%PDF") && bytes.len() > 50_000, "{} bytes", bytes.len());
}

#[test]
fn an_empty_report_and_one_of_a_thousand_timed_cells_are_pages_too() {
    // Seven of eight cells did not pass: they are drawn, however many there are.
    for (timed, least) in [(0, 0), (112, 3 + 2 * 882)] {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("page.html");
        let page = html(&model(0, timed), &Remarks::default()).unwrap();
        fs::write(&path, &page).unwrap();
        let dom = chromium(folder.path(), &path, &["--dump-dom".to_owned()]);
        let plots = page.matches("<svg ").count();
        assert!(plots >= least, "{plots} plots");
        assert_eq!(dom.matches("<svg ").count(), plots);
        assert!(dom.contains("Machines and controls"));
    }
}

/// Without this, a probe that sees nothing would look like a page without faults.
#[test]
fn every_planted_fault_is_seen() {
    let plant = |what: &str| page().replacen("<main>", &format!("<main>{what}"), 1);
    let faults = [
        ("wide", "<div style='width: 3000px'>x</div>"),
        ("pale", "<p style='color: #bbb; background: #fff'>hardly there</p>"),
        (
            "pale",
            "<svg aria-label='x'><rect width='90' height='40' fill='#777'/><text y='20' fill='#888'>pale</text></svg>",
        ),
        ("crowded", "<svg aria-label='x'><text y='20'>one</text><text y='21'>two</text></svg>"),
        (
            "crowded",
            "<svg aria-label='x' width='50'><text y='20'>far longer than its plot</text></svg>",
        ),
        ("errors", "<script>nothing.there()</script>"),
        ("errors", "<script>console.error('told')</script>"),
        ("requests", "<img alt='x' src='https://example.invalid/x.png'>"),
        ("unreached", "<a href='#gates' style='display: none'>hidden</a>"),
        ("unreached", "<a href='#gates' style='outline: none !important'>without a ring</a>"),
    ];
    for (key, fault) in faults {
        let seen = look(&plant(fault), 768, false);
        assert!(!seen[key].as_array().unwrap().is_empty(), "{key} does not see {fault}");
    }
    let unnamed = look(&plant("<svg></svg>"), 768, false);
    assert_eq!(unnamed["unnamed"], 1);
}

//! Writes a report of a synthetic model, to look at: `cargo run -p proofhouse-report --example synthetic > page.html`.
//! With a number of timed cells per operator and dtype it says how long the rendering took.

#![allow(clippy::unwrap_used, clippy::print_stdout, clippy::print_stderr, reason = "an example")]

#[path = "../tests/model/mod.rs"]
mod model;

fn main() {
    let timed: usize = std::env::args().nth(1).and_then(|n| n.parse().ok()).unwrap_or(7);
    let model = model::model(timed * 4, timed);
    let started = std::time::Instant::now();
    let page = proofhouse_report::html(&model, &proofhouse_report::Remarks::default()).unwrap();
    let elapsed = started.elapsed();
    eprintln!("{} cells, {} bytes, {elapsed:?}", model.cells.len(), page.len());
    print!("{page}");
}

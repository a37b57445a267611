//! Writes the plots of a planted gate into a folder, to look at:
//! `cargo run -p proofhouse-report --example standings -- FOLDER`.

#![allow(clippy::unwrap_used, reason = "an example")]

#[path = "../tests/planted/mod.rs"]
mod planted;

fn main() {
    let folder = std::env::args().nth(1).unwrap_or_else(|| ".".to_owned());
    let gate = planted::gate(7, &[1, 8, 32, 128, 1024, 8192]);
    let folder = std::path::Path::new(&folder);
    let write = |name: &str, svg: Option<String>| std::fs::write(folder.join(name), svg.unwrap());
    write("time.svg", proofhouse_report::sizes(&gate).unwrap()).unwrap();
    write("standings.svg", proofhouse_report::standings(&gate).unwrap()).unwrap();
}

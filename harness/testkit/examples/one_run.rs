//! One run in a process of its own, for tests that kill or interrupt it.
//!
//! `one_run FOLDER DEFECT CELLS [child|scrubbed-child]`; it prints a line when a cell is finished and ends with the run's exit code.
#![allow(dead_code, reason = "the stage is shared by several test programs")]
#![allow(
    clippy::print_stdout,
    clippy::exit,
    clippy::unwrap_used,
    reason = "a program of the tests"
)]

#[path = "../tests/stage/mod.rs"]
mod stage;

use std::sync::mpsc::channel;

use proofhouse_runner::attempt::ReaperProgram;
use proofhouse_runner::ports::GateJudge;
use proofhouse_runner::{Stop, run};
use proofhouse_schema::event::Event;

/// The first argument of the run's reaper.
const REAP: &str = "--reap";

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    if arguments[1] == REAP {
        return proofhouse_runner::attempt::reap(std::io::stdin().lock());
    }
    let folder = std::path::Path::new(&arguments[1]);
    let mut options = stage::options(folder, &arguments[2]);
    options.gates = vec![stage::gate(arguments[3].parse().unwrap())];
    if let Some(leaves) = arguments.get(4) {
        stage::leave(&mut options, folder, leaves);
    }
    options.handle_signals = true;
    options.reaper = Some(ReaperProgram {
        program: std::env::current_exe().unwrap(),
        arguments: vec![REAP.to_owned()],
    });
    let (sender, receiver) = channel();
    let printer = std::thread::spawn(move || {
        for event in receiver {
            if let Event::CellFinished(cell) = event {
                println!("finished {} reused={}", cell.cell, cell.reused);
            }
        }
    });
    let mut evidence = stage::open(&folder.join("evidence"));
    let outcome = run(options, &mut evidence, &GateJudge, &Stop::new(), &sender).unwrap();
    drop(sender);
    printer.join().unwrap();
    std::process::exit(i32::from(outcome.exit.code()));
}

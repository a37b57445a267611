//! The proofhouse command.

#![cfg_attr(
    not(feature = "index"),
    allow(
        dead_code,
        unused_imports,
        reason = "what only the index and its report need stays where it is read"
    )
)]

mod arguments;
mod error;
mod project;
mod terminal;
mod verbs;

use std::process::ExitCode;

use clap::Parser as _;
use proofhouse_schema::exit::Exit;

use arguments::Arguments;
use terminal::{Paint, announce, explain};

fn main() -> ExitCode {
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) => {
            // Help and version are answers, not errors; a closed pipe changes nothing.
            let _ = error.print();
            let exit = if error.use_stderr() { Exit::Usage } else { Exit::Passed };
            return ExitCode::from(exit.code());
        }
    };
    let paint = Paint::stderr(arguments.common.color);
    let for_a_program = arguments.verb.for_a_program();
    let exit = verbs::dispatch(arguments).unwrap_or_else(|error| {
        if for_a_program {
            announce(&error);
        }
        explain(&error, paint);
        error.exit()
    });
    ExitCode::from(exit.code())
}

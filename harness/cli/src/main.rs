//! The proofhouse command.

mod arguments;
mod error;
mod project;
mod terminal;
mod verbs;

use std::process::ExitCode;

use clap::Parser as _;
use proofhouse_gate::declare::Style;
use proofhouse_schema::exit::Exit;

use arguments::Arguments;
use error::CliError;
use terminal::{Paint, tell};

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
    let exit = verbs::dispatch(arguments).unwrap_or_else(|error| {
        explain(&error, paint);
        error.exit()
    });
    ExitCode::from(exit.code())
}

/// Prints an error and its causes, once.
fn explain(error: &CliError, paint: Paint) {
    if let CliError::Declarations(errors) = error {
        let style = if paint.on() { Style::Colored } else { Style::Plain };
        tell(&errors.render(style));
        return;
    }
    explain_chain(error, paint);
}

/// Prints an error and its causes.
fn explain_chain(error: &dyn std::error::Error, paint: Paint) {
    tell(&format!("{} {error}", paint.bad("error:")));
    let mut cause = error.source();
    while let Some(error) = cause {
        tell(&format!("  {} {error}", paint.faint("because")));
        cause = error.source();
    }
}

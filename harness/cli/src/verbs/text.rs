//! Completions and the man page.

use clap::CommandFactory as _;
use clap_complete::Shell;
use proofhouse_schema::exit::Exit;

use crate::arguments::Arguments;
use crate::error::CliError;
use crate::terminal::print;

/// Prints a shell completion script.
pub fn completions(shell: Shell) -> Result<Exit, CliError> {
    let mut bytes = Vec::new();
    clap_complete::generate(shell, &mut Arguments::command(), "proofhouse", &mut bytes);
    write(&bytes)
}

/// Prints the man page.
pub fn man() -> Result<Exit, CliError> {
    let mut bytes = Vec::new();
    let stdout = |source| CliError::Write { path: "standard output".into(), source };
    clap_mangen::Man::new(Arguments::command()).render(&mut bytes).map_err(stdout)?;
    write(&bytes)
}

fn write(bytes: &[u8]) -> Result<Exit, CliError> {
    let stdout = |source| CliError::Write { path: "standard output".into(), source };
    print(&String::from_utf8_lossy(bytes)).map_err(stdout)?;
    Ok(Exit::Passed)
}

//! A program that is run to its end while an environment is made or looked at.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Stdio;

use tokio::process::Command;

use super::EnvironmentError;
use crate::options::RunOptions;

/// Runs programs within the run's limit, until it is stopped.
pub(super) struct Runner<'a> {
    pub(super) options: &'a RunOptions,
    pub(super) stop: &'a crate::Stop,
}

/// A program with its whole environment.
pub(super) struct Program<'a> {
    pub(super) path: &'a Path,
    pub(super) arguments: &'a [&'a str],
    pub(super) variables: BTreeMap<String, String>,
    /// The folder it runs in; none: the caller's.
    pub(super) folder: Option<&'a Path>,
    /// What it is run for, as errors name it.
    pub(super) step: &'a str,
}

impl Runner<'_> {
    /// Runs a program to its end and gives its standard output.
    pub(super) async fn output(&self, program: Program<'_>) -> Result<String, EnvironmentError> {
        let step = program.step;
        let failed = |detail: String| EnvironmentError::Program { step: step.to_owned(), detail };
        let mut command = Command::new(program.path);
        command
            .args(program.arguments)
            .env_clear()
            .envs(&program.variables)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0)
            .kill_on_drop(true);
        if let Some(folder) = program.folder {
            command.current_dir(folder);
        }
        let child =
            command.spawn().map_err(|e| failed(format!("{}: {e}", program.path.display())))?;
        let output = tokio::select! {
            output = child.wait_with_output() => output.map_err(|e| failed(e.to_string()))?,
            () = self.stop.wait() => return Err(EnvironmentError::Interrupted),
            () = tokio::time::sleep(self.options.limits.environment) => return Err(self.too_long(step)),
        };
        if output.status.success() {
            return Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned());
        }
        Err(failed(last_lines(&[output.stdout, output.stderr].concat())))
    }

    /// The error of a step that passed the limit.
    pub(super) fn too_long(&self, step: &str) -> EnvironmentError {
        let seconds = self.options.limits.environment.as_secs();
        EnvironmentError::Timeout { step: step.to_owned(), seconds }
    }
}

fn last_lines(log: &[u8]) -> String {
    let text = String::from_utf8_lossy(log);
    let lines: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty()).collect();
    lines[lines.len().saturating_sub(4)..].join("; ")
}

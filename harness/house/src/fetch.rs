//! Fetches the pinned package with npm, the registry's ordinary client.

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::pins::Pin;

/// Gets a package's tarball from somewhere.
pub trait Fetch {
    /// The source in words, for the list of what was tried.
    fn describe(&self, pin: &Pin) -> String;

    /// Puts the tarball in the folder `into` and returns its path; its digest is not checked here.
    fn fetch(&self, pin: &Pin, into: &Path) -> Result<PathBuf, FetchError>;
}

/// Why a fetch gave no tarball.
#[derive(Debug, thiserror::Error)]
pub enum FetchError {
    /// The client is not installed.
    #[error("{program} is not installed")]
    NoClient {
        /// The client's name.
        program: String,
    },
    /// The client cannot be started.
    #[error("{program} cannot be started: {source}")]
    NotStarted {
        /// The client's name.
        program: String,
        /// What the system said.
        source: io::Error,
    },
    /// The client ended with an error.
    #[error("{program} ended with {status}: {said}")]
    Failed {
        /// The client's name.
        program: String,
        /// Exit status in words.
        status: String,
        /// The last lines it wrote.
        said: String,
    },
    /// The client ended well but left no tarball.
    #[error("{program} left no .tgz file")]
    NoTarball {
        /// The client's name.
        program: String,
    },
}

/// `npm pack` of one exact version.
#[derive(Debug, Clone)]
pub struct Npm {
    /// The program to run.
    pub program: OsString,
}

impl Npm {
    fn name(&self) -> String {
        self.program.to_string_lossy().into_owned()
    }
}

impl Fetch for Npm {
    fn describe(&self, pin: &Pin) -> String {
        format!("npm pack {}@{}", pin.package, pin.version)
    }

    fn fetch(&self, pin: &Pin, into: &Path) -> Result<PathBuf, FetchError> {
        let program = self.name();
        let output = Command::new(&self.program)
            .args(["pack", "--silent", "--fetch-retries=1", "--fetch-timeout=60000"])
            .arg("--pack-destination")
            .arg(into)
            .arg(format!("{}@{}", pin.package, pin.version))
            .current_dir(into)
            .stdin(Stdio::null())
            .output()
            .map_err(|source| match source.kind() {
                io::ErrorKind::NotFound => FetchError::NoClient { program: program.clone() },
                _ => FetchError::NotStarted { program: program.clone(), source },
            })?;
        if !output.status.success() {
            return Err(FetchError::Failed {
                program,
                status: output.status.to_string(),
                said: last_lines(&output.stderr),
            });
        }
        tarball_in(into).ok_or(FetchError::NoTarball { program })
    }
}

fn tarball_in(folder: &Path) -> Option<PathBuf> {
    let entries = std::fs::read_dir(folder).ok()?;
    entries
        .filter_map(Result::ok)
        .map(|entry| entry.path())
        .find(|path| path.extension().is_some_and(|extension| extension == "tgz"))
}

fn last_lines(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    let lines: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty()).collect();
    if lines.is_empty() {
        return "it wrote nothing (is the network reachable?)".to_owned();
    }
    lines[lines.len().saturating_sub(3)..].join(" / ")
}

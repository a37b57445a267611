//! Environments of providers: made on first need, keyed by content, used again.

mod packages;
mod program;
mod venv;

use std::collections::BTreeMap;
use std::path::PathBuf;

use proofhouse_schema::ids::ProviderId;
use proofhouse_schema::provider::Environment;

use crate::options::RunOptions;
use crate::provider::{ProviderHome, find_program, package_folders, uses_python};

/// Why a provider has no environment. Its cells are not-run with this as the reason.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EnvironmentError {
    /// No Python.
    #[error("no python3 on PATH: install Python 3.9 or newer")]
    NoPython,
    /// The program of the command is not there.
    #[error("{program} is not there: build or install it")]
    NoProgram {
        /// The program.
        program: PathBuf,
    },
    /// The provider names no lock file.
    #[error("provider.toml asks for a venv and names no lock file")]
    NoLock,
    /// The lock file could not be read.
    #[error("the lock file {path} could not be read: {detail}")]
    LockFile {
        /// The path.
        path: PathBuf,
        /// The system's message.
        detail: String,
    },
    /// It is not made yet, and the run is offline.
    #[error(
        "its virtual environment is not made yet and the run is offline: run once without --offline"
    )]
    Offline,
    /// A program that makes it or looks at it failed.
    #[error("its environment is not usable: {step} failed: {detail}")]
    Program {
        /// The step.
        step: String,
        /// The last lines of its log.
        detail: String,
    },
    /// Packages that `provider.toml` names are not there, or are of another version.
    #[error(
        "Python {python}, which its worker gets, has not what provider.toml names: {}",
        misses.join("; ")
    )]
    Packages {
        /// Python's version.
        python: String,
        /// Each package in words: what was found, what is wanted.
        misses: Vec<String>,
    },
    /// A program took too long, or another run has been making the environment for too long.
    #[error("its environment is not usable: {step} took longer than {seconds} s")]
    Timeout {
        /// The step.
        step: String,
        /// The limit in seconds.
        seconds: u64,
    },
    /// The cache folder could not be used.
    #[error("the cache {path} could not be used: {detail}")]
    Cache {
        /// The path.
        path: PathBuf,
        /// The system's message.
        detail: String,
    },
    /// Folders that it takes packages from are not there.
    #[error("its packages are not here: {what}")]
    Folders {
        /// Which, and what to do.
        what: String,
    },
    /// The run was interrupted.
    #[error("the run was interrupted")]
    Interrupted,
}

/// The Python of a provider; none where it needs none.
pub(crate) type Python = Option<PathBuf>;

/// Environments that were asked for in this run, with what became of them.
#[derive(Debug, Default)]
pub(crate) struct Environments {
    known: BTreeMap<ProviderId, Result<Python, EnvironmentError>>,
}

impl Environments {
    /// Makes a provider's environment, or says why there is none; each only once a run. `progress` is told of steps
    /// that take a while.
    pub(crate) async fn ready(
        &mut self,
        home: &ProviderHome,
        options: &RunOptions,
        stop: &crate::Stop,
        progress: &dyn Fn(venv::Progress),
    ) -> Result<Python, EnvironmentError> {
        let id = &home.provider.id;
        if let Some(known) = self.known.get(id) {
            return known.clone();
        }
        let made = make(home, options, stop, progress).await;
        if made != Err(EnvironmentError::Interrupted) {
            self.known.insert(id.clone(), made.clone());
        }
        made
    }
}

pub(crate) use venv::Progress;

async fn make(
    home: &ProviderHome,
    options: &RunOptions,
    stop: &crate::Stop,
    progress: &dyn Fn(Progress),
) -> Result<Python, EnvironmentError> {
    let python = match &home.provider.environment {
        Environment::Venv => Some(venv::ready(home, options, stop, progress).await?),
        Environment::Host | Environment::Path(_) => Some(host_python(options)?),
        Environment::Binary if uses_python(&home.provider) => Some(host_python(options)?),
        Environment::Binary => None,
    };
    if let Environment::Path(folders) = &home.provider.environment {
        let what = |what| EnvironmentError::Folders { what };
        let folders = package_folders(home, options, folders).map_err(what)?;
        if let Some(missing) = folders.iter().find(|folder| !folder.is_dir()) {
            return Err(what(format!("{} is not there", missing.display())));
        }
    }
    // What a lock pins with hashes is what is there; everything else must be looked at.
    if let Some(python) =
        python.as_deref().filter(|_| home.provider.environment != Environment::Venv)
    {
        packages::check(home, python, &program::Runner { options, stop }).await?;
    }
    let program =
        crate::provider::launch(home, options, python.as_deref(), &Default::default()).program;
    if find_program(&program, options).is_none() {
        return Err(EnvironmentError::NoProgram { program });
    }
    Ok(python)
}

fn host_python(options: &RunOptions) -> Result<PathBuf, EnvironmentError> {
    find_program("python3".as_ref(), options).ok_or(EnvironmentError::NoPython)
}

//! Virtual environments from a lock with hashes, by uv where it is there, else by venv and pip.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use proofhouse_schema::canonical::Digest;
use rustix::fs::{FlockOperation, flock};

use super::program::{Program, Runner};
use super::{EnvironmentError, host_python};
use crate::options::RunOptions;
use crate::provider::{ProviderHome, find_program};

/// Written last: an environment without it was left half made.
const STAMP: &str = "proofhouse-complete";
/// Variables, by the beginning of their names, that a maker gets: where registries are and how they are reached.
const MAKER_VARIABLES: [&str; 16] = [
    "PATH",
    "HOME",
    "TMPDIR",
    "PIP_",
    "UV_",
    "XDG_CACHE_HOME",
    "SSL_CERT_",
    "REQUESTS_CA_BUNDLE",
    "CURL_CA_BUNDLE",
    "http_proxy",
    "https_proxy",
    "no_proxy",
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "NO_PROXY",
    "PYENV_",
];

/// A step that takes a while.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Progress {
    /// It began.
    Started(String),
    /// It ended.
    Finished { step: String, outcome: String, elapsed: Duration },
}

/// The Python of the provider's virtual environment.
pub(super) async fn ready(
    home: &ProviderHome,
    options: &RunOptions,
    stop: &crate::Stop,
    progress: &dyn Fn(Progress),
) -> Result<PathBuf, EnvironmentError> {
    let python = host_python(options)?;
    let lock = home.folder.join(home.provider.lock.as_ref().ok_or(EnvironmentError::NoLock)?);
    let locked = fs::read(&lock).map_err(|error| EnvironmentError::LockFile {
        path: lock.clone(),
        detail: error.to_string(),
    })?;
    let maker = Maker { runner: Runner { options, stop } };
    let version = maker.output(&python, &["-c", VERSION], "asking Python for its version").await?;
    let key = Digest::of(&[&locked[..], version.as_bytes()].concat());
    let venvs = options.cache.join("venvs");
    let folder = venvs.join(&key.as_str()[..32]);
    let inside = folder.join("bin/python");
    if folder.join(STAMP).is_file() && inside.exists() {
        return Ok(inside);
    }
    if options.offline {
        return Err(EnvironmentError::Offline);
    }
    let step = format!("make the virtual environment of {}", home.provider.id);
    progress(Progress::Started(step.clone()));
    let begun = Instant::now();
    let made = maker.make(&python, &lock, &venvs, &folder).await;
    let outcome = made.as_ref().map_or_else(ToString::to_string, |()| "made".to_owned());
    progress(Progress::Finished { step, outcome, elapsed: begun.elapsed() });
    made.map(|()| inside)
}

const VERSION: &str =
    "import sys, platform; print(sys.version, platform.machine(), sys.implementation.cache_tag)";

struct Maker<'a> {
    runner: Runner<'a>,
}

impl Maker<'_> {
    async fn make(
        &self,
        python: &Path,
        lock: &Path,
        venvs: &Path,
        folder: &Path,
    ) -> Result<(), EnvironmentError> {
        let cache = |path: &Path, error: std::io::Error| EnvironmentError::Cache {
            path: path.to_owned(),
            detail: error.to_string(),
        };
        fs::create_dir_all(venvs).map_err(|e| cache(venvs, e))?;
        let _lock = self.alone(&folder.with_extension("lock")).await?;
        if folder.join(STAMP).is_file() {
            return Ok(());
        }
        if folder.exists() {
            fs::remove_dir_all(folder).map_err(|e| cache(folder, e))?;
        }
        let text = |path: &Path| path.to_string_lossy().into_owned();
        let (target, lock) = (text(folder), text(lock));
        let inside = text(&folder.join("bin/python"));
        if let Some(uv) = find_program("uv".as_ref(), self.runner.options) {
            self.output(&uv, &["venv", "--python", &text(python), &target], "uv venv").await?;
            let install = ["pip", "install", "--python", &inside, "--require-hashes", "-r", &lock];
            self.output(&uv, &install, "uv pip install").await?;
        } else {
            self.output(python, &["-m", "venv", &target], "python -m venv").await?;
            let install = [
                "-m",
                "pip",
                "install",
                "--no-input",
                "--disable-pip-version-check",
                "--no-deps",
                "--require-hashes",
                "-r",
                &lock,
            ];
            self.output(folder.join("bin/python").as_path(), &install, "pip install").await?;
        }
        fs::write(folder.join(STAMP), b"").map_err(|e| cache(folder, e))
    }

    /// Holds the lock file, waiting for another maker within the limit.
    async fn alone(&self, path: &Path) -> Result<File, EnvironmentError> {
        let cache = |error: std::io::Error| EnvironmentError::Cache {
            path: path.to_owned(),
            detail: error.to_string(),
        };
        let file = File::create(path).map_err(cache)?;
        let begun = Instant::now();
        loop {
            match flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => return Ok(file),
                Err(rustix::io::Errno::WOULDBLOCK) => {}
                Err(error) => return Err(cache(error.into())),
            }
            if begun.elapsed() > self.runner.options.limits.environment {
                return Err(self.runner.too_long("waiting for another run that makes it"));
            }
            tokio::select! {
                () = self.runner.stop.wait() => return Err(EnvironmentError::Interrupted),
                () = tokio::time::sleep(Duration::from_millis(100)) => {}
            }
        }
    }

    async fn output(
        &self,
        path: &Path,
        arguments: &[&str],
        step: &str,
    ) -> Result<String, EnvironmentError> {
        let allowed = |name: &str| MAKER_VARIABLES.iter().any(|prefix| name.starts_with(prefix));
        let given = self.runner.options.environment.iter().filter(|(name, _)| allowed(name));
        let variables = given.map(|(name, value)| (name.clone(), value.clone())).collect();
        self.runner.output(Program { path, arguments, variables, folder: None, step }).await
    }
}

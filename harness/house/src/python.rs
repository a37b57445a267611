//! The tests of the Python providers, in an environment of their own.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use sha2::{Digest, Sha256};

use crate::layout::Layout;

/// Folders of tests and what they need; found in the repository, not listed here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PythonTests {
    /// Folders that hold a `test_*.py`, sorted.
    pub folders: Vec<PathBuf>,
    /// The locks of all providers, sorted.
    pub locks: Vec<PathBuf>,
}

impl PythonTests {
    /// Looks below `baselines/`; none where there is no test.
    pub fn find(baselines: &Path) -> Option<PythonTests> {
        let (mut folders, mut locks) = (Vec::new(), Vec::new());
        let mut pending = vec![baselines.to_owned()];
        while let Some(folder) = pending.pop() {
            for entry in fs::read_dir(&folder).ok()?.filter_map(Result::ok) {
                let path = entry.path();
                let name = entry.file_name().to_string_lossy().into_owned();
                if path.is_dir() && !name.starts_with(['.', '_']) {
                    pending.push(path);
                } else if name == "requirements.lock" {
                    locks.push(path);
                } else if name.starts_with("test_") && name.ends_with(".py") {
                    folders.push(folder.clone());
                }
            }
        }
        folders.sort();
        folders.dedup();
        locks.sort();
        (!folders.is_empty()).then_some(PythonTests { folders, locks })
    }

    /// The interpreter of an environment that holds every lock's packages; it is made on first need and kept.
    ///
    /// The error says in words why there is none.
    pub fn interpreter(&self, layout: &Layout) -> Result<PathBuf, String> {
        let version = run(Command::new("python3").arg("--version"))
            .map_err(|why| format!("python3: {why}"))?;
        let home =
            layout.target.join("house").join(format!("python-{}", self.key(&version.stdout)?));
        let python = home.join("bin").join("python");
        let finished = home.join("finished");
        if finished.is_file() {
            return Ok(python);
        }
        // What an interrupted call left is not trusted.
        let _ = fs::remove_dir_all(&home);
        run(Command::new("python3").args(["-m", "venv"]).arg(&home))?;
        for lock in &self.locks {
            let mut pip = Command::new(&python);
            pip.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check"])
                .args(["--require-hashes", "--only-binary", ":all:", "--requirement"])
                .arg(lock);
            run(&mut pip).map_err(|why| format!("{}: {why}", lock.display()))?;
        }
        fs::write(&finished, "").map_err(|error| format!("{}: {error}", finished.display()))?;
        Ok(python)
    }

    /// One command per folder.
    pub fn commands(&self, python: &Path, layout: &Layout) -> Vec<Command> {
        let timer = if cfg!(target_os = "macos") {
            "libproofhouse_timer.dylib"
        } else {
            "libproofhouse_timer.so"
        };
        let timer = layout.binaries.with_file_name("debug").join(timer);
        let command = |folder: &PathBuf| {
            let mut command = Command::new(python);
            command
                .args(["-B", "-m", "unittest", "discover", "--pattern", "test_*.py"])
                .arg("--start-directory")
                .arg(folder)
                .arg("--top-level-directory")
                .arg(folder)
                .current_dir(&layout.root);
            if timer.is_file() {
                command.env("PROOFHOUSE_TIMER", &timer);
            }
            command
        };
        self.folders.iter().map(command).collect()
    }

    fn key(&self, version: &[u8]) -> Result<String, String> {
        let mut digest = Sha256::new();
        digest.update(version);
        for lock in &self.locks {
            let bytes = fs::read(lock).map_err(|error| format!("{}: {error}", lock.display()))?;
            digest.update(Sha256::digest(bytes));
        }
        Ok(hex::encode(&digest.finalize()[..6]))
    }
}

/// Runs a program to its end; the error says in words how it failed.
pub fn run(command: &mut Command) -> Result<Output, String> {
    let program = command.get_program().to_string_lossy().into_owned();
    let output = command
        .stdin(Stdio::null())
        .output()
        .map_err(|error| format!("{program} cannot be started: {error}"))?;
    if output.status.success() {
        return Ok(output);
    }
    let said = String::from_utf8_lossy(&output.stderr);
    let last = said.lines().rfind(|line| !line.trim().is_empty()).unwrap_or("it wrote nothing");
    Err(format!("{program} ended with {}: {last}", output.status))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Folder;

    fn layout(folder: &Folder) -> Layout {
        Layout {
            root: folder.path("."),
            target: folder.path("target"),
            binaries: folder.path("target/release"),
            cache: None,
        }
    }

    #[test]
    fn test_folders_and_locks_are_found_wherever_they_are() {
        let folder = Folder::new();
        let baselines = folder.path("baselines");
        for file in
            ["numpy/requirements.lock", "tests/test_a.py", "tests/test_b.py", "torch/worker.py"]
        {
            fs::create_dir_all(baselines.join(file).parent().unwrap()).unwrap();
            fs::write(baselines.join(file), "").unwrap();
        }
        let found = PythonTests::find(&baselines).unwrap();
        assert_eq!(found.folders, [baselines.join("tests")]);
        assert_eq!(found.locks, [baselines.join("numpy/requirements.lock")]);
        assert_eq!(found.commands(Path::new("python"), &layout(&folder)).len(), 1);
    }

    #[test]
    fn no_test_file_is_no_test_run() {
        let folder = Folder::new();
        assert_eq!(PythonTests::find(&folder.path("baselines")), None);
        fs::create_dir_all(folder.path("baselines/numpy")).unwrap();
        fs::write(folder.path("baselines/numpy/worker.py"), "").unwrap();
        assert_eq!(PythonTests::find(&folder.path("baselines")), None);
    }

    #[test]
    fn another_lock_is_another_environment() {
        let folder = Folder::new();
        let lock = folder.path("requirements.lock");
        let tests = PythonTests { folders: Vec::new(), locks: vec![lock.clone()] };
        fs::write(&lock, "a==1").unwrap();
        let before = tests.key(b"Python 3.11.7").unwrap();
        assert_ne!(tests.key(b"Python 3.12.0").unwrap(), before);
        fs::write(&lock, "a==2").unwrap();
        assert_ne!(tests.key(b"Python 3.11.7").unwrap(), before);
        fs::remove_file(&lock).unwrap();
        assert!(tests.key(b"Python 3.11.7").unwrap_err().contains("requirements.lock"));
    }
}

//! Builds and tests the workspace through cargo, with the library in reach.

use std::ffi::OsString;
use std::fs;
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use crate::error::HouseError;
use crate::layout::Layout;
use crate::python::PythonTests;

/// The packages whose binaries and shared libraries make up an installation.
const PACKAGES: &[&str] = &[
    "proofhouse",
    "proofhouse-worker-oracle",
    "proofhouse-worker-cpu",
    "proofhouse-testkit",
    // Its shared library is the timer of the Python providers.
    "proofhouse-timer",
];

/// The packages of workers on an NVIDIA GPU, built where there is one, and for a bundle.
const CUDA_PACKAGES: &[&str] = &["proofhouse-worker-cuda", "proofhouse-timer-cuda"];

/// What NVIDIA's driver puts on a machine.
const NVIDIA_DRIVER: &str = "/dev/nvidiactl";

/// Which devices binaries are built for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Devices {
    /// The host, and a GPU where there is one.
    Found,
    /// Every kind.
    All,
}

/// Programs that are Chromium, by the names that systems give it.
const BROWSERS: &[&str] = &["chromium", "chromium-browser", "google-chrome"];

/// How DuckDB gets into the binaries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Duckdb {
    /// The prebuilt library is linked.
    Prebuilt,
    /// The `duckdb-from-source` feature compiles it.
    FromSource,
}

/// A cargo that builds this workspace.
pub struct Cargo<'a> {
    /// Folders.
    pub layout: &'a Layout,
    /// The cargo program.
    pub program: OsString,
    /// How DuckDB gets in.
    pub duckdb: Duckdb,
}

impl Cargo<'_> {
    /// Builds the release binaries; cargo's own progress and messages go to standard error.
    pub fn build_release(&self, devices: Devices) -> Result<(), HouseError> {
        let mut command = self.command(&["build", "--release"]);
        let cuda = devices == Devices::All || Path::new(NVIDIA_DRIVER).exists();
        let more: &[&str] = if cuda { CUDA_PACKAGES } else { &[] };
        for package in PACKAGES.iter().chain(more) {
            command.args(["--package", package]);
        }
        self.with_features(&mut command);
        match status_of(&mut command)? {
            status if status.success() => Ok(()),
            status => Err(HouseError::BuildFailed { status: status.to_string() }),
        }
    }

    /// Builds the command without the index into the folder `bundle` beside the binaries, and puts the whole one back.
    pub fn build_bundled_command(&self) -> Result<(), HouseError> {
        let mut lean = self.command(&["build", "--release", "--package", "proofhouse"]);
        lean.arg("--no-default-features");
        let build = |command: &mut Command| match status_of(command)? {
            status if status.success() => Ok(()),
            status => Err(HouseError::BuildFailed { status: status.to_string() }),
        };
        build(&mut lean)?;
        let built = self.layout.binaries.join("proofhouse");
        let folder = self.layout.binaries.join("bundle");
        let at = |source| HouseError::Unwritable { path: folder.clone(), source };
        fs::create_dir_all(&folder).map_err(at)?;
        fs::copy(&built, folder.join("proofhouse")).map_err(at)?;
        let mut whole = self.command(&["build", "--release", "--package", "proofhouse"]);
        self.with_features(&mut whole);
        build(&mut whole)
    }

    /// Runs every test, or those that `arguments` (given to the test runner) select.
    pub fn test(&self, arguments: &[OsString]) -> Result<Vec<Step>, HouseError> {
        let mut steps = vec![self.step("build", &mut self.workspace(&["build"], &[]))?];
        if !all_passed(&steps) {
            return Ok(steps);
        }
        let nextest = self.has_nextest();
        let mut rust = if nextest {
            self.workspace(&["nextest", "run"], &["--no-fail-fast"])
        } else {
            self.workspace(&["test"], &["--all-targets", "--no-fail-fast"])
        };
        rust.args(arguments);
        match crate::nvrtc::folder(self.layout) {
            Ok(folder) => {
                rust.env(crate::nvrtc::VARIABLE, folder);
            }
            // The tests that need it say what to do.
            Err(why) => {
                crate::say(&format!("house: no NVRTC for the tests of the CUDA kernels: {why}"))
            }
        }
        let name = if nextest { "Rust tests (nextest)" } else { "Rust tests (cargo test)" };
        steps.push(self.step(name, &mut rust)?);
        if arguments.is_empty() {
            steps.push(self.step(
                "examples in the documentation",
                &mut self.workspace(&["test"], &["--doc"]),
            )?);
            steps.extend(self.python()?);
            steps.push(self.browser()?);
        }
        Ok(steps)
    }

    fn workspace(&self, verb: &[&str], options: &[&str]) -> Command {
        let mut command = self.command(verb);
        command.arg("--workspace").args(options);
        self.with_features(&mut command);
        command
    }

    fn with_features(&self, command: &mut Command) {
        if self.duckdb == Duckdb::FromSource {
            command.args(["--features", "proofhouse-store/duckdb-from-source"]);
        }
    }

    /// A cargo command in the repository that links the library of the target folder in use.
    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(&self.program);
        command
            .args(arguments)
            .current_dir(&self.layout.root)
            .env("DUCKDB_LIB_DIR", self.layout.library_folder())
            .env("CARGO_TARGET_DIR", &self.layout.target);
        command
    }

    fn has_nextest(&self) -> bool {
        let mut command = self.command(&["nextest", "--version"]);
        command.stdout(Stdio::null()).stderr(Stdio::null());
        command.status().is_ok_and(|status| status.success())
    }

    fn step(&self, name: &str, command: &mut Command) -> Result<Step, HouseError> {
        let begun = Instant::now();
        let status = status_of(command)?;
        let ended =
            if status.success() { Ended::Passed } else { Ended::Failed(status.to_string()) };
        Ok(Step { name: name.to_owned(), ended, took: begun.elapsed() })
    }

    /// The test of the report in a browser, where there is one.
    fn browser(&self) -> Result<Step, HouseError> {
        let name = "browser test of the report";
        let chosen = std::env::var_os("PROOFHOUSE_CHROMIUM").map(|program| vec![program]);
        let programs = chosen.unwrap_or_else(|| BROWSERS.iter().map(OsString::from).collect());
        let Some(browser) = programs.into_iter().find(starts) else {
            let ended = Ended::Skipped("no chromium".to_owned());
            return Ok(Step { name: name.to_owned(), ended, took: Duration::ZERO });
        };
        let mut command = self.command(&["test", "--package", "proofhouse-report"]);
        command.args(["--features", "browser", "--test", "browser"]);
        self.step(name, command.env("PROOFHOUSE_CHROMIUM", browser))
    }

    fn python(&self) -> Result<Vec<Step>, HouseError> {
        let skipped = |why: String| {
            let name = "Python tests".to_owned();
            Ok(vec![Step { name, ended: Ended::Skipped(why), took: Duration::ZERO }])
        };
        let Some(tests) = PythonTests::find(&self.layout.root.join("baselines")) else {
            return skipped("baselines/ holds no test_*.py".to_owned());
        };
        let python = match tests.interpreter(self.layout) {
            Ok(python) => python,
            Err(why) => return skipped(why),
        };
        let commands = tests.commands(&python, self.layout).into_iter().zip(&tests.folders);
        commands
            .map(|(mut command, folder)| {
                let folder = folder.strip_prefix(&self.layout.root).unwrap_or(folder);
                self.step(&format!("Python tests in {}", folder.display()), &mut command)
            })
            .collect()
    }
}

/// One step of a test run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    /// What ran.
    pub name: String,
    /// How it ended.
    pub ended: Ended,
    /// How long it took.
    pub took: Duration,
}

/// How a step ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ended {
    /// Exit status 0.
    Passed,
    /// Any other status, in words.
    Failed(String),
    /// Not run, and why; never counted as passed.
    Skipped(String),
}

/// Whether a test run as a whole passed: nothing failed and something ran.
pub fn all_passed(steps: &[Step]) -> bool {
    let failed = steps.iter().any(|step| matches!(step.ended, Ended::Failed(_)));
    let ran = steps.iter().any(|step| step.ended == Ended::Passed);
    ran && !failed
}

/// One line for each step of a test run.
pub fn summary(steps: &[Step]) -> String {
    let line = |step: &Step| match &step.ended {
        Ended::Passed => format!("  passed   {} ({:.1} s)", step.name, step.took.as_secs_f64()),
        Ended::Failed(status) => format!("  FAILED   {} ({status})", step.name),
        Ended::Skipped(why) => format!("  not-run  {} ({why})", step.name),
    };
    steps.iter().map(line).collect::<Vec<_>>().join("\n")
}

/// Whether a program is there and says its version.
fn starts(program: &OsString) -> bool {
    let mut command = Command::new(program);
    command.arg("--version").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

fn status_of(command: &mut Command) -> Result<ExitStatus, HouseError> {
    command.status().map_err(|source| HouseError::NotStarted {
        program: command.get_program().to_string_lossy().into_owned(),
        source,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn step(ended: Ended) -> Step {
        Step { name: "a step".to_owned(), ended, took: Duration::ZERO }
    }

    #[test]
    fn a_run_in_which_nothing_ran_does_not_pass() {
        assert!(!all_passed(&[]));
        assert!(!all_passed(&[step(Ended::Skipped("no python3".to_owned()))]));
    }

    #[test]
    fn one_failed_step_fails_the_run_and_is_named() {
        let steps = [step(Ended::Passed), step(Ended::Failed("exit status: 101".to_owned()))];
        assert!(!all_passed(&steps));
        assert!(summary(&steps).contains("FAILED   a step (exit status: 101)"));
        assert!(all_passed(&steps[..1]));
    }

    #[test]
    fn what_did_not_run_is_told_with_its_reason() {
        let told = summary(&[step(Ended::Skipped("no chromium".to_owned()))]);
        assert_eq!(told, "  not-run  a step (no chromium)");
        assert!(!starts(&OsString::from("/no/such/browser")));
    }
}

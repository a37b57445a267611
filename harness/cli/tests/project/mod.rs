//! A small project in a folder of its own, and the real command in it.

#![allow(dead_code, reason = "each test file uses its part")]

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Output, Stdio};
use std::sync::Mutex;

/// The command under test.
pub const PROOFHOUSE: &str = env!("CARGO_BIN_EXE_proofhouse");

/// Correctness of `cpu` in four cells.
pub const GATE: &str = r#"about = "rms_norm agrees with the oracle"
kind = "correctness"
operator = "rms_norm"
level = "required"
candidates = ["cpu"]

[[cells]]
dims = { rows = [1, 3], hidden = [7, 64] }
dtypes = ["F32"]
"#;

/// A project with the repository's catalog and profiles, the providers `oracle` and `cpu`, and [`GATE`].
pub struct Project {
    folder: tempfile::TempDir,
}

/// How a command ended.
#[derive(Debug)]
pub struct Ended {
    /// The exit code; 128 and the signal for a signal.
    pub code: i32,
    /// What it printed.
    pub out: String,
    /// What it told on stderr.
    pub err: String,
}

impl From<Output> for Ended {
    fn from(output: Output) -> Self {
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        let status = output.status;
        Self {
            code: status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or_default()),
            out: text(output.stdout),
            err: text(output.stderr),
        }
    }
}

/// The repository that this test belongs to.
pub fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

impl Project {
    /// A project with one gate of four cells, all of which `cpu` passes.
    pub fn new() -> Self {
        let project = Self::empty();
        project.write("gates/rms_norm/correctness.toml", GATE);
        project
    }

    /// A project without a gate.
    pub fn empty() -> Self {
        workers();
        let project = Self { folder: tempfile::tempdir().unwrap() };
        for folder in ["gates", "baselines", "tmp", "home"] {
            fs::create_dir(project.path(folder)).unwrap();
        }
        let from = repository();
        for file in ["gates/catalog.json", "gates/profiles.toml"] {
            fs::copy(from.join(file), project.path(file)).unwrap();
        }
        for provider in ["baselines/oracle", "baselines/cpu"] {
            fs::create_dir(project.path(provider)).unwrap();
            let file = format!("{provider}/provider.toml");
            fs::copy(from.join(&file), project.path(&file)).unwrap();
        }
        project
    }

    /// A path inside.
    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Writes a file and the folders above it.
    pub fn write(&self, name: &str, text: &str) {
        let path = self.path(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    /// Adds a fake provider, with a defect, and a gate of two cells that judges it.
    pub fn fake(&self, id: &str, defect: &str, level: &str) {
        let command = format!(r#"["{{bin}}/proofhouse-fake-worker", "--defect", "{defect}"]"#);
        self.provider(id, &command);
        self.gate_of(id, level);
    }

    /// Adds a provider of the fake worker's kind that is started by a command.
    pub fn provider(&self, id: &str, command: &str) {
        let text = format!(
            "id = \"{id}\"\nabout = \"a fake\"\ncommand = {command}\nenvironment = \"binary\"\n\n\
             [variables]\nPROOFHOUSE_FAKE_ID = \"{id}\"\n\n[operators]\nrms_norm = [\"F32\"]\n"
        );
        self.write(&format!("baselines/{id}/provider.toml"), &text);
    }

    /// Adds a gate of two cells that judges one provider.
    pub fn gate_of(&self, id: &str, level: &str) {
        let gate = format!(
            "about = \"a gate of {id}\"\nkind = \"correctness\"\noperator = \"rms_norm\"\n\
             level = \"{level}\"\ncandidates = [\"{id}\"]\n\n\
             [[cells]]\ndims = {{ rows = [2, 5], hidden = 16 }}\ndtypes = [\"F32\"]\n"
        );
        self.write(&format!("gates/rms_norm/{id}.toml"), &gate);
    }

    /// Adds a provider whose worker waits for a fifo as long as there is one, and a gate of two cells that judges it and
    /// comes after the first. The worker itself waits, so that it has no children. Gives the fifo.
    pub fn waiting(&self) -> PathBuf {
        let fifo = self.path("fifo");
        assert!(Command::new("mkfifo").arg(&fifo).status().unwrap().success());
        let script =
            format!("[ -p {0} ] && read line < {0}; exec $0 --defect none", fifo.display());
        let worker = "{bin}/proofhouse-fake-worker";
        self.provider("waits", &format!(r#"["/bin/sh", "-c", "{script}", "{worker}"]"#));
        self.gate_of("waits", "required");
        fifo
    }

    /// The command in this project, with nothing of the caller's environment but the path. Runs of other projects do not
    /// exclude it: the locks lie in its own temporary folder.
    pub fn command(&self) -> Command {
        let mut command = Command::new(PROOFHOUSE);
        command
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .env("TMPDIR", self.path("tmp"))
            .env("HOME", self.path("home"))
            .current_dir(self.folder.path())
            .stdin(Stdio::null());
        if let Some(libraries) = std::env::var_os("LD_LIBRARY_PATH") {
            command.env("LD_LIBRARY_PATH", libraries);
        }
        command
    }

    /// Runs the command to its end.
    pub fn call(&self, arguments: &[&str]) -> Ended {
        self.command().args(arguments).output().unwrap().into()
    }

    /// `run` with two jobs and no report.
    pub fn run(&self, arguments: &[&str]) -> Ended {
        self.command()
            .args(["run", "--jobs", "2", "--no-report"])
            .args(arguments)
            .output()
            .unwrap()
            .into()
    }

    /// Starts a run that tells its events as JSON lines.
    pub fn start(&self, arguments: &[&str]) -> Running {
        let run = ["run", "--jobs", "1", "--format", "json"];
        self.start_with(PROOFHOUSE, &[&run, arguments].concat())
    }

    /// As [`Project::start`], with all that is started.
    pub fn start_with(&self, program: &str, arguments: &[&str]) -> Running {
        let mut command = Command::new(program);
        command.env_clear();
        for (name, value) in self.command().get_envs() {
            command.env(name, value.unwrap());
        }
        command.args(arguments).current_dir(self.path(".")).stdin(Stdio::null());
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap());
        Running { child, lines }
    }

    /// Every file of the evidence folder, relative to it, sorted; without the lock.
    pub fn evidence(&self) -> Vec<String> {
        let root = self.path("evidence");
        let mut found = Vec::new();
        let mut todo = vec![root.clone()];
        while let Some(folder) = todo.pop() {
            for entry in fs::read_dir(folder).into_iter().flatten() {
                let path = entry.unwrap().path();
                if path.is_dir() {
                    todo.push(path);
                } else if !path.ends_with(".lock") {
                    found.push(path.strip_prefix(&root).unwrap().to_string_lossy().into_owned());
                }
            }
        }
        found.sort();
        found
    }

    /// The first record file of a gate.
    pub fn record(&self, gate: &str) -> PathBuf {
        let name = self.evidence().into_iter().find(|f| f.starts_with(gate)).unwrap();
        self.path("evidence").join(name)
    }
}

/// A run that goes on.
pub struct Running {
    pub child: Child,
    lines: BufReader<ChildStdout>,
}

impl Running {
    /// Reads events until one of this kind.
    pub fn until(&mut self, event: &str) -> serde_json::Value {
        loop {
            let mut line = String::new();
            let read = self.lines.read_line(&mut line).unwrap();
            assert!(read > 0, "the run ended before {event}");
            let value: serde_json::Value = serde_json::from_str(&line).unwrap();
            if value["event"] == event {
                return value;
            }
        }
    }

    /// Sends a signal.
    pub fn signal(&self, name: &str) {
        let line = format!("kill -s {name} {}", self.child.id());
        assert!(Command::new("/bin/sh").args(["-c", &line]).status().unwrap().success());
    }

    /// Waits for the end; the output is what was not read as events.
    pub fn end(mut self) -> Ended {
        let mut rest = String::new();
        std::io::Read::read_to_string(&mut self.lines, &mut rest).unwrap();
        let output = self.child.wait_with_output().unwrap();
        Ended { out: rest, ..Ended::from(output) }
    }
}

/// Builds the workers that lie beside the command, where the test command at hand did not.
fn workers() {
    static BUILDING: Mutex<()> = Mutex::new(());
    let _one_at_a_time = BUILDING.lock().unwrap();
    let folder = Path::new(PROOFHOUSE).parent().unwrap();
    for (binary, package) in [
        ("proofhouse-worker-oracle", "proofhouse-worker-oracle"),
        ("proofhouse-worker-cpu", "proofhouse-worker-cpu"),
        ("proofhouse-fake-worker", "proofhouse-testkit"),
        ("libproofhouse_timer.so", "proofhouse-timer"),
    ] {
        if !folder.join(binary).is_file() {
            let mut build = Command::new(env!("CARGO"));
            build.args(["build", "--quiet", "--package", package]);
            if !cfg!(debug_assertions) {
                build.arg("--release");
            }
            assert!(build.status().unwrap().success(), "{package} could not be built");
        }
    }
}

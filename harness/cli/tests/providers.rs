//! Providers of users, and providers that are not there.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod project;

use std::fs;
use std::path::Path;

use project::{Ended, Project, repository};

/// Copies a folder of files.
fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let path = entry.unwrap().path();
        if path.is_file() {
            fs::copy(&path, to.join(path.file_name().unwrap())).unwrap();
        }
    }
}

/// A `PATH` on which only the named programs are.
fn only(project: &Project, programs: &[&str]) -> std::path::PathBuf {
    let folder = project.path("bin");
    fs::create_dir_all(&folder).unwrap();
    for program in programs {
        std::os::unix::fs::symlink(format!("/bin/{program}"), folder.join(program)).unwrap();
    }
    folder
}

#[test]
fn without_python_a_python_provider_is_not_run_and_the_others_are() {
    let project = Project::new();
    copy(&repository().join("baselines/numpy"), &project.path("baselines/numpy"));
    fs::copy(repository().join("baselines/protocol.py"), project.path("baselines/protocol.py"))
        .unwrap();
    project.gate_of("numpy", "informative");
    let path = only(&project, &["sh"]);
    let run = |gate_level: &str| -> Ended {
        project.gate_of("numpy", gate_level);
        let mut command = project.command();
        command.args(["run", "--no-report", "--format", "json"]).env("PATH", &path);
        command.output().unwrap().into()
    };
    let ended = run("informative");
    assert_eq!(ended.code, 0, "{ended:?}");
    let events: Vec<serde_json::Value> =
        ended.out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let absent = events.iter().find(|e| e["event"] == "provider_absent").unwrap();
    assert_eq!(absent["provider"], "numpy");
    assert!(absent["reason"].as_str().unwrap().contains("ython"), "{absent}");
    let of = |provider: &str, verdict: &str| {
        let finished = events.iter().filter(|e| e["event"] == "cell_finished");
        finished.filter(|e| e["provider"] == provider && e["verdict"] == verdict).count()
    };
    assert_eq!((of("cpu", "pass"), of("numpy", "not-run")), (4, 2), "{}", ended.out);
    assert_eq!(run("required").code, 104, "a required gate that did not run is not green");
    let told: Ended = project.command().arg("run").env("PATH", &path).output().unwrap().into();
    let why = "not-run 2 cells, the first rms_norm.numpy rows=2 hidden=16 F32 contiguous normal\n    numpy is not available: no python3";
    assert!(told.out.contains(why), "{}", told.out);
}

#[test]
fn doctor_says_what_is_missing_and_what_to_do() {
    let project = Project::new();
    project.write(
        "baselines/needy/provider.toml",
        "id = \"needy\"\nabout = \"x\"\ncommand = [\"{python}\", \"{folder}/worker.py\"]\n\
         environment = \"host\"\n\n[operators]\nrms_norm = [\"F32\"]\n",
    );
    let worker = "import json\nfrom beside import thing\nimport no_such_module.part\n";
    project.write("baselines/needy/worker.py", worker);
    project.write("baselines/beside.py", "import no_such_other\n");
    let ended = project.call(&["doctor"]);
    assert_eq!(ended.code, 0, "{ended:?}");
    assert!(ended.out.contains("1 gate, 4 cells in quick"), "{}", ended.out);
    let said = "needy: this machine's Python has no no_such_module, no_such_other";
    assert!(ended.out.contains(said), "{}", ended.out);
    let path = only(&project, &["sh"]);
    let bare: Ended = project.command().arg("doctor").env("PATH", path).output().unwrap().into();
    assert_eq!(bare.code, 0, "Python is optional: {bare:?}");
    assert!(bare.out.contains("needy: there is no python3"), "{}", bare.out);
    project.write("gates/rms_norm/correctness.toml", "kind = 3\n");
    assert_eq!(project.call(&["doctor"]).code, 96);
}

#[test]
fn a_provider_elsewhere_takes_part_with_its_folder_given() {
    let project = Project::new();
    project.fake("mine", "none", "required");
    fs::rename(project.path("baselines/mine"), project.path("elsewhere")).unwrap();
    let without = project.run(&[]);
    assert_eq!(without.code, 96, "{without:?}");
    assert!(without.err.contains("mine"), "{}", without.err);
    let with = project.run(&["--provider", "elsewhere", "--filter", "mine"]);
    assert_eq!(with.code, 0, "{with:?}");
    assert!(with.err.contains("2 cells of 1 gate"), "{}", with.err);
    let gone = project.run(&["--provider", "nowhere"]);
    assert_eq!(gone.code, 96);
    assert!(gone.err.contains("nowhere/provider.toml"), "{}", gone.err);
}

#[test]
fn the_example_of_the_documentation_runs_where_numpy_is() {
    let project = Project::new();
    copy(&repository().join("docs/examples/my_provider"), &project.path("elsewhere"));
    let file = project.path("elsewhere/provider.toml");
    let text = fs::read_to_string(&file).unwrap();
    let beside = repository().join("baselines").display().to_string();
    fs::write(
        &file,
        text.replace(
            "[operators]",
            &format!("[variables]\nPYTHONPATH = \"{beside}\"\n\n[operators]"),
        ),
    )
    .unwrap();
    project.gate_of("my_provider", "informative");
    let mut command = project.command();
    command.args(["run", "--no-report", "--provider", "elsewhere", "--format", "json"]);
    // The environment of NumPy is the user's cache where there is one; else it is made, or its absence is told.
    if let Some(cache) = std::env::var_os("PROOFHOUSE_CACHE_DIR") {
        command.env("PROOFHOUSE_CACHE_DIR", cache);
    } else if let Some(home) = std::env::var_os("HOME") {
        command.env("PROOFHOUSE_CACHE_DIR", Path::new(&home).join(".cache/proofhouse"));
    }
    let ended: Ended = command.output().unwrap().into();
    assert_eq!(ended.code, 0, "{ended:?}");
    let mine: Vec<serde_json::Value> = ended
        .out
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .filter(|e: &serde_json::Value| {
            e["event"] == "cell_finished" && e["provider"] == "my_provider"
        })
        .collect();
    assert_eq!(mine.len(), 2);
    let absent = ended.out.contains("\"event\":\"provider_absent\"");
    let expected = if absent { "not-run" } else { "pass" };
    for cell in mine {
        assert_eq!(cell["verdict"], expected, "{cell}");
    }
}

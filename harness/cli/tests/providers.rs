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
fn doctor_lists_what_a_gpu_needs_and_believes_no_folder_that_cannot_be_made() {
    let project = Project::new();
    let ended = project.call(&["doctor"]);
    for what in ["GPU  ", "CUDA worker", "CUDA timer"] {
        assert!(ended.out.contains(what), "{what}: {}", ended.out);
    }
    let nowhere = project.call(&["doctor", "--evidence", "/proc/nowhere/evidence"]);
    assert_eq!(nowhere.code, 96, "{}", nowhere.out);
    assert!(nowhere.out.contains("/proc/nowhere/evidence cannot be written"), "{}", nowhere.out);
}

#[test]
fn a_gpu_that_is_named_and_not_here_is_not_left_out() {
    let project = Project::new();
    project.fake("far", "none", "required");
    for (file, key) in
        [("baselines/far/provider.toml", "about ="), ("gates/rms_norm/far.toml", "kind =")]
    {
        let word = if key == "kind =" { "device = \"cuda\"" } else { "devices = [\"cuda\"]" };
        let text = fs::read_to_string(project.path(file)).unwrap();
        project.write(file, &text.replacen(key, &format!("{word}\n{key}"), 1));
    }
    let code = |arguments: &[&str]| project.run(arguments).code;
    assert_eq!(code(&["--gpu", "GPU-no-such"]), 104);
    assert_eq!(code(&["--device", "cpu"]), 0);
}

#[test]
fn a_calibration_that_can_compare_nothing_says_so_before_it_begins() {
    let project = Project::new();
    let nothing = project.call(&["calibrate", "--filter", "nothing"]);
    assert_eq!(nothing.code, 4, "{nothing:?}");
    assert!(nothing.err.contains("nothing was selected"), "{}", nothing.err);
    let large = project::GATE
        .replace("\"correctness\"", "\"baseline\"")
        .replace(
            "candidates = [\"cpu\"]",
            "candidates = [\"cpu\"]\nbaselines = [\"waits\"]\ntiming = { cache = \"hot\", launch = \"eager\", clock = \"host\", threads = 1, margin = 0.03, require = \"measured\" }",
        )
        .replace("hidden = [7, 64]", "hidden = 2097152");
    project.waiting();
    project.write("gates/rms_norm/baseline.toml", &large);
    let large = project.call(&["calibrate"]);
    assert_eq!(large.code, 4, "{large:?}");
    assert!(large.err.contains("a cell of at most 1048576 elements"), "{}", large.err);
    for wrong in [["--planted", "2"], ["--planted", "-1"], ["--planted", "nan"]] {
        let ended = project.call(&[&["calibrate"], &wrong[..]].concat());
        assert_eq!(ended.code, 2, "{ended:?}");
        assert!(ended.err.contains("accepted are fractions from 0"), "{}", ended.err);
    }
    assert_eq!(project.call(&["calibrate", "--comparisons", "0"]).code, 2);
    let help = project.call(&["calibrate", "--help"]);
    assert!(help.out.contains("--gpu <UUID>"), "a host with several GPUs is told to give it");
}

#[test]
fn an_archive_of_something_else_is_named_as_such() {
    let project = Project::new();
    fs::write(project.path("x"), "").unwrap();
    let packed = std::process::Command::new("tar")
        .args(["czf", "other.tar.gz", "x"])
        .current_dir(project.path("."))
        .status();
    assert!(packed.unwrap().success());
    let ended = project.call(&["import", "other.tar.gz"]);
    assert_eq!(ended.code, 96, "{ended:?}");
    assert!(ended.err.contains("other.tar.gz holds no folder evidence/"), "{}", ended.err);
    let bundle = project.call(&["bundle", "--command", "gone", "out.tar.gz"]);
    assert_eq!(bundle.code, 96, "{bundle:?}");
    assert!(bundle.err.contains("`cargo house bundle` builds"), "{}", bundle.err);
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

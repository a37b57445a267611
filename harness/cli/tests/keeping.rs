//! Evidence that was edited, cut, made by another version, or cannot be written.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod project;

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::PermissionsExt as _;
use std::process::Command;

use project::{Ended, PROOFHOUSE, Project};

/// A project whose run passed.
fn finished() -> Project {
    let project = Project::new();
    assert_eq!(project.run(&[]).code, 0);
    project
}

fn shown(project: &Project, path: &std::path::Path) -> String {
    path.strip_prefix(project.path("evidence")).unwrap().to_string_lossy().into_owned()
}

#[test]
fn an_edited_record_is_found_named_and_never_used_again() {
    let project = finished();
    let record = project.record("rms_norm");
    let text = fs::read_to_string(&record).unwrap();
    let edited = text.replace("\"rows=", "\"rowz=").replace("\"pass\"", "\"fail\"");
    assert_ne!(edited, text);
    fs::write(&record, edited).unwrap();
    let verify = project.call(&["verify"]);
    assert_eq!(verify.code, 100, "{verify:?}");
    assert!(
        verify.out.contains("edited") && verify.out.contains(&shown(&project, &record)),
        "{}",
        verify.out
    );
    for (arguments, code) in [
        (&["run", "--no-report"][..], 96),
        (&["plan"], 96),
        (&["report"], 100),
        (&["query", "SELECT 1"], 0),
    ] {
        let ended = project.call(arguments);
        assert_eq!(ended.code, code, "{arguments:?}: {ended:?}");
        assert!(ended.err.contains(&shown(&project, &record)), "{arguments:?}: {}", ended.err);
        assert!(ended.err.contains("`proofhouse verify`"), "{arguments:?}: {}", ended.err);
    }
}

#[test]
fn a_folder_with_something_odd_in_it_keeps_nobody_from_asking_and_every_finding_is_told() {
    let project = finished();
    let pipe = project.path("evidence/rms_norm.correctness/pipe.json");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let odd = OsStr::from_bytes(b"odd-\xff\x1b[31m.json");
    fs::write(project.path("evidence/session").join(odd), b"{}").unwrap();
    fs::remove_file(project.record("session/")).unwrap();
    let verify = project.call(&["verify"]);
    assert_eq!(verify.code, 100, "{verify:?}");
    let told = |kind: &str, file: &str| {
        let line = |l: &str| {
            let mut words = l.split_whitespace();
            words.next() == Some(kind) && words.next().is_some_and(|w| w.starts_with(file))
        };
        assert!(verify.out.lines().any(line), "{kind} {file} in {}", verify.out);
    };
    told("path", "rms_norm.correctness/pipe.json");
    told("path", "session/odd-");
    told("missing", "session/2");
    assert!(!verify.out.contains('\u{1b}'), "{}", verify.out);
    let run = project.run(&[]);
    assert_eq!(run.code, 96, "{run:?}");
    let query = project.call(&["query", "--format", "csv", "SELECT count(*) AS n FROM verdicts"]);
    assert_eq!((query.code, query.out.as_str()), (0, "n\r\n4\r\n"), "{}", query.err);
    assert!(query.err.contains("not whole: 2 odd"), "{}", query.err);
}

#[test]
fn missing_and_unlogged_records_are_told_by_whoever_reads_them() {
    let project = finished();
    let is_cell = |f: &String| {
        let text = fs::read_to_string(project.path("evidence").join(f)).unwrap_or_default();
        text.contains("\"record\":\"cell\"")
    };
    let record =
        project.path("evidence").join(project.evidence().into_iter().find(is_cell).unwrap());
    fs::remove_file(&record).unwrap();
    let other = Project::new();
    other.fake("mine", "none", "required");
    assert_eq!(other.run(&[]).code, 0);
    let foreign = other.record("rms_norm.mine/");
    let unlogged = project.path("evidence/rms_norm.mine");
    fs::create_dir(&unlogged).unwrap();
    fs::copy(&foreign, unlogged.join(foreign.file_name().unwrap())).unwrap();
    let missing = shown(&project, &record);
    let added = foreign.file_name().unwrap().to_str().unwrap().to_owned();
    for arguments in [&["query", "SELECT 1"][..], &["report"], &["run"]] {
        let ended = project.call(arguments);
        let lines: Vec<&str> =
            ended.err.lines().filter(|line| line.contains("not whole")).collect();
        assert_eq!(lines.len(), 2, "{arguments:?}: {}", ended.err);
        assert!(lines[0].contains("1 missing") && lines[0].contains(&missing), "{}", lines[0]);
        assert!(lines[1].contains("1 unlogged") && lines[1].contains(&added), "{}", lines[1]);
        assert!(lines.iter().all(|line| line.ends_with("run `proofhouse verify`")), "{lines:?}");
    }
    for report in ["reports/report", "reports/run-quick"] {
        for ending in ["html", "md", "xml"] {
            let text = fs::read_to_string(project.path(&format!("{report}.{ending}"))).unwrap();
            assert!(text.contains("whole") && text.contains("1 missing"), "{report}.{ending}");
        }
    }
}

#[test]
fn a_folder_that_a_run_writes_to_is_not_verified_but_told() {
    let project = Project::new();
    project.waiting();
    let mut running = project.start(&["--no-report"]);
    running.until("cell_finished");
    let verify = project.call(&["verify"]);
    assert_eq!(verify.code, 96, "{verify:?}");
    let pid = format!("a run (process {})", running.child.id());
    assert!(verify.err.contains(&pid) && verify.out.is_empty(), "{verify:?}");
    let other = Project::new();
    let folder = project.path("evidence").to_string_lossy().into_owned();
    assert_eq!(other.call(&["import", &folder]).code, 96, "nothing half-written is imported");
    running.signal("INT");
    assert_eq!(running.end().code, 130);
    assert_eq!(project.call(&["verify"]).code, 0);
}

#[test]
fn a_truncated_record_is_found_and_named() {
    let project = finished();
    let record = project.record("rms_norm");
    let bytes = fs::read(&record).unwrap();
    for length in [0, 1, bytes.len() / 2, bytes.len() - 1] {
        fs::write(&record, &bytes[..length]).unwrap();
        let verify = project.call(&["verify"]);
        assert_eq!(verify.code, 100, "{length} bytes: {verify:?}");
        assert!(verify.out.contains(&shown(&project, &record)), "{length} bytes: {}", verify.out);
    }
    fs::write(&record, &bytes).unwrap();
    assert_eq!(project.call(&["verify"]).code, 0);
}

#[test]
fn a_deleted_record_is_missed() {
    let project = finished();
    let record = project.record("session");
    fs::remove_file(&record).unwrap();
    let verify = project.call(&["verify"]);
    assert_eq!(verify.code, 100);
    assert!(
        verify.out.contains("missing") && verify.out.contains(&shown(&project, &record)),
        "{}",
        verify.out
    );
}

#[test]
fn evidence_of_a_newer_schema_is_named_and_not_guessed_at() {
    let project = finished();
    let record = project.record("rms_norm");
    let text = fs::read_to_string(&record).unwrap();
    fs::write(&record, text.replace("proofhouse/v1", "proofhouse/v9")).unwrap();
    assert_ne!(fs::read_to_string(&record).unwrap(), text);
    let verify = project.call(&["verify"]);
    assert_eq!(verify.code, 100);
    assert!(verify.out.contains("newer-schema") && verify.out.contains("v9"), "{}", verify.out);
    let run = project.run(&[]);
    assert_eq!(run.code, 96, "{run:?}");
    assert!(run.err.contains("v9"), "{}", run.err);
}

#[test]
fn a_good_folder_is_imported_once_and_a_bad_one_not_at_all() {
    let from = finished();
    let to = Project::new();
    let folder = from.path("evidence").to_string_lossy().into_owned();
    let first = to.call(&["import", &folder]);
    assert_eq!(first.code, 0, "{first:?}");
    assert!(first.out.contains("imported 9 new files, 0 were here already"), "{}", first.out);
    assert!(to.call(&["import", &folder]).out.contains("imported 0 new files, 9 were here"));
    assert_eq!(to.call(&["verify"]).code, 0);
    let plan = to.call(&["plan"]);
    assert!(
        plan.out.contains("4 cells: 0 to run"),
        "imported evidence is used again: {}",
        plan.out
    );

    let other = Project::new();
    fs::write(from.record("rms_norm"), b"{}").unwrap();
    let bad = other.call(&["import", &folder]);
    assert_eq!(bad.code, 100, "{bad:?}");
    assert!(other.evidence().iter().all(|file| !file.ends_with(".json")), "{:?}", other.evidence());
    assert_eq!(other.call(&["import", "no-such-folder"]).code, 96);
}

/// Runs a shell line in which `$0` is the command, as the tests of folders that cannot be written need it.
fn shell(project: &Project, program: &[&str], line: &str) -> Ended {
    let mut command = Command::new(program[0]);
    command
        .args(&program[1..])
        .args(["/bin/sh", "-c", line, PROOFHOUSE])
        .current_dir(project.path("."));
    for (name, value) in project.command().get_envs() {
        command.env(name, value.unwrap());
    }
    command.output().unwrap().into()
}

/// Runs a command where it may mount a small disk.
const MOUNTING: [&str; 3] = ["unshare", "--map-root-user", "--mount"];

/// Whether this machine lets a test mount anything. Many containers do not; the typed error of a full disk is then tested by
/// `harness/evidence` alone, through /dev/full.
#[allow(clippy::print_stderr, reason = "what is not run is told")]
fn may_mount(project: &Project) -> bool {
    let tried = Command::new(MOUNTING[0])
        .args(&MOUNTING[1..])
        .args(["mount", "-t", "tmpfs", "none"])
        .arg(project.path("tmp"))
        .output();
    let may = tried.as_ref().is_ok_and(|output| output.status.success());
    if !may {
        eprintln!("not-run: this machine mounts no disk for a test: {tried:?}");
    }
    may
}

/// What makes a command obey permissions: root loses the right to pass over them.
fn obeying() -> &'static [&'static str] {
    let id = Command::new("id").arg("-u").output().unwrap();
    if id.stdout == b"0\n" {
        &["setpriv", "--bounding-set=-dac_override,-dac_read_search"]
    } else {
        &["env"]
    }
}

#[test]
fn a_read_only_evidence_folder_is_code_110_and_stays_as_it_was() {
    let project = finished();
    let evidence = project.path("evidence");
    let before = project.evidence();
    let folders = || ["", "log", "session", "rms_norm.correctness"].map(|f| evidence.join(f));
    let mode = |bits: u32| {
        for folder in folders() {
            fs::set_permissions(folder, fs::Permissions::from_mode(bits)).unwrap();
        }
    };
    fs::remove_file(evidence.join(".lock")).unwrap();
    mode(0o555);
    let ended = shell(&project, obeying(), "exec $0 run --fresh --no-report --jobs 1");
    let reading = shell(&project, obeying(), "exec $0 verify");
    mode(0o755);
    assert_eq!(ended.code, 110, "{ended:?}");
    assert!(ended.err.contains("evidence"), "{}", ended.err);
    assert_eq!(reading.code, 0, "reading needs no writing: {reading:?}");
    assert_eq!(project.evidence(), before);
    assert_eq!(project.run(&["--fresh"]).code, 0);
}

#[test]
fn a_full_disk_is_code_110_and_what_was_written_is_whole() {
    let project = finished();
    let line = "mount -t tmpfs -o size=8k,mode=755 none full && exec $0 \
                run --fresh --no-report --jobs 1 --evidence full; ";
    fs::create_dir(project.path("full")).unwrap();
    if !may_mount(&project) {
        return;
    }
    let ended = shell(&project, &MOUNTING, line);
    assert_eq!(ended.code, 110, "{ended:?}");
    assert!(ended.err.contains("full") && ended.err.contains("error:"), "{}", ended.err);
}

#[test]
fn a_disk_that_fills_up_in_the_middle_keeps_what_fitted_and_the_same_command_goes_on() {
    let project = finished();
    fs::create_dir(project.path("full")).unwrap();
    if !may_mount(&project) {
        return;
    }
    // Half of what a run writes fits; then there is room again.
    let line = "mount -t tmpfs -o size=32k,mode=755 none full \
                && { $0 run --no-report --jobs 1 --evidence full; echo code $?; } \
                && mount -o remount,size=10m full && echo then >&2 \
                && $0 run --no-report --evidence full && $0 verify --evidence full";
    let ended = shell(&project, &MOUNTING, line);
    assert!(ended.out.contains("code 110"), "{ended:?}");
    assert_eq!(ended.code, 0, "{ended:?}");
    assert!(ended.out.contains("\nverified\n"), "{}", ended.out);
    let (first, then) = ended.err.split_once("then\n").unwrap();
    assert!(first.contains("no space is left") && first.contains("used again: 0"), "{first}");
    assert!(then.contains("used again: ") && !then.contains("used again: 0"), "{then}");
}

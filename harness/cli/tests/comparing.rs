//! Orders of providers and tables of documents, from committed evidence of a gate on the CPU.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use proofhouse_evidence::{Folder, Writer};
use proofhouse_schema::evidence::{CellRecord, Observation, Record};
use proofhouse_schema::units::Wide;

/// The gate whose evidence the tests use, and the session that measured it: later evidence changes no number here.
const GATE: &str = "rms_norm_dynamic_fp8.baseline";
const SESSION: &str = "9a4be37cadf3";

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// The command in a project of its own, with the repository's gates.
struct Project {
    folder: tempfile::TempDir,
}

struct Ended {
    code: Option<i32>,
    out: String,
    err: String,
}

impl From<Output> for Ended {
    fn from(output: Output) -> Self {
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        Self { code: output.status.code(), out: text(output.stdout), err: text(output.stderr) }
    }
}

impl Project {
    /// A project with the evidence of one gate and its sessions, whose records a test may change before they are written.
    fn with(change: impl Fn(&mut CellRecord)) -> Self {
        let project = Self { folder: tempfile::tempdir().unwrap() };
        let from = Folder::new(repository().join("evidence"));
        let to = Folder::new(project.path("evidence"));
        let mut writer = Writer::open(to, &"w-test".parse().unwrap()).unwrap();
        let at = Wide(1_764_590_400_000_000_000);
        for file in from.files().unwrap() {
            let (room, _) = file.split_once('/').unwrap();
            if room != GATE && room != "session" {
                continue;
            }
            match from.read(&file).unwrap().record {
                Record::Cell(mut cell) if cell.session.short() == SESSION => {
                    if let Observation::Baseline(seen) = &mut cell.observation {
                        let samples = from.samples(&seen.samples).unwrap();
                        seen.samples = writer.put_samples(&samples, at).unwrap();
                    }
                    change(&mut cell);
                    writer.put(&Record::Cell(cell), at).unwrap();
                }
                session @ Record::Session(_) => drop(writer.put(&session, at).unwrap()),
                _ => {}
            }
        }
        project
    }

    fn new() -> Self {
        Self::with(|_| {})
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn call(&self, arguments: &[&str]) -> Ended {
        let mut command = Command::new(env!("CARGO_BIN_EXE_proofhouse"));
        if let Some(libraries) = std::env::var_os("LD_LIBRARY_PATH") {
            command.env("LD_LIBRARY_PATH", libraries);
        }
        command.current_dir(self.folder.path()).args(arguments).arg("--root");
        command.arg(self.folder.path()).arg("--gates").arg(repository().join("gates"));
        command.output().unwrap().into()
    }

    fn write(&self, text: &str) {
        fs::write(self.path("a.md"), text).unwrap();
    }

    fn read(&self) -> String {
        fs::read_to_string(self.path("a.md")).unwrap()
    }
}

fn lines(ended: &Ended, what: &str) -> Vec<serde_json::Value> {
    let all =
        ended.out.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
    all.filter(|line| line["line"] == what).collect()
}

#[test]
fn every_cell_and_the_gate_are_ranked_for_people_and_for_programs() {
    let project = Project::new();
    let human = project.call(&["compare"]);
    assert_eq!(human.code, Some(0), "{}", human.err);
    for text in [
        GATE,
        "rows=8 hidden=4096 F16 contiguous normal",
        "not separated from",
        "order effect",
        "geometric means over 19 of 19 ranked cells, 3 replicates",
        "flips in rows=1 hidden=768 F32 contiguous normal: onnxruntime is faster than numpy",
        "onnxruntime wins up to rows=1, numpy from rows=8 on",
        "cpu against the best other of each of 19 cells",
    ] {
        assert!(human.out.contains(text), "{text} is not in\n{}", human.out);
    }
    let json = project.call(&["compare", "--format", "json"]);
    let cells = lines(&json, "cell");
    assert_eq!(cells.len(), 19);
    for cell in &cells {
        assert_eq!((cell["gate"].as_str(), cell["candidate"].as_str()), (Some(GATE), Some("cpu")));
        assert_eq!(cell["ranking"]["standings"][0]["provider"], "cpu");
        assert_eq!(cell["ranking"]["pairs"].as_array().unwrap().len(), 3);
    }
    assert_eq!(lines(&json, "overall").len(), 1);
    assert_eq!(lines(&json, "flip").len(), 3);
}

#[test]
fn a_filter_takes_cells_as_it_does_in_a_run_and_nothing_is_4() {
    let project = Project::new();
    let some = project.call(&["compare", "--format", "json", "--filter", "rows=8 F32"]);
    assert_eq!((some.code, lines(&some, "cell").len()), (Some(0), 5));
    let none = project.call(&["compare", "--filter", "rows=3"]);
    assert_eq!((none.code, none.out.as_str()), (Some(4), ""));
    // What is no beginning of a word is named, with what is.
    assert!(none.err.contains("has \"rows=3\"") && none.err.contains("`rows=8`"), "{}", none.err);
    let empty = project.call(&["compare", "--evidence", "nowhere"]);
    assert_eq!(empty.code, Some(4));
    assert!(empty.err.contains("no timed cell is in nowhere"), "{}", empty.err);
}

#[test]
fn plots_are_written() {
    let project = Project::new();
    let ended = project.call(&["compare", "--plots", "out/plots"]);
    assert_eq!(ended.code, Some(0), "{}", ended.err);
    for what in ["time", "standings"] {
        let svg = project.path(&format!("out/plots/{GATE}.cpu.{what}.svg"));
        let svg = fs::read_to_string(svg).unwrap();
        assert_eq!(
            roxmltree::Document::parse(&svg).unwrap().root_element().tag_name().name(),
            "svg"
        );
        assert!(svg.contains("onnxruntime"));
    }
}

#[test]
fn plots_that_cannot_be_written_are_told_before_the_tables() {
    let project = Project::new();
    fs::write(project.path("file"), "mine").unwrap();
    let ended = project.call(&["compare", "--plots", "file"]);
    assert_eq!((ended.code, ended.out.as_str()), (Some(110), ""));
    assert!(ended.err.contains("file: cannot be written"), "{}", ended.err);
}

#[test]
fn a_missing_blob_leaves_its_cell_without_a_rank_and_is_no_success() {
    let project = Project::new();
    let blob = fs::read_dir(project.path("evidence/blobs")).unwrap().next().unwrap().unwrap();
    fs::remove_file(blob.path()).unwrap();
    let json = project.call(&["compare", "--format", "json"]);
    assert_eq!(json.code, Some(100), "{}", json.err);
    assert!(json.err.contains("the evidence is not whole"), "{}", json.err);
    let unranked = lines(&json, "unranked");
    assert_eq!((lines(&json, "cell").len(), unranked.len()), (18, 1));
    let reasons = unranked[0]["reasons"].to_string();
    assert!(reasons.contains("no-samples") && reasons.contains("unreadable-samples"), "{reasons}");
    let human = project.call(&["compare"]);
    assert!(human.out.contains("not ranked: rows="), "{}", human.out);
    // Nothing is rendered from it either, and the file stays as it is.
    project.write("<!-- proofhouse:summary -->\n<!-- /proofhouse -->\n");
    assert_eq!(project.call(&["render", "a.md"]).code, Some(100));
    assert_eq!(project.read(), "<!-- proofhouse:summary -->\n<!-- /proofhouse -->\n");
}

#[test]
fn a_changed_blob_is_no_success_and_nothing_is_rendered_from_it() {
    let project = Project::new();
    let blob = fs::read_dir(project.path("evidence/blobs")).unwrap().next().unwrap().unwrap();
    let mut bytes = fs::read(blob.path()).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(blob.path(), bytes).unwrap();
    let json = project.call(&["compare", "--format", "json"]);
    assert_eq!(json.code, Some(100), "{}", json.err);
    assert!(
        json.err.contains("1 cells whose samples are not what the record says"),
        "{}",
        json.err
    );
    let unranked = lines(&json, "unranked");
    assert_eq!((lines(&json, "cell").len(), unranked.len()), (18, 1));
    assert_eq!(unranked[0]["reasons"][0]["code"], "unreadable-samples");
    project.write("<!-- proofhouse:summary -->\n<!-- /proofhouse -->\n");
    assert_eq!(project.call(&["render", "a.md"]).code, Some(100));
    assert_eq!(project.read(), "<!-- proofhouse:summary -->\n<!-- /proofhouse -->\n");
}

#[test]
fn what_is_rendered_keeps_links_and_permissions_and_touches_no_other_file() {
    use std::os::unix::fs::{PermissionsExt as _, symlink};
    let project = Project::new();
    let mode = |mode| fs::set_permissions(project.path("a.md"), fs::Permissions::from_mode(mode));
    project.write(TABLES);
    mode(0o640).unwrap();
    symlink("a.md", project.path("link.md")).unwrap();
    fs::write(project.path("link.md.part"), "mine").unwrap();
    assert_eq!(project.call(&["render", "link.md"]).code, Some(0));
    assert!(project.path("link.md").is_symlink() && project.read() != TABLES);
    let found = fs::metadata(project.path("a.md")).unwrap().permissions().mode();
    assert_eq!(found & 0o777, 0o640);
    assert_eq!(fs::read_to_string(project.path("link.md.part")).unwrap(), "mine");
    // One that nobody may write is left as it is, and checked all the same.
    project.write(TABLES);
    mode(0o444).unwrap();
    let refused = project.call(&["render", "a.md"]);
    assert_eq!(refused.code, Some(110), "{}", refused.err);
    assert!(refused.err.contains("it is read-only"), "{}", refused.err);
    assert_eq!(project.read(), TABLES);
    assert_eq!(project.call(&["render", "--check", "a.md"]).code, Some(100));
    // What has no end is not read.
    let device = project.call(&["render", "/dev/zero"]);
    assert_eq!(device.code, Some(96));
    assert!(device.err.contains("not a regular file"), "{}", device.err);
}

#[test]
fn evidence_whose_session_is_gone_ranks_nothing() {
    let gone = "0".repeat(64);
    let project = Project::with(|cell| {
        cell.session = proofhouse_schema::canonical::Digest::parse(&gone).unwrap();
    });
    let human = project.call(&["compare"]);
    assert_eq!(human.code, Some(4), "{}", human.out);
    assert!(human.out.contains("no cell could be ranked"), "{}", human.out);
    assert!(human.out.contains("the session compared no provider with itself"), "{}", human.out);
}

const TABLES: &str = "# Times\n\n<!-- proofhouse:summary -->\n<!-- /proofhouse -->\n\n\
    <!-- proofhouse:table gate=rms_norm_dynamic_fp8.baseline -->\nold\n<!-- /proofhouse -->\n\nend\n";

#[test]
fn a_document_is_filled_and_one_changed_digit_turns_it_red() {
    let project = Project::new();
    project.write(TABLES);
    let stale = project.call(&["render", "--check", "a.md"]);
    assert_eq!((stale.code, project.read().as_str()), (Some(100), TABLES));
    assert!(stale.out.contains("- old\n") && stale.out.contains("not what the evidence says"));
    let filled = project.call(&["render", "a.md"]);
    assert_eq!(filled.code, Some(0), "{}", filled.err);
    let text = project.read();
    assert!(text.starts_with("# Times\n") && text.ends_with("<!-- /proofhouse -->\n\nend\n"));
    assert!(text.contains("| `rms_norm_dynamic_fp8` | hot eager host 1 thread | 19 | 11.94x"));
    assert_eq!(text.lines().filter(|line| line.starts_with("| rows=")).count(), 19);
    assert_eq!(project.call(&["render", "--check", "a.md"]).code, Some(0));
    project.write(&text.replacen("| 19 | 11.94x", "| 19 | 11.95x", 1));
    let red = project.call(&["render", "--check", "a.md"]);
    assert_eq!(red.code, Some(100));
    assert!(
        red.out.contains("a.md:8\n") && red.out.contains("- | `rms_norm_dynamic_fp8`"),
        "{}",
        red.out
    );
    assert!(red.out.contains("+ | `rms_norm_dynamic_fp8` | hot eager host 1 thread | 19 | 11.94x"));
}

#[test]
fn a_document_that_cannot_be_filled_is_96_and_none_is_written() {
    let project = Project::new();
    for (text, said) in [
        ("nothing\n", "no table to fill"),
        ("<!-- proofhouse:summary -->\n", "a.md:1: the table is not closed"),
        (
            "\n<!-- proofhouse:table gate=rms_norm.basline -->\n<!-- /proofhouse -->\n",
            "a.md:2: unknown gate",
        ),
        (
            "<!-- proofhouse:table gate=min_p.baseline -->\n<!-- /proofhouse -->\n",
            "no timed evidence",
        ),
        ("<!-- proofhouse:chart -->\n<!-- /proofhouse -->\n", "unknown table \"chart\""),
    ] {
        for arguments in [&["render", "a.md"][..], &["render", "--check", "a.md"]] {
            project.write(text);
            let ended = project.call(arguments);
            assert_eq!(ended.code, Some(96), "{text}: {}", ended.err);
            assert!(ended.err.contains(said), "{said}: {}", ended.err);
            assert_eq!(project.read(), text);
        }
    }
    // One bad file among good ones keeps all of them as they are.
    project.write(TABLES);
    fs::write(project.path("b.md"), "nothing\n").unwrap();
    assert_eq!(project.call(&["render", "a.md", "b.md"]).code, Some(96));
    assert_eq!(project.read(), TABLES);
    assert_eq!(project.call(&["render", "gone.md"]).code, Some(96));
    assert_eq!(project.call(&["render"]).code, Some(2));
}

#[test]
fn both_verbs_explain_themselves_with_examples() {
    let project = Project { folder: tempfile::tempdir().unwrap() };
    for verb in ["compare", "render"] {
        let ended = project.call(&[verb, "--help"]);
        assert_eq!(ended.code, Some(0));
        assert!(ended.out.contains("Examples:") && ended.out.contains("--root <DIR>"), "{verb}");
    }
}

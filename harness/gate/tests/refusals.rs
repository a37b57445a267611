//! Every bad declaration in `tests/refusals/` gets the error in the `.txt` beside it, as a person reads it.

#![allow(clippy::unwrap_used, reason = "tests")]

mod support;

use std::path::{Path, PathBuf};

use proofhouse_gate::declare::{Style, parse_provider};
use support::{folder, resolve};

fn cases() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/refusals");
    let mut files: Vec<PathBuf> =
        std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.retain(|path| path.extension().is_some_and(|extension| extension == "toml"));
    files.sort();
    files
}

fn rendered(gate: &[u8]) -> String {
    match resolve(&folder("rms_norm/test.toml", gate), "quick") {
        Ok(gates) => format!("accepted: {} gates", gates.len()),
        Err(errors) => errors.render(Style::Plain) + "\n",
    }
}

#[test]
fn every_bad_gate_gets_its_rendered_error() {
    let cases = cases();
    assert!(cases.len() > 40, "the refusals are gone");
    let mut wrong = Vec::new();
    for path in cases {
        let found = rendered(&std::fs::read(&path).unwrap());
        let expected = std::fs::read_to_string(path.with_extension("txt")).unwrap_or_default();
        if found != expected {
            wrong.push(format!("{}:\n{found}\nexpected:\n{expected}", path.display()));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn every_error_names_file_line_column_and_the_underlined_place() {
    for path in cases() {
        let gate = std::fs::read(&path).unwrap();
        let errors = resolve(&folder("rms_norm/test.toml", &gate), "quick")
            .expect_err(&path.display().to_string());
        assert!(!errors.0.is_empty());
        for error in &errors.0 {
            let (line, column) = error.place();
            let drawn = error.render(Style::Plain);
            assert!(
                drawn.contains(&format!("gates/rms_norm/test.toml:{line}:{column}")),
                "{drawn}"
            );
            assert!(drawn.contains(error.fault.code()) && drawn.contains('^'), "{drawn}");
        }
    }
}

#[test]
fn several_errors_are_shown_in_one_go() {
    let gate = include_bytes!("refusals/several.toml");
    let errors = resolve(&folder("rms_norm/test.toml", gate), "quick").unwrap_err();
    let codes: Vec<&str> = errors.0.iter().map(|error| error.fault.code()).collect();
    assert_eq!(codes, ["unknown-name", "unknown-key", "unknown-name"]);
}

#[test]
fn a_gate_that_is_not_utf8_is_refused_at_its_first_bad_byte() {
    let errors = resolve(&folder("rms_norm/test.toml", b"about = \"a\xff\""), "quick").unwrap_err();
    assert_eq!(errors.0[0].fault.code(), "not-utf8");
    assert_eq!(errors.0[0].place(), (1, 11));
}

#[test]
fn two_files_with_one_id_are_refused() {
    let gate = include_bytes!("support/good.toml");
    let mut files = folder("rms_norm/x/y.toml", gate);
    assert!(resolve(&files, "quick").is_ok());
    files.insert("rms_norm/x.y.toml".to_owned(), gate.to_vec());
    let errors = resolve(&files, "quick").unwrap_err();
    assert_eq!(errors.0[0].fault.code(), "duplicate-id");
}

#[test]
fn a_path_that_gives_no_id_is_refused() {
    let gate = include_bytes!("support/good.toml");
    for path in ["rms_norm/Test.toml", "rms_norm/1st.toml", "rms norm/test.toml"] {
        let errors = resolve(&folder(path, gate), "quick").unwrap_err();
        assert_eq!(errors.0[0].fault.code(), "bad-id", "{path}");
    }
}

#[test]
fn a_folder_without_gates_or_profiles_is_refused() {
    let mut files = folder("rms_norm/test.toml", include_bytes!("support/good.toml"));
    files.remove("rms_norm/test.toml");
    assert_eq!(resolve(&files, "quick").unwrap_err().0[0].fault.code(), "empty");
    let mut files = folder("rms_norm/test.toml", include_bytes!("support/good.toml"));
    files.remove("profiles.toml");
    assert_eq!(resolve(&files, "quick").unwrap_err().0[0].fault.code(), "unreadable");
    files.insert("profiles.toml".into(), Vec::new());
    assert_eq!(resolve(&files, "quick").unwrap_err().0[0].fault.code(), "empty");
    files.insert(
        "profiles.toml".into(),
        b"[quick]\nreplicates = 0\nblocks = 1\nsamples = 0\nmin-sample-us = 0\n".to_vec(),
    );
    let errors = resolve(&files, "quick").unwrap_err();
    assert_eq!(errors.0.len(), 4, "{errors}");
    assert!(errors.0.iter().all(|error| error.fault.code() == "out-of-range"));
}

const PROVIDER: &str = "id = \"numpy\"\nabout = \"NumPy\"\ncommand = [\"{python}\", \"{folder}/worker.py\"]\n\
    environment = \"venv\"\nlock = \"requirements.lock\"\n[operators]\nrms_norm = [\"F32\"]\n";

#[test]
fn bad_providers_are_refused_in_the_same_manner() {
    assert!(parse_provider("baselines/numpy/provider.toml", PROVIDER.as_bytes()).is_ok());
    let spoil = |from: &str, to: &str| {
        let text = PROVIDER.replace(from, to);
        assert_ne!(text, PROVIDER);
        let errors =
            parse_provider("baselines/numpy/provider.toml", text.as_bytes()).expect_err(&text);
        assert!(errors.render(Style::Plain).contains("baselines/numpy/provider.toml:"));
        errors.0[0].fault.code()
    };
    assert_eq!(spoil("lock = \"requirements.lock\"\n", ""), "missing-key");
    assert_eq!(spoil("requirements.lock", "../requirements.lock"), "escaping-path");
    assert_eq!(spoil("\"venv\"", "\"conda\""), "unknown-name");
    assert_eq!(spoil("\"venv\"", "\"path:\""), "unknown-name");
    assert_eq!(spoil("[\"F32\"]", "[]"), "empty");
    assert_eq!(spoil("[\"F32\"]", "[\"F64\"]"), "unknown-name");
    assert_eq!(spoil("rms_norm = [\"F32\"]", ""), "empty");
    assert_eq!(spoil("id = \"numpy\"", "id = \"Num Py\""), "bad-id");
    assert_eq!(spoil("about", "abuot"), "missing-key");
    assert_eq!(spoil("[\"{python}\", \"{folder}/worker.py\"]", "[]"), "empty");
    assert_eq!(spoil("[\"{python}\", \"{folder}/worker.py\"]", "\"python\""), "wrong-type");
}

#[test]
fn colored_errors_hold_the_same_words() {
    let gate = include_bytes!("refusals/misspelled-key.toml");
    let errors = resolve(&folder("rms_norm/test.toml", gate), "quick").unwrap_err();
    let colored = errors.render(Style::Colored);
    assert!(colored.contains('\u{1b}') && colored.contains("did you mean `dtypes`?"));
}

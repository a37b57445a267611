//! Every bad declaration in `tests/refusals/` gets the error in the `.txt` beside it, as a person reads it.

#![allow(clippy::unwrap_used, reason = "tests")]

mod support;

use std::path::{Path, PathBuf};

use proofhouse_gate::declare::{
    Bindings, DiskFolder, FileSource, GateSpec, Style, bind_provider, parse_provider,
    resolve as bind_gate,
};
use proofhouse_schema::ids::ProfileId;
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
fn deep_nesting_gives_few_errors_of_syntax() {
    let gate = "x = ".to_owned() + &"[".repeat(20_000);
    let errors = resolve(&folder("rms_norm/test.toml", gate.as_bytes()), "quick").unwrap_err();
    assert!(errors.0.len() <= 10, "{}", errors.0.len());
    assert!(errors.0.iter().all(|error| error.fault.code() == "syntax"), "{errors}");
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
    assert_eq!(spoil("[operators]", "packages = { numpy = \" \" }\n[operators]"), "empty");
    for (line, code) in [
        ("devices = []", "empty"),
        ("devices = [\"gpu\"]", "unknown-name"),
        ("variables = { LD_PRELOAD = \"x.so\" }", "reserved-variable"),
        ("variables = { LD_AUDIT = \"x.so\" }", "reserved-variable"),
        ("variables = { PROOFHOUSE_SOCKET = \"/tmp/mine\" }", "reserved-variable"),
        ("variables = { PROOFHOUSE_TIMER = \"mine.so\" }", "reserved-variable"),
        ("variables = { PROOFHOUSE_THREADS = \"64\" }", "reserved-variable"),
        ("thread-variables = [\"PROOFHOUSE_NONCE\"]", "reserved-variable"),
        ("variables = { \"A=B\" = \"\" }", "bad-id"),
        ("variables = { A = \"a\\u0000b\" }", "bad-id"),
    ] {
        assert_eq!(spoil("[operators]", &format!("{line}\n[operators]")), code, "{line}");
    }
}

#[test]
fn what_a_provider_may_declare_is_accepted() {
    for line in [
        "variables = { LD_LIBRARY_PATH = \"/opt/lib\", MINE = \"\" }",
        "thread-variables = [\"PROOFHOUSE_THREADS\", \"OMP_NUM_THREADS\"]",
        "packages = { numpy = \"*\" }",
    ] {
        let text = PROVIDER.replace("[operators]", &format!("{line}\n[operators]"));
        let provider = parse_provider("p", text.as_bytes());
        provider.unwrap_or_else(|errors| panic!("{}", errors.render(Style::Plain)));
    }
    let text = PROVIDER.replace("[operators]", "packages = { numpy = \"*\" }\n[operators]");
    let provider = parse_provider("p", text.as_bytes()).unwrap();
    assert_eq!(provider.packages["numpy"], "*");
}

#[test]
fn a_lock_outside_names_the_providers_folder() {
    let text = PROVIDER.replace("requirements.lock", "../requirements.lock");
    let errors = parse_provider("baselines/numpy/provider.toml", text.as_bytes()).unwrap_err();
    let drawn = errors.render(Style::Plain);
    assert!(drawn.contains("`../requirements.lock` leaves the provider's folder"), "{drawn}");
    assert!(drawn.contains("provider.toml:5:8"), "{drawn}");
}

#[test]
fn names_that_the_catalog_lacks_are_refused_in_a_provider_with_suggestions() {
    let bind = |text: &str| bind_provider("p/provider.toml", text.as_bytes(), &support::catalog());
    assert!(bind(PROVIDER).is_ok());
    let drawn = |from: &str, to: &str| {
        let text = PROVIDER.replace(from, to);
        assert!(parse_provider("p/provider.toml", text.as_bytes()).is_ok(), "{text}");
        bind(&text).unwrap_err().render(Style::Plain)
    };
    let operator = drawn("rms_norm = ", "rms_nrom = ");
    for part in [
        "error[unknown-name]: unknown operator of the catalog `rms_nrom`",
        "p/provider.toml:7:1",
        "did you mean `rms_norm`?",
        "accepted: rms_norm, silu_and_mul, topk",
    ] {
        assert!(operator.contains(part), "{part} in {operator}");
    }
    let dtype = drawn("[\"F32\"]", "[\"F32\", \"F8_E4M3\"]");
    for part in [
        "unknown activation dtype of this operator `F8_E4M3`",
        "p/provider.toml:7:20",
        "accepted: F32, F16, BF16",
    ] {
        assert!(dtype.contains(part), "{part} in {dtype}");
    }
}

/// A folder on disk that is gone when the test ends.
struct OnDisk(PathBuf);

impl OnDisk {
    fn new(name: &str) -> Self {
        let folder =
            std::env::temp_dir().join(format!("proofhouse-gate-{}-{name}", std::process::id()));
        std::fs::create_dir_all(folder.join("inputs")).unwrap();
        Self(folder)
    }
}

impl Drop for OnDisk {
    fn drop(&mut self) {
        // What cannot be removed is a leftover in a scratch folder, and no wrong answer.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[test]
fn what_is_no_file_is_refused_by_its_kind_and_never_opened() {
    let disk = OnDisk::new("kinds");
    let inputs = disk.0.join("inputs");
    let fifo = std::process::Command::new("mkfifo").arg(inputs.join("fifo")).status().unwrap();
    assert!(fifo.success());
    std::fs::create_dir(inputs.join("folder")).unwrap();
    let socket = std::os::unix::net::UnixListener::bind(inputs.join("socket")).unwrap();
    std::os::unix::fs::symlink("/dev/zero", inputs.join("device")).unwrap();
    std::os::unix::fs::symlink("fifo", inputs.join("link")).unwrap();
    let files = DiskFolder(disk.0.clone());
    for (name, kind) in [
        ("fifo", "a FIFO"),
        ("folder", "a folder"),
        ("socket", "a socket"),
        ("device", "a device"),
        ("link", "a FIFO"),
    ] {
        let gate = format!(
            "about = \"a\"\nkind = \"correctness\"\noperator = \"rms_norm\"\nlevel = \"required\"\n\
             candidates = [\"cpu\"]\n[[cells]]\nfile = \"inputs/{name}\"\ntensors = {{ x = \"x\" }}\n"
        );
        let spec = GateSpec::parse("a/b.toml", "gates/a/b.toml", gate.as_bytes()).unwrap();
        let (catalog, providers, profiles) =
            (support::catalog(), support::providers(), support::profiles());
        let bindings = Bindings {
            catalog: &catalog,
            providers: &providers,
            profiles: &profiles,
            files: &files,
        };
        let quick = ProfileId::new("quick").unwrap();
        let errors = bind_gate(&spec, &bindings, &quick).unwrap_err();
        let drawn = errors.render(Style::Plain);
        assert!(drawn.contains("gates/a/b.toml:7:8"), "{drawn}");
        assert!(drawn.contains(&format!("it is {kind}; accepted: a regular file")), "{drawn}");
        assert!(FileSource::read(&files, &format!("inputs/{name}")).is_err());
    }
    drop(socket);
}

#[test]
fn colored_errors_hold_the_same_words() {
    let gate = include_bytes!("refusals/misspelled-key.toml");
    let errors = resolve(&folder("rms_norm/test.toml", gate), "quick").unwrap_err();
    let colored = errors.render(Style::Colored);
    assert!(colored.contains('\u{1b}') && colored.contains("did you mean `dtypes`?"));
}

//! cargo house: provides what the build needs, then runs the real thing.
//!
//! `cargo house VERB ...` puts the pinned libduckdb into the target folder, builds the release
//! binaries, and becomes `proofhouse VERB ...`. Standard output belongs to proofhouse alone.

mod cargo;
mod digest;
mod error;
mod fetch;
mod layout;
mod library;
mod nvrtc;
mod pins;
mod python;
mod tarball;
#[cfg(test)]
mod testing;

use std::error::Error;
use std::ffi::OsString;
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, ExitCode};

use cargo::{Cargo, Devices, Duckdb};
use error::HouseError;
use fetch::Npm;
use layout::Layout;
use library::{Brought, Origin, Request};

/// Set-up failed: the same code that proofhouse uses for it.
const EXIT_SET_UP: u8 = 96;
/// A test failed: the same code that proofhouse uses for a failed gate.
const EXIT_TESTS_FAILED: u8 = 100;

const HELP: &str = "\
Sets up what the build needs, builds proofhouse, and runs it.

Usage: cargo house VERB [ARGUMENTS]...

Verbs of cargo house itself:
  setup   put libduckdb in place and build the release binaries, run nothing
  test    set-up and every test; arguments go to the test runner (nextest where installed)
  bundle  build for a GPU host without Rust, network or DuckDB, and pack it into one file
  help    this text

Every other verb is proofhouse's own: run, list, plan, doctor, report, query, verify, ...
`cargo house VERB --help` explains one, `cargo house -- --help` lists them all.

Examples:
  cargo house run                        the default suite
  cargo house run --filter rms_norm      a part of it
  cargo house query \"SELECT * FROM verdicts\"
  cargo house test                       every test
  cargo house test -p proofhouse-store   one crate's tests

Environment:
  PROOFHOUSE_DUCKDB_LIB          a libduckdb of your own: the file or its folder
  PROOFHOUSE_DUCKDB_LIB_SHA256   the digest it must have, when it is not the pinned build
  PROOFHOUSE_DUCKDB_FROM_SOURCE  1 compiles DuckDB instead of linking a prebuilt one (slow)
  PROOFHOUSE_NVRTC               the folder of an NVRTC of your own, for the tests of the CUDA kernels
  PROOFHOUSE_CACHE_DIR           where fetched packages are kept (~/.cache/proofhouse)
";

enum Verb {
    Help,
    SetUp,
    Test(Vec<OsString>),
    Bundle(Vec<OsString>),
    Run(Vec<OsString>),
}

impl Verb {
    fn parse(mut arguments: Vec<OsString>) -> Verb {
        match arguments.first().and_then(|first| first.to_str()) {
            None if arguments.is_empty() => Verb::Help,
            Some("help" | "--help" | "-h") if arguments.len() == 1 => Verb::Help,
            Some("setup") => Verb::SetUp,
            Some("test") => Verb::Test(arguments.split_off(1)),
            Some("bundle") => Verb::Bundle(arguments),
            Some("--") => Verb::Run(arguments.split_off(1)),
            _ => Verb::Run(arguments),
        }
    }
}

fn main() -> ExitCode {
    match run(Verb::parse(std::env::args_os().skip(1).collect())) {
        Ok(code) => code,
        Err(error) => {
            say(&format!("error: {}", with_causes(&error)));
            ExitCode::from(EXIT_SET_UP)
        }
    }
}

fn run(verb: Verb) -> Result<ExitCode, HouseError> {
    if matches!(verb, Verb::Help) {
        // A closed pipe is the reader's wish, not a failure.
        let _ = std::io::stdout().write_all(HELP.as_bytes());
        return Ok(ExitCode::SUCCESS);
    }
    let program = std::env::current_exe()
        .map_err(|source| HouseError::Unreadable { path: PathBuf::from("this program"), source })?;
    let layout = Layout::discover(&program, |name| std::env::var_os(name))?;
    let duckdb = provide_duckdb(&layout)?;
    let program = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let cargo = Cargo { layout: &layout, program, duckdb };
    if let Verb::Test(arguments) = verb {
        let steps = cargo.test(&arguments)?;
        say(&format!("cargo house test\n{}", cargo::summary(&steps)));
        let passed = cargo::all_passed(&steps);
        return Ok(if passed { ExitCode::SUCCESS } else { ExitCode::from(EXIT_TESTS_FAILED) });
    }
    if !layout.binaries.join("proofhouse").is_file() {
        say("house: building proofhouse; the first build takes some minutes");
    }
    cargo.build_release(if matches!(verb, Verb::Bundle(_)) {
        Devices::All
    } else {
        Devices::Found
    })?;
    if matches!(verb, Verb::Bundle(_)) {
        cargo.build_bundled_command()?;
    }
    match verb {
        Verb::Run(arguments) | Verb::Bundle(arguments) => become_proofhouse(&layout, &arguments),
        _ => {
            say(&format!("house: ready, {}", layout.binaries.join("proofhouse").display()));
            Ok(ExitCode::SUCCESS)
        }
    }
}

fn provide_duckdb(layout: &Layout) -> Result<Duckdb, HouseError> {
    let variable = |name| std::env::var_os(name).filter(|value| !value.is_empty());
    if variable("PROOFHOUSE_DUCKDB_FROM_SOURCE").is_some_and(|value| value != "0") {
        return Ok(Duckdb::FromSource);
    }
    let request = Request {
        folder: layout.library_folder(),
        cache: layout.cache.clone(),
        pin: pins::Pin::for_this_machine(),
        brought: Brought {
            library: variable("PROOFHOUSE_DUCKDB_LIB").map(PathBuf::from),
            sha256: variable("PROOFHOUSE_DUCKDB_LIB_SHA256")
                .map(|digest| digest.to_string_lossy().trim().to_owned()),
        },
        fetch: &Npm { program: "npm".into() },
        say: &|line| say(&format!("house: {line}")),
    };
    if library::ensure(&request)? != Origin::InPlace {
        say(&format!("house: libduckdb is in {}", request.folder.display()));
    }
    Ok(Duckdb::Prebuilt)
}

/// Replaces this process, so that signals and the exit code are proofhouse's own.
fn become_proofhouse(layout: &Layout, arguments: &[OsString]) -> Result<ExitCode, HouseError> {
    let program = layout.binaries.join("proofhouse");
    let source = Command::new(&program).args(arguments).exec();
    Err(HouseError::NotStarted { program: program.display().to_string(), source })
}

fn say(line: &str) {
    // Where standard error is closed there is nobody to tell.
    let _ = writeln!(std::io::stderr(), "{line}");
}

fn with_causes(error: &HouseError) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(source) = cause {
        text.push_str(&format!("\n  because: {source}"));
        cause = source.source();
    }
    text
}

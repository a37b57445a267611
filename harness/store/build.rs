//! Lets test binaries find the libduckdb that `cargo house` put in the target folder.
//!
//! The same few lines are in `harness/cli/build.rs`: cargo applies linker arguments to the package's
//! own binaries only, and sharing them would need one more crate.

use std::env;
use std::path::{Path, PathBuf};

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-env-changed=DUCKDB_LIB_DIR");
    if env::var_os("CARGO_FEATURE_DUCKDB_FROM_SOURCE").is_some() {
        return;
    }
    let origin = match env::var("CARGO_CFG_TARGET_OS").as_deref() {
        Ok("macos") => "@loader_path",
        _ => "$ORIGIN",
    };
    // From `<profile>/`, `<profile>/deps/` and `<triple>/<profile>/deps/`.
    for up in ["..", "../..", "../../.."] {
        println!("cargo::rustc-link-arg=-Wl,-rpath,{origin}/{up}/house/duckdb");
    }
    let out = PathBuf::from(env::var_os("OUT_DIR").unwrap_or_default());
    if let Some(folder) = library_folder(&out) {
        println!("cargo::rustc-link-search=native={}", folder.display());
        println!("cargo::rerun-if-changed={}", folder.display());
    }
    teach(&out);
}

/// `house/duckdb` in the target folder, the nearest folder above with cargo's tag.
fn library_folder(out: &Path) -> Option<PathBuf> {
    let target = out.ancestors().find(|folder| folder.join("CACHEDIR.TAG").is_file())?;
    Some(target.join("house").join("duckdb"))
}

/// Says what to do before the linker fails with `cannot find -lduckdb`.
fn teach(out: &Path) {
    let named = env::var_os("DUCKDB_LIB_DIR").map(PathBuf::from);
    let folders = [named, library_folder(out)];
    let holds = |folder: &PathBuf| {
        ["libduckdb.so", "libduckdb.dylib"].iter().any(|file| folder.join(file).is_file())
    };
    if !folders.iter().flatten().any(holds) {
        println!(
            "cargo::warning=libduckdb is not set up; run `cargo house setup` once, then build again"
        );
    }
}

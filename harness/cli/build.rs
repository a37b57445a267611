//! Lets the proofhouse binary find the libduckdb that `cargo house` put in the target folder.
//!
//! The same few lines are in `harness/store/build.rs`: cargo applies linker arguments to the
//! package's own binaries only, and sharing them would need one more crate.

use std::env;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let origin = match env::var("CARGO_CFG_TARGET_OS").as_deref() {
        Ok("macos") => "@loader_path",
        _ => "$ORIGIN",
    };
    // From `<profile>/`, `<profile>/deps/` and `<triple>/<profile>/deps/`.
    for up in ["..", "../..", "../../.."] {
        println!("cargo::rustc-link-arg=-Wl,-rpath,{origin}/{up}/house/duckdb");
    }
}

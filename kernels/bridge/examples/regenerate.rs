//! Writes `include/proofhouse_kernels.h` again, from the definitions in `src`.
//! Read the difference before it is committed: `cargo run -p proofhouse-bridge --example regenerate`.
//! Every difference is another version of the interface.
#![allow(clippy::expect_used, reason = "a generator that cannot write has failed")]

#[path = "../tests/generate/mod.rs"]
mod generate;

use std::io;
use std::path::Path;

fn main() -> io::Result<()> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("include/proofhouse_kernels.h");
    std::fs::write(path, generate::header())
}

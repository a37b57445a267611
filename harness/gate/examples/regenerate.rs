//! Writes the generated files again: the JSON Schemas in `gates/schema/`, the catalog's part of `docs/kernels.md` and the
//! rendered errors in `tests/refusals/`.
//! Read the difference before it is committed: `cargo run -p proofhouse-gate --example regenerate`.

#[path = "../tests/support/mod.rs"]
mod support;

use std::io;
use std::path::Path;

use proofhouse_gate::declare::{DiskFolder, Style, read_catalog};
use proofhouse_gate::document;

fn main() -> io::Result<()> {
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    for (path, text) in proofhouse_gate::schemas() {
        let path = package.join("../..").join(path);
        if let Some(folder) = path.parent() {
            std::fs::create_dir_all(folder)?;
        }
        std::fs::write(path, text)?;
    }
    let catalog =
        read_catalog(&DiskFolder(package.join("../../gates"))).map_err(io::Error::other)?;
    let kernels = package.join("../..").join(document::KERNELS);
    let text = std::fs::read_to_string(&kernels)?;
    std::fs::write(kernels, document::redraw(&text, &catalog).map_err(io::Error::other)?)?;
    for entry in std::fs::read_dir(package.join("tests/refusals"))? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "toml") {
            let folder = support::folder("rms_norm/test.toml", &std::fs::read(&path)?);
            let text = match support::resolve(&folder, "quick") {
                Ok(gates) => format!("accepted: {} gates", gates.len()),
                Err(errors) => errors.render(Style::Plain) + "\n",
            };
            std::fs::write(path.with_extension("txt"), text)?;
        }
    }
    Ok(())
}

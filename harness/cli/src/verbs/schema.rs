//! `schema`: the files that are generated and committed.

use std::fs;
use std::io;
use std::path::PathBuf;
use std::process::Command;

use proofhouse_gate::document;
use proofhouse_schema::canonical;
use proofhouse_schema::exit::Exit;

use super::out;
use crate::arguments::SchemaArguments;
use crate::error::CliError;
use crate::project::{Project, binaries};

/// Writes the generated files, or compares them with what is there.
pub fn schema(project: &Project, asked: &SchemaArguments) -> Result<Exit, CliError> {
    let mut files: Vec<(PathBuf, Vec<u8>)> = proofhouse_gate::schemas()
        .into_iter()
        .map(|(path, text)| (project.root.join(path), text.into_bytes()))
        .collect();
    let catalog = catalog()?;
    files.extend(kernels(project, &catalog)?);
    files.push((project.gates.join("catalog.json"), catalog));
    let mut exit = Exit::Passed;
    for (path, bytes) in files {
        let same = fs::read(&path).is_ok_and(|there| there == bytes);
        let shown = project.shown(&path);
        if asked.write {
            let write = |source| CliError::Write { path: path.clone(), source };
            if let Some(folder) = path.parent() {
                fs::create_dir_all(folder).map_err(write)?;
            }
            fs::write(&path, bytes).map_err(write)?;
            out(&format!("{} {shown}\n", if same { "same   " } else { "written" }))?;
        } else if same {
            out(&format!("same    {shown}\n"))?;
        } else {
            out(&format!("differs {shown}: `proofhouse schema --write` writes it\n"))?;
            exit = exit.worst(Exit::Failed);
        }
    }
    Ok(exit)
}

/// The document of the kernels with the catalog's part drawn anew; none in a project without that document.
fn kernels(project: &Project, catalog: &[u8]) -> Result<Option<(PathBuf, Vec<u8>)>, CliError> {
    let path = project.root.join(document::KERNELS);
    let Ok(text) = fs::read_to_string(&path) else { return Ok(None) };
    let unreadable = |source| CliError::Read { path: path.clone(), source };
    let catalog = canonical::parse(catalog).map_err(|error| unreadable(io::Error::other(error)))?;
    let drawn = document::redraw(&text, &catalog);
    let drawn = drawn.map_err(|error| unreadable(io::Error::other(error)))?;
    Ok(Some((path, drawn.into_bytes())))
}

/// The catalog, as the checker exports it: this command links no kernel.
fn catalog() -> Result<Vec<u8>, CliError> {
    let path = binaries()?.join("proofhouse-worker-oracle");
    let asked = Command::new(&path).arg("--catalog").output();
    match asked {
        Ok(output) if output.status.success() => Ok(output.stdout),
        _ => Err(CliError::NoBinary { path }),
    }
}

//! `schema`: the files that are generated and committed.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

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
    files.push((project.gates.join("catalog.json"), catalog()?));
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

/// The catalog, as the checker exports it: this command links no kernel.
fn catalog() -> Result<Vec<u8>, CliError> {
    let path = binaries()?.join("proofhouse-worker-oracle");
    let asked = Command::new(&path).arg("--catalog").output();
    match asked {
        Ok(output) if output.status.success() => Ok(output.stdout),
        _ => Err(CliError::NoBinary { path }),
    }
}

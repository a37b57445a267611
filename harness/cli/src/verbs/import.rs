//! `import`: merge another evidence folder into this one.

use std::path::Path;

use proofhouse_evidence::{Folder, Writer};
use proofhouse_schema::exit::Exit;

use super::{archive, out, run::writer_id};
use crate::arguments::ImportArguments;
use crate::error::CliError;
use crate::project::Project;

/// A result file, unpacked; the folder goes with the value.
fn unpacked(file: &Path) -> Result<tempfile::TempDir, CliError> {
    let folder = tempfile::tempdir()
        .map_err(|source| CliError::Write { path: std::env::temp_dir(), source })?;
    archive::unpack(file, folder.path())?;
    Ok(folder)
}

/// Verifies the other folder and copies what is not here yet.
pub fn import(project: &Project, asked: &ImportArguments) -> Result<Exit, CliError> {
    let unpacked = match asked.from.is_file() {
        true => Some(unpacked(&asked.from)?),
        false => None,
    };
    let from = match &unpacked {
        Some(folder) => folder.path().join("evidence"),
        None => asked.from.clone(),
    };
    if unpacked.is_some() && !from.is_dir() {
        return Err(CliError::NoEvidence { path: asked.from.clone() });
    }
    if !from.is_dir() {
        return Err(CliError::NoFolder { what: "the evidence folder", path: asked.from.clone() });
    }
    let from = Folder::new(&from);
    if from.files()?.is_empty() {
        out(&format!("{} holds no record: nothing is imported\n", asked.from.display()))?;
        return Ok(Exit::NothingSelected);
    }
    let mut writer = Writer::open(Folder::new(&project.evidence), &writer_id()?)?;
    let done = writer.import(&from)?;
    out(&format!(
        "imported {} new files, {} were here already; {} logs are new or grew\n",
        done.new, done.known, done.logs
    ))?;
    Ok(Exit::Passed)
}

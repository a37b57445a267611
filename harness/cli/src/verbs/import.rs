//! `import`: merge another evidence folder into this one.

use proofhouse_evidence::{Folder, Writer};
use proofhouse_schema::exit::Exit;

use super::{out, run::writer_id};
use crate::arguments::ImportArguments;
use crate::error::CliError;
use crate::project::Project;

/// Verifies the other folder and copies what is not here yet.
pub fn import(project: &Project, asked: &ImportArguments) -> Result<Exit, CliError> {
    if !asked.from.is_dir() {
        return Err(CliError::NoFolder { what: "the evidence folder", path: asked.from.clone() });
    }
    let from = Folder::new(&asked.from);
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

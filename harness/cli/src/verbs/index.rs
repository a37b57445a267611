//! The index, brought up to date.

use std::fs;

use proofhouse_evidence::Folder;
use proofhouse_report::plain;
use proofhouse_store::{Store, StoreError};

use super::gaps::{gaps, sentence};
use crate::error::CliError;
use crate::project::Project;
use crate::terminal::tell;

/// The index with what is wrong with the evidence that it was made from.
#[derive(Debug)]
pub struct Indexed {
    /// The index.
    pub store: Store,
    /// Why the evidence is not whole, in sentences.
    pub gaps: Vec<String>,
}

/// Opens the index and adds what is new. An index that cannot be used is made again: it holds nothing of its own.
/// Where it cannot be written (another run holds it, a read-only project) one in memory serves.
///
/// # Errors
/// When the evidence folder cannot be listed, or the database fails.
pub fn indexed(project: &Project) -> Result<Indexed, CliError> {
    let path = project.scratch.join("index.duckdb");
    let opened = fs::create_dir_all(&project.scratch)
        .map_err(|source| CliError::Write { path: project.scratch.clone(), source })
        .and_then(|()| match Store::open(&path) {
            Err(error @ (StoreError::NotAnIndex { .. } | StoreError::NewerLayout { .. })) => {
                tell(&format!("{error}; it is made again"));
                fs::remove_file(&path)
                    .map_err(|source| CliError::Write { path: path.clone(), source })?;
                Ok(Store::open(&path)?)
            }
            other => Ok(other?),
        });
    let mut store = match opened {
        Ok(store) => store,
        Err(error) => {
            tell(&format!("{error}; an index in memory is used"));
            Store::in_memory()?
        }
    };
    let folder = Folder::new(&project.evidence);
    let done = store.ingest(&folder)?;
    let mut gaps = gaps(&folder.gaps()?);
    let refused = done
        .refused
        .iter()
        .map(|r| format!("{} ({})", plain(&r.file), plain(&r.source.to_string())));
    gaps.extend(sentence("left out, since what they hold is not evidence", refused.collect()));
    Ok(Indexed { store, gaps })
}

//! The index, brought up to date.

use std::fs;

use proofhouse_evidence::Folder;
use proofhouse_store::{Store, StoreError};

use crate::error::CliError;
use crate::project::Project;
use crate::terminal::tell;

/// Opens the index and adds what is new. An index that cannot be used is made again: it holds nothing of its own.
/// Where it cannot be written (another run holds it, a read-only project) one in memory serves.
///
/// # Errors
/// When the evidence folder cannot be listed, or the database fails.
pub fn indexed(project: &Project) -> Result<Store, CliError> {
    Ok(indexed_with_gaps(project)?.0)
}

/// As [`indexed`], and how many evidence files were left out because they cannot be trusted.
///
/// # Errors
/// As [`indexed`].
pub fn indexed_with_gaps(project: &Project) -> Result<(Store, usize), CliError> {
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
    let done = store.ingest(&Folder::new(&project.evidence))?;
    for refused in &done.refused {
        tell(&format!("left out {}: {}", refused.file, refused.source));
    }
    Ok((store, done.refused.len()))
}

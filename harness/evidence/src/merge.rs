//! Merging another folder into this one: a union of files, after verification.

use std::fs;
use std::path::Path;

use proofhouse_schema::canonical::Digest;

use crate::error::EvidenceError;
use crate::folder::Folder;
use crate::writer::{Placed, Writer};

/// What an import did.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Imported {
    /// Files that came new.
    pub new: usize,
    /// Files that were there already.
    pub known: usize,
    /// Logs that came new or grew.
    pub logs: usize,
}

impl Writer {
    /// Copies every record, blob and log of `from` that is not here yet. The other folder is verified first and
    /// any finding refuses it whole. Its logs come along under their writers' names: this writer's log says
    /// nothing of them.
    ///
    /// # Errors
    /// [`EvidenceError::Rejected`], [`EvidenceError::Diverged`], [`EvidenceError::Busy`], or IO.
    pub fn import(&mut self, from: &Folder) -> Result<Imported, EvidenceError> {
        let checked = from.verify_calmly()?;
        if let Some(first) = checked.findings.first() {
            return Err(EvidenceError::Rejected {
                path: from.root().to_owned(),
                count: checked.findings.len(),
                first: format!("{}: {}", first.file, first.detail),
            });
        }
        let mut done = Imported::default();
        let logs = from.logs()?;
        let grown =
            logs.iter().map(|log| self.log_to_copy(from, log)).collect::<Result<Vec<_>, _>>()?;
        for file in from.blobs()?.into_iter().chain(from.files()?) {
            let bytes = from.bytes(&file)?;
            match self.place_foreign(&file, &bytes, &Digest::of(&bytes))? {
                Placed::New => done.new += 1,
                Placed::Known => done.known += 1,
            }
        }
        for (log, bytes) in logs.iter().zip(grown) {
            let Some(bytes) = bytes else { continue };
            let path = self.folder().root().join(log);
            replace(&path, &bytes)?;
            done.logs += 1;
        }
        Ok(done)
    }

    /// The other folder's log where it is new here or continues ours; nothing where ours is as long or longer.
    fn log_to_copy(&self, from: &Folder, log: &str) -> Result<Option<Vec<u8>>, EvidenceError> {
        let theirs = from.bytes(log)?;
        if !self.folder().root().join(log).exists() {
            return Ok(Some(theirs));
        }
        let ours = self.folder().bytes(log)?;
        if ours.starts_with(&theirs) {
            Ok(None)
        } else if theirs.starts_with(&ours) {
            Ok(Some(theirs))
        } else {
            Err(EvidenceError::Diverged { path: self.folder().root().join(log) })
        }
    }
}

/// Writes a log whole beside its place and renames it over: it only ever grows.
fn replace(path: &Path, bytes: &[u8]) -> Result<(), EvidenceError> {
    let beside = path.with_extension("jsonl.part");
    fs::write(&beside, bytes)
        .and_then(|()| fs::rename(&beside, path))
        .map_err(|e| EvidenceError::io("copy it", path, e))
}

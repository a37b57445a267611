//! Parts of work that is not evidence yet: a run keeps them so that the next one need not begin again.
//!
//! They lie in a hidden folder, which no verification, no import and no index looks at, and which may be deleted at any
//! time. What they hold is their writer's business.

use std::fs;
use std::path::PathBuf;

use proofhouse_schema::canonical::Digest;

use crate::error::EvidenceError;
use crate::folder::Folder;
use crate::writer::Writer;

/// The folder's name.
const PARTIAL: &str = ".partial";

impl Folder {
    /// The parts that are kept under a key, in the order of their numbers. One that cannot be read is as good as none.
    #[must_use]
    pub fn kept(&self, key: &Digest) -> Vec<Vec<u8>> {
        let names = fs::read_dir(self.place_of(key)).into_iter().flatten().flatten();
        let number = |name: &str| name.strip_suffix(".json")?.parse::<u32>().ok();
        let mut numbers: Vec<u32> =
            names.filter_map(|entry| number(entry.file_name().to_str()?)).collect();
        numbers.sort_unstable();
        let read = |number: &u32| self.bytes(&format!("{PARTIAL}/{key}/{number}.json")).ok();
        numbers.iter().filter_map(read).collect()
    }

    fn place_of(&self, key: &Digest) -> PathBuf {
        self.root().join(PARTIAL).join(key.as_str())
    }
}

impl Writer {
    /// Keeps a part under a key, in place of one with the same number.
    ///
    /// # Errors
    /// When it cannot be written whole; what was there before is then still there.
    pub fn keep(&mut self, key: &Digest, number: u32, bytes: &[u8]) -> Result<(), EvidenceError> {
        let folder = self.folder().place_of(key);
        fs::create_dir_all(&folder).map_err(|e| EvidenceError::io("make it", &folder, e))?;
        // Whoever commits the evidence folder does not commit what is no evidence.
        let ignore = self.folder().root().join(PARTIAL).join(".gitignore");
        fs::write(&ignore, "*\n").map_err(|e| EvidenceError::io("write it", &ignore, e))?;
        let (path, beside) = (folder.join(format!("{number}.json")), folder.join(".new"));
        fs::write(&beside, bytes)
            .and_then(|()| fs::rename(&beside, &path))
            .map_err(|e| EvidenceError::io("write it", &path, e))
    }

    /// Forgets everything that is kept under a key.
    ///
    /// # Errors
    /// When it cannot be removed.
    pub fn forget(&mut self, key: &Digest) -> Result<(), EvidenceError> {
        let folder = self.folder().place_of(key);
        match fs::remove_dir_all(&folder) {
            Err(e) if e.kind() != std::io::ErrorKind::NotFound => {
                Err(EvidenceError::io("remove it", &folder, e))
            }
            _ => Ok(()),
        }
    }
}

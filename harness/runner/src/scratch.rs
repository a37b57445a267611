//! Folders for tensors in shared memory. What a killed run left is removed by the next one.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};

const PREFIX: &str = "proofhouse-tensors-";
const LOCK: &str = ".alive";

/// A folder for the tensors of one executor; removed when dropped.
#[derive(Debug)]
pub(crate) struct Scratch {
    folder: tempfile::TempDir,
    _alive: File,
}

impl Scratch {
    /// Makes one.
    pub(crate) fn make(shared_memory: &Path) -> std::io::Result<Self> {
        let folder = tempfile::Builder::new().prefix(PREFIX).tempdir_in(shared_memory)?;
        // Locked before it has its name: nobody sees a lock file of a living run that is free.
        let unnamed = folder.path().join(".new");
        let alive = File::create(&unnamed)?;
        flock(&alive, FlockOperation::NonBlockingLockExclusive)?;
        fs::rename(unnamed, folder.path().join(LOCK))?;
        Ok(Self { folder, _alive: alive })
    }

    /// The path of a tensor file.
    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(format!("{name}.safetensors"))
    }

    /// Removes a tensor file, if it is there.
    pub(crate) fn remove(&self, name: &str) {
        // One that was never made is as good as removed.
        let _ = fs::remove_file(self.file(name));
    }

    /// Removes folders whose run is gone; gives how many.
    pub(crate) fn clear_stale(shared_memory: &Path) -> usize {
        let entries = fs::read_dir(shared_memory).into_iter().flatten().flatten();
        let stale = entries.filter(|entry| {
            entry.file_name().to_string_lossy().starts_with(PREFIX) && is_stale(&entry.path())
        });
        stale.filter(|entry| fs::remove_dir_all(entry.path()).is_ok()).count()
    }
}

/// A folder without a lock file may be one that is just being made: it is left alone.
fn is_stale(folder: &Path) -> bool {
    let Ok(file) = File::open(folder.join(LOCK)) else { return false };
    flock(&file, FlockOperation::NonBlockingLockExclusive).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_a_dead_run_left_is_removed() {
        let root = tempfile::tempdir().unwrap();
        let alive = Scratch::make(root.path()).unwrap();
        let dead = root.path().join(format!("{PREFIX}dead"));
        fs::create_dir(&dead).unwrap();
        fs::write(dead.join(LOCK), b"").unwrap();
        fs::create_dir(root.path().join("other")).unwrap();
        assert_eq!(Scratch::clear_stale(root.path()), 1);
        assert!(alive.file("a").parent().unwrap().is_dir());
        assert!(!dead.exists());
        assert!(root.path().join("other").is_dir());
    }
}

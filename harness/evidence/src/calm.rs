//! Whether a run writes to a folder while it is read.

use std::fs::{self, File};
use std::io::{Read as _, Seek as _, Write as _};
use std::os::unix::fs::MetadataExt as _;

use rustix::fs::{FlockOperation, flock};

use crate::error::EvidenceError;
use crate::folder::Folder;

/// The lock file's name.
pub(crate) const LOCK: &str = ".lock";

/// A moment in which no run held the folder. Two that are equal: none held it in between either, for each counts one on in
/// the lock file when it begins.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Calm {
    /// The lock file's inode and count; none where nobody ever wrote.
    mark: Option<(u64, u64)>,
}

impl Folder {
    /// Looks whether a run holds the folder, without keeping one from beginning.
    ///
    /// # Errors
    /// [`EvidenceError::Busy`] when one does; [`EvidenceError::Unreadable`] for a lock file that cannot be looked at.
    pub fn calm(&self) -> Result<Calm, EvidenceError> {
        let path = self.root().join(LOCK);
        let unreadable = |source| EvidenceError::Unreadable { path: path.clone(), source };
        let meta = match fs::symlink_metadata(&path) {
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(Calm { mark: None }),
            other => other.map_err(unreadable)?,
        };
        if !meta.is_file() {
            return Err(EvidenceError::Path { path });
        }
        let mut file = File::open(&path).map_err(unreadable)?;
        // A file system without locks has no run that holds one.
        if flock(&file, FlockOperation::NonBlockingLockShared) == Err(rustix::io::Errno::WOULDBLOCK)
        {
            let (holder, _) = said(&mut file);
            return Err(EvidenceError::Busy { path: self.root().to_owned(), holder });
        }
        let (_, count) = said(&mut file);
        let inode = file.metadata().map_err(unreadable)?.ino();
        Ok(Calm { mark: Some((inode, count)) })
    }
}

/// What a lock file says: who took the lock last, and how often it was taken. Only messages and [`Calm`] rest on it; the
/// lock itself is the kernel's.
pub(crate) fn said(file: &mut File) -> (String, u64) {
    let mut text = String::new();
    // What cannot be read says nothing.
    let _ = file.take(200).read_to_string(&mut text);
    let mut lines = text.lines();
    let holder = lines.next().filter(|line| !line.is_empty()).unwrap_or("an unnamed process");
    let count = lines.next().and_then(|line| line.parse().ok()).unwrap_or(0);
    (holder.to_owned(), count)
}

/// What the lock file says from now on.
pub(crate) fn say(file: &mut File) -> std::io::Result<()> {
    file.rewind()?;
    let (_, count) = said(file);
    file.set_len(0)?;
    file.rewind()?;
    write!(file, "process {}\n{}\n", std::process::id(), count.wrapping_add(1))
}

//! Folders for tensors in shared memory. What a killed run left is removed by the next one.

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, OFlags, flock};
use rustix::process::{Pid, test_kill_process};

/// The rest of a name is the process that made the folder, and a drawn word.
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
        let prefix = format!("{PREFIX}{}-", std::process::id());
        let folder = tempfile::Builder::new().prefix(&prefix).tempdir_in(shared_memory)?;
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

    /// Removes this user's folders whose run is gone; gives how many. Shared memory belongs to every user of the machine:
    /// links and what others made are left alone.
    pub(crate) fn clear_stale(shared_memory: &Path) -> usize {
        let entries = fs::read_dir(shared_memory).into_iter().flatten().flatten();
        let stale = entries.filter(|entry| {
            let name = entry.file_name();
            let rest = name.to_str().and_then(|name| name.strip_prefix(PREFIX));
            rest.is_some_and(|rest| is_stale(&entry.path(), rest))
        });
        stale.filter(|entry| fs::remove_dir_all(entry.path()).is_ok()).count()
    }
}

/// Whether nobody holds a folder. One without a lock file may be one that is just being made: it goes only when the process
/// in its name is gone.
fn is_stale(folder: &Path, rest: &str) -> bool {
    let own = rustix::process::geteuid().as_raw();
    let mine = fs::symlink_metadata(folder).is_ok_and(|meta| meta.is_dir() && meta.uid() == own);
    if !mine {
        return false;
    }
    // A pipe or a link in the lock's place is opened without waiting, and not followed.
    let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits() as i32;
    match OpenOptions::new().read(true).custom_flags(flags).open(folder.join(LOCK)) {
        Ok(file) => flock(&file, FlockOperation::NonBlockingLockExclusive).is_ok(),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            let pid = rest.split('-').next().and_then(|pid| pid.parse().ok());
            pid.and_then(Pid::from_raw).is_some_and(is_gone)
        }
        Err(_) => false,
    }
}

fn is_gone(pid: Pid) -> bool {
    test_kill_process(pid) == Err(rustix::io::Errno::SRCH)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The id of a process that has ended.
    fn gone() -> u32 {
        let mut child = std::process::Command::new("true").spawn().unwrap();
        child.wait().unwrap();
        child.id()
    }

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

    #[test]
    fn a_folder_that_was_never_finished_goes_with_its_process() {
        let root = tempfile::tempdir().unwrap();
        let make = |pid: u32| {
            let path = root.path().join(format!("{PREFIX}{pid}-x"));
            fs::create_dir(&path).unwrap();
            path
        };
        let (dead, living) = (make(gone()), make(std::process::id()));
        assert_eq!(Scratch::clear_stale(root.path()), 1);
        assert!(!dead.exists() && living.exists());
    }

    #[test]
    fn links_pipes_and_what_others_own_are_left_alone() {
        use rustix::fs::{CWD, FileType, Mode, mknodat};
        let root = tempfile::tempdir().unwrap();
        let path = |name: &str| root.path().join(format!("{PREFIX}{name}"));
        let target = tempfile::tempdir().unwrap();
        fs::write(target.path().join(LOCK), b"").unwrap();
        std::os::unix::fs::symlink(target.path(), path("link")).unwrap();
        fs::create_dir(path("pipe")).unwrap();
        let pipe = path("pipe").join(LOCK);
        mknodat(CWD, &pipe, FileType::Fifo, Mode::from_raw_mode(0o600), 0).unwrap();
        fs::write(path("file"), b"").unwrap();
        fs::create_dir(path("foreign")).unwrap();
        fs::write(path("foreign").join(LOCK), b"").unwrap();
        // Only root can give a folder away; for others this folder is one more of their own.
        let given = std::os::unix::fs::chown(path("foreign"), Some(65_534), None).is_ok();
        Scratch::clear_stale(root.path());
        assert!(path("link").exists() && target.path().exists() && path("file").exists());
        assert_eq!(path("foreign").exists(), given);
    }
}

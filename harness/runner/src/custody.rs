//! Custody: locks by which runs exclude each other. The kernel frees them when their holder dies, however it dies.

use std::fs::{File, OpenOptions};
use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, flock};

/// A lock that could not be had.
#[derive(Debug, thiserror::Error)]
pub enum CustodyError {
    /// Another run holds it.
    #[error("{path} is held by {holder}")]
    Held {
        /// The lock file.
        path: PathBuf,
        /// Who holds it, as far as the file says.
        holder: String,
    },
    /// The lock file could not be used.
    #[error("the lock file {path} could not be used")]
    Io {
        /// The lock file.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// The run was interrupted while it waited.
    #[error("the run was interrupted while it waited for {path}")]
    Interrupted {
        /// The lock file.
        path: PathBuf,
    },
}

/// How a device is held.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hold {
    /// Beside others who do not measure time.
    Shared,
    /// Alone: time is measured.
    Alone,
}

/// A device that is held; dropping frees it.
#[derive(Debug)]
pub struct Custody {
    file: File,
}

impl Drop for Custody {
    fn drop(&mut self) {
        // Said aloud, because a process that is just being started has the file open, too, until it runs its own program.
        let _ = flock(&self.file, FlockOperation::Unlock);
    }
}

impl Custody {
    /// Tries to hold the device of this name, e.g. `cpu` or a GPU's UUID.
    ///
    /// # Errors
    /// [`CustodyError::Held`] when another run holds it in a way that excludes this one.
    pub fn take(folder: &Path, device: &str, hold: Hold) -> Result<Self, CustodyError> {
        let path = folder.join(format!("{device}.lock"));
        let io = |source| CustodyError::Io { path: path.clone(), source };
        make_folder(folder).map_err(io)?;
        let mut file = open_lock(&path).map_err(io)?;
        let operation = match hold {
            Hold::Shared => FlockOperation::NonBlockingLockShared,
            Hold::Alone => FlockOperation::NonBlockingLockExclusive,
        };
        match flock(&file, operation) {
            Ok(()) => {}
            Err(rustix::io::Errno::WOULDBLOCK) => {
                let holder = holder(&mut file);
                return Err(CustodyError::Held { path, holder });
            }
            Err(error) => return Err(io(error.into())),
        }
        // Only a message for others; the lock is what counts.
        let _ = file.set_len(0).and_then(|()| writeln!(file, "process {}", std::process::id()));
        Ok(Self { file })
    }

    /// As [`Custody::take`], waiting no longer than `limit`.
    pub(crate) async fn wait(
        folder: &Path,
        device: &str,
        hold: Hold,
        limit: Duration,
        stop: &crate::Stop,
    ) -> Result<Self, CustodyError> {
        let begun = Instant::now();
        loop {
            match Custody::take(folder, device, hold) {
                Err(CustodyError::Held { .. }) if begun.elapsed() < limit => {}
                done => return done,
            }
            tokio::select! {
                () = stop.wait() => return Err(CustodyError::Interrupted { path: folder.join(device) }),
                () = tokio::time::sleep(Duration::from_millis(50)) => {}
            }
        }
    }
}

/// The folder is shared by every user of the machine, as `/tmp` is.
fn make_folder(folder: &Path) -> std::io::Result<()> {
    use std::os::unix::fs::PermissionsExt as _;
    if folder.is_dir() {
        return Ok(());
    }
    std::fs::create_dir_all(folder)?;
    std::fs::set_permissions(folder, std::fs::Permissions::from_mode(0o1777))
}

fn open_lock(path: &Path) -> std::io::Result<File> {
    use std::os::unix::fs::OpenOptionsExt as _;
    OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o666).open(path)
}

fn holder(file: &mut File) -> String {
    let mut text = String::new();
    match file.take(200).read_to_string(&mut text) {
        Ok(_) if !text.trim().is_empty() => text.trim().to_owned(),
        _ => "an unnamed process".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_measures_time_excludes_everybody() {
        let folder = tempfile::tempdir().unwrap();
        let first = Custody::take(folder.path(), "cpu", Hold::Alone).unwrap();
        for hold in [Hold::Alone, Hold::Shared] {
            let second = Custody::take(folder.path(), "cpu", hold);
            let Err(CustodyError::Held { holder, .. }) = second else { panic!("{second:?}") };
            assert_eq!(holder, format!("process {}", std::process::id()));
        }
        assert!(Custody::take(folder.path(), "other", Hold::Alone).is_ok());
        drop(first);
        let _a = Custody::take(folder.path(), "cpu", Hold::Shared).unwrap();
        let _b = Custody::take(folder.path(), "cpu", Hold::Shared).unwrap();
        assert!(Custody::take(folder.path(), "cpu", Hold::Alone).is_err());
    }
}

//! Writing to an evidence folder: atomic, logged, never over anything.

use std::fs::{self, File, OpenOptions};
use std::io::{Read as _, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};

use proofhouse_schema::canonical::{self, Digest};
use proofhouse_schema::evidence::{BlobRef, Record};
use proofhouse_schema::ids::WriterId;
use proofhouse_schema::samples::Samples;
use proofhouse_schema::units::{Bytes, Wide};
use rustix::fs::{FlockOperation, RenameFlags};

use crate::blob;
use crate::calm::{LOCK, said, say};
use crate::date::utc_date;
use crate::error::EvidenceError;
use crate::folder::{Folder, list};
use crate::log::{self, Head};

/// The prefix of temporary files; the rest is the sha256 that the file will have.
pub(crate) const TEMPORARY: &str = ".new-";
/// How often the lock is tried.
const TRIES: u32 = 5;

/// Whether a file was placed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Placed {
    /// It was not there.
    New,
    /// It was there, byte for byte.
    Known,
}

/// The one writer of a folder. It holds the folder's lock until it is dropped (or killed).
#[derive(Debug)]
pub struct Writer {
    folder: Folder,
    log: File,
    log_path: PathBuf,
    head: Head,
    _lock: File,
}

impl Writer {
    /// Makes the folder if need be, takes its lock, finishes what a killed writer left, and begins (or goes on
    /// with) the writer's log.
    ///
    /// # Errors
    /// [`EvidenceError::Locked`] when another run writes there; IO errors otherwise.
    pub fn open(folder: Folder, writer: &WriterId) -> Result<Self, EvidenceError> {
        for path in
            [folder.root().to_owned(), folder.root().join("log"), folder.root().join("blobs")]
        {
            fs::create_dir_all(&path).map_err(|e| EvidenceError::io("make it", &path, e))?;
        }
        let lock = lock(&folder.root().join(LOCK))?;
        recover(&folder)?;
        let log_path = folder.root().join("log").join(format!("{writer}.jsonl"));
        let io = |what| {
            let path = log_path.clone();
            move |e| EvidenceError::io(what, &path, e)
        };
        let mut file = OpenOptions::new()
            .create(true)
            .read(true)
            .append(true)
            .open(&log_path)
            .map_err(io("open it"))?;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes).map_err(io("read it"))?;
        let head = log::read(&log_path, &bytes)?.head;
        Ok(Self { folder, log: file, log_path, head, _lock: lock })
    }

    /// The folder that is written.
    #[must_use]
    pub fn folder(&self) -> &Folder {
        &self.folder
    }

    /// Writes a record dated by `at`. A record that is there already, byte for byte, is left as it is.
    ///
    /// # Errors
    /// An [`EvidenceError`]; the record is then not in the folder.
    pub fn put(&mut self, record: &Record, at: Wide) -> Result<(Digest, String), EvidenceError> {
        let bytes = canonical::to_bytes(record).map_err(|source| EvidenceError::NotCanonical {
            path: self.folder.root().to_owned(),
            source,
        })?;
        let digest = Digest::of(&bytes);
        let file = format!("{}/{}-{}.json", room(record), utc_date(at), digest.short());
        self.place(&file, &bytes, &digest, at)?;
        Ok((digest, file))
    }

    /// Compresses and writes samples.
    ///
    /// # Errors
    /// As [`Writer::put`].
    pub fn put_samples(&mut self, samples: &Samples, at: Wide) -> Result<BlobRef, EvidenceError> {
        let root = self.folder.root().join("blobs");
        let columns = samples
            .encode()
            .map_err(|source| EvidenceError::NotCanonical { path: root.clone(), source })?;
        let bytes = blob::pack(&root, &columns)?;
        let sha256 = Digest::of(&bytes);
        self.place(&format!("blobs/{sha256}"), &bytes, &sha256, at)?;
        Ok(BlobRef { sha256, size: Bytes(bytes.len() as u64), rows: samples.rows.len() as u64 })
    }

    fn place(
        &mut self,
        file: &str,
        bytes: &[u8],
        digest: &Digest,
        at: Wide,
    ) -> Result<(), EvidenceError> {
        let Some(temporary) = self.stage(file, bytes, digest)? else { return Ok(()) };
        self.append(at, file, digest)?;
        publish(&temporary, &self.folder.root().join(file))
    }

    /// Writes and syncs the temporary file; nothing where the same bytes are there already.
    fn stage(
        &self,
        file: &str,
        bytes: &[u8],
        digest: &Digest,
    ) -> Result<Option<PathBuf>, EvidenceError> {
        let path = self.folder.root().join(file);
        if path.exists() {
            let there = self.folder.bytes(file)?;
            return if there == bytes { Ok(None) } else { Err(EvidenceError::Exists { path }) };
        }
        let folder = path.parent().unwrap_or(self.folder.root()).to_owned();
        fs::create_dir_all(&folder).map_err(|e| EvidenceError::io("make it", &folder, e))?;
        let temporary = folder.join(format!("{TEMPORARY}{digest}"));
        write_whole(&temporary, bytes).inspect_err(|_| {
            // Best effort: the error that matters is already on its way up.
            let _ = fs::remove_file(&temporary);
        })?;
        Ok(Some(temporary))
    }

    /// Places a file that another folder's log names.
    pub(crate) fn place_foreign(
        &mut self,
        file: &str,
        bytes: &[u8],
        digest: &Digest,
    ) -> Result<Placed, EvidenceError> {
        let Some(temporary) = self.stage(file, bytes, digest)? else { return Ok(Placed::Known) };
        publish(&temporary, &self.folder.root().join(file))?;
        Ok(Placed::New)
    }

    /// Appends a line; if that fails, what was written of it is taken back.
    fn append(&mut self, at: Wide, file: &str, digest: &Digest) -> Result<(), EvidenceError> {
        let io = |e| EvidenceError::io("append to it", &self.log_path, e);
        let before = self.log.seek(SeekFrom::End(0)).map_err(io)?;
        let mut head = self.head.clone();
        let line = head.append(at, file, digest).map_err(|source| EvidenceError::NotCanonical {
            path: self.log_path.clone(),
            source,
        })?;
        if let Err(error) = self.log.write_all(&line).and_then(|()| self.log.sync_data()) {
            // Best effort: a torn line is also cut off by the next writer.
            let _ = self.log.set_len(before);
            return Err(io(error));
        }
        self.head = head;
        Ok(())
    }
}

/// The folder that a record belongs to.
pub(crate) fn room(record: &Record) -> String {
    match record {
        Record::Cell(cell) => cell.gate.id.to_string(),
        Record::Verdict(verdict) => verdict.gate.to_string(),
        Record::Session(_) => "session".to_owned(),
        Record::Selftest(_) => "selftest".to_owned(),
        Record::Calibration(_) => "calibration".to_owned(),
    }
}

/// Takes the lock. Somebody who looks whether it is held ([`Folder::calm`]) holds it for a moment, so it is tried again.
fn lock(path: &Path) -> Result<File, EvidenceError> {
    let mut file = OpenOptions::new()
        .create(true)
        .read(true)
        .write(true)
        .truncate(false)
        .open(path)
        .map_err(|e| EvidenceError::io("open it", path, e))?;
    let taken = |_| rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive).is_ok();
    let pause = || std::thread::sleep(std::time::Duration::from_millis(10));
    if !(0..TRIES)
        .inspect(|tried| {
            if *tried > 0 {
                pause()
            }
        })
        .any(taken)
    {
        let (holder, _) = said(&mut file);
        return Err(EvidenceError::Locked { path: path.to_owned(), holder });
    }
    say(&mut file).map_err(|e| EvidenceError::io("write it", path, e))?;
    Ok(file)
}

fn write_whole(path: &Path, bytes: &[u8]) -> Result<(), EvidenceError> {
    let io = |e| EvidenceError::io("write it", path, e);
    let mut file = File::create(path).map_err(io)?;
    file.write_all(bytes).map_err(io)?;
    file.sync_data().map_err(io)
}

/// Renames without replacing, and makes the name durable.
fn publish(temporary: &Path, path: &Path) -> Result<(), EvidenceError> {
    use rustix::fs::{CWD, renameat_with};
    match renameat_with(CWD, temporary, CWD, path, RenameFlags::NOREPLACE) {
        Ok(()) => {}
        Err(rustix::io::Errno::EXIST) => {
            return Err(EvidenceError::Exists { path: path.to_owned() });
        }
        // A file system without the flag: a hard link refuses to replace as well.
        Err(rustix::io::Errno::INVAL) => {
            fs::hard_link(temporary, path)
                .and_then(|()| fs::remove_file(temporary))
                .map_err(|e| EvidenceError::io("name it", path, e))?;
        }
        Err(errno) => return Err(EvidenceError::io("name it", path, errno.into())),
    }
    sync_folder(path)
}

fn sync_folder(path: &Path) -> Result<(), EvidenceError> {
    let Some(folder) = path.parent() else { return Ok(()) };
    File::open(folder)
        .and_then(|f| f.sync_all())
        .map_err(|e| EvidenceError::io("make its name durable", folder, e))
}

/// Finishes or removes what a killed writer left: a torn last log line is cut off; a temporary file whose digest a
/// log names is whole (it was synced before the line) and gets its name; any other is removed.
fn recover(folder: &Folder) -> Result<(), EvidenceError> {
    let temporaries = temporaries(folder)?;
    let mut logged = std::collections::HashMap::new();
    for name in folder.logs()? {
        let path = folder.root().join(&name);
        let bytes = folder.bytes(&name)?;
        let chain = log::read(&path, &bytes)?;
        if chain.whole < bytes.len() {
            OpenOptions::new()
                .write(true)
                .open(&path)
                .and_then(|f| f.set_len(chain.whole as u64))
                .map_err(|e| EvidenceError::io("cut its torn line off", &path, e))?;
        }
        if !temporaries.is_empty() {
            logged.extend(chain.lines.into_iter().map(|line| (line.sha256, line.file)));
        }
    }
    for (path, digest) in temporaries {
        let target = logged.get(&digest).map(|file| folder.root().join(file));
        // A pipe of that name would be waited for.
        let plain = fs::symlink_metadata(&path).is_ok_and(|meta| meta.is_file());
        let whole = plain && fs::read(&path).is_ok_and(|bytes| Digest::of(&bytes) == digest);
        match target {
            Some(target) if whole && !target.exists() => publish(&path, &target)?,
            _ => fs::remove_file(&path).map_err(|e| EvidenceError::io("remove it", &path, e))?,
        }
    }
    Ok(())
}

fn temporaries(folder: &Folder) -> Result<Vec<(PathBuf, Digest)>, EvidenceError> {
    let mut found = Vec::new();
    let rooms = list(folder.root())?.into_iter().filter(|e| e.is_dir && !e.name.starts_with('.'));
    for room in rooms {
        let room = folder.root().join(room.name);
        for entry in list(&room)? {
            let digest = entry.name.strip_prefix(TEMPORARY).and_then(|hex| Digest::parse(hex).ok());
            if let Some(digest) = digest {
                found.push((room.join(&entry.name), digest));
            }
        }
    }
    Ok(found)
}

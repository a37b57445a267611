//! What lies in a folder, whatever it is, and what its names alone show to be wrong.

use std::collections::{HashMap, HashSet};
use std::ffi::OsStr;
use std::fs::{self, FileType};
use std::io;
use std::os::unix::fs::FileTypeExt as _;
use std::path::Path;

use proofhouse_schema::canonical::Digest;

use crate::error::{EvidenceError, chain};
use crate::folder::Folder;
use crate::log;
use crate::verify::{Finding, FindingKind};
use crate::writer::TEMPORARY;

/// What lies in an evidence folder.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Survey {
    /// Record files, relative to the folder, sorted.
    pub files: Vec<String>,
    /// Blobs, sorted.
    pub blobs: Vec<String>,
    /// Logs, sorted.
    pub logs: Vec<String>,
    /// What no writer makes: links, pipes, folders in place of files, names that are not UTF-8. None of it is opened.
    pub odd: Vec<Odd>,
}

/// Something that does not belong into an evidence folder.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Odd {
    /// Its path, relative to the folder; what is not UTF-8 in it is replaced.
    pub file: String,
    /// What it is.
    pub what: String,
}

impl Folder {
    /// Lists the folder without opening any file. What is odd is told and does not stop the listing.
    ///
    /// # Errors
    /// When the folder itself cannot be listed; one that is not there is empty.
    pub fn survey(&self) -> Result<Survey, EvidenceError> {
        let mut found = Survey::default();
        let rooms = entries(self.root())
            .map_err(|source| EvidenceError::Unreadable { path: self.root().to_owned(), source })?;
        for (name, kind) in rooms {
            let shown = name.to_string_lossy().into_owned();
            let hidden = shown.starts_with('.');
            match oddness(&name, kind) {
                Some(what) => found.odd(shown, what),
                None if kind.is_dir() && !hidden => found.room(self.root(), &shown),
                // Files beside the gates' folders and hidden folders are nobody's evidence.
                None => {}
            }
        }
        for list in [&mut found.files, &mut found.blobs, &mut found.logs] {
            list.sort();
        }
        found.odd.sort();
        Ok(found)
    }

    /// What is wrong by the names alone: files that a log names and that are not there, files that no log names, logs that
    /// are broken, odd things. No record is read, so an edited one is not seen; [`Folder::verify`] sees everything.
    ///
    /// A run may write meanwhile: what it is about to name is not missing.
    ///
    /// # Errors
    /// When the folder itself cannot be listed.
    pub fn gaps(&self) -> Result<Vec<Finding>, EvidenceError> {
        // Files are listed before logs are read: a file has its log line before it has its name.
        let survey = self.survey()?;
        let mut gaps: Vec<Finding> = survey.odd.iter().map(Finding::odd).collect();
        let mut named: HashMap<String, Digest> = HashMap::new();
        for file in &survey.logs {
            let read = self.bytes(file).and_then(|b| log::read(&self.root().join(file), &b));
            match read {
                Ok(log) => named.extend(log.lines.into_iter().map(|l| (l.file, l.sha256))),
                Err(error) => {
                    gaps.push(Finding::new(FindingKind::BrokenChain, file, chain(&error)))
                }
            }
        }
        let listed: HashSet<&String> = survey.files.iter().chain(&survey.blobs).collect();
        let unlogged = listed.iter().filter(|file| !named.contains_key(**file));
        gaps.extend(unlogged.map(|file| Finding::unlogged(file)));
        let told: HashSet<&str> = survey.odd.iter().map(|odd| odd.file.as_str()).collect();
        let missing = named.iter().filter(|(file, digest)| {
            !listed.contains(file) && !told.contains(file.as_str()) && !self.is_placed(file, digest)
        });
        gaps.extend(missing.map(|(file, _)| Finding::missing(file, "a log")));
        gaps.sort_by(|a, b| (a.kind, &a.file).cmp(&(b.kind, &b.file)));
        Ok(gaps)
    }

    /// Whether a file has its name, or is about to get it.
    fn is_placed(&self, file: &str, digest: &Digest) -> bool {
        let path = self.root().join(file);
        let temporary = path.with_file_name(format!("{TEMPORARY}{digest}"));
        // The last look is for a file that got its name between the first two.
        path.exists() || temporary.exists() || path.exists()
    }
}

impl Survey {
    fn odd(&mut self, file: String, what: impl Into<String>) {
        self.odd.push(Odd { file, what: what.into() });
    }

    /// Lists one folder of files.
    fn room(&mut self, root: &Path, room: &str) {
        let listed = match entries(&root.join(room)) {
            Ok(listed) => listed,
            Err(error) => {
                return self.odd(room.to_owned(), format!("it cannot be listed: {error}"));
            }
        };
        for (name, kind) in listed {
            let shown = name.to_string_lossy().into_owned();
            let file = format!("{room}/{shown}");
            let plain = |ending: &str| shown.ends_with(ending) && !shown.starts_with('.');
            match oddness(&name, kind) {
                Some(what) => self.odd(file, what),
                None if kind.is_dir() => self.odd(file, "a folder where only files belong"),
                None if room == "log" && plain(".jsonl") => self.logs.push(file),
                None if room == "blobs" && plain("") => self.blobs.push(file),
                None if !["log", "blobs"].contains(&room) && plain(".json") => {
                    self.files.push(file)
                }
                None => {}
            }
        }
    }
}

/// Why something is neither a file nor a folder of an evidence folder.
fn oddness(name: &OsStr, kind: FileType) -> Option<&'static str> {
    match () {
        () if name.to_str().is_none() => Some("a name that is not UTF-8"),
        () if kind.is_symlink() => Some("a symbolic link"),
        () if kind.is_fifo() => Some("a pipe"),
        () if kind.is_socket() => Some("a socket"),
        () if kind.is_block_device() || kind.is_char_device() => Some("a device"),
        () if kind.is_file() || kind.is_dir() => None,
        () => Some("neither a file nor a folder"),
    }
}

/// Names and types of what a folder holds, links not followed; nothing where there is no folder.
fn entries(path: &Path) -> io::Result<Vec<(std::ffi::OsString, FileType)>> {
    let entries = match fs::read_dir(path) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        other => other?,
    };
    entries
        .map(|entry| {
            let entry = entry?;
            Ok((entry.file_name(), entry.file_type()?))
        })
        .collect()
}

//! Reading an evidence folder.

use std::collections::HashMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use proofhouse_schema::SCHEMA;
use proofhouse_schema::canonical::{self, Digest};
use proofhouse_schema::evidence::{BlobRef, Record};
use proofhouse_schema::samples::Samples;

use crate::blob;
use crate::error::EvidenceError;
use crate::log;

/// The largest record or log that is read, in bytes.
pub(crate) const MAX_FILE: u64 = 256 << 20;

/// A record with where it lies and what it is.
#[derive(Debug, Clone)]
pub struct Stored {
    /// The file, relative to the folder, with `/`.
    pub file: String,
    /// The sha256 of its bytes.
    pub digest: Digest,
    /// The record.
    pub record: Record,
}

/// An evidence folder. A folder that does not exist is an empty one.
#[derive(Debug, Clone)]
pub struct Folder {
    root: PathBuf,
}

impl Folder {
    /// Names the folder; touches nothing.
    pub fn new(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into() }
    }

    /// The folder's path.
    #[must_use]
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Every record file, relative to the folder, sorted. Logs, blobs and temporary files are not among them.
    ///
    /// # Errors
    /// When a folder cannot be read, or an entry has a name that no writer makes; [`Folder::survey`] tells all of these.
    pub fn files(&self) -> Result<Vec<String>, EvidenceError> {
        let mut files = Vec::new();
        for gate in list(&self.root)? {
            if gate.name == "log"
                || gate.name == "blobs"
                || gate.name.starts_with('.')
                || !gate.is_dir
            {
                continue;
            }
            for entry in list(&self.root.join(&gate.name))? {
                if entry.name.ends_with(".json") && !entry.name.starts_with('.') {
                    files.push(format!("{}/{}", gate.name, entry.name));
                }
            }
        }
        files.sort();
        Ok(files)
    }

    /// Every log, relative to the folder, sorted.
    ///
    /// # Errors
    /// When the folder cannot be read.
    pub fn logs(&self) -> Result<Vec<String>, EvidenceError> {
        self.plain("log", ".jsonl")
    }

    /// Every blob, relative to the folder, sorted.
    ///
    /// # Errors
    /// When the folder cannot be read.
    pub fn blobs(&self) -> Result<Vec<String>, EvidenceError> {
        self.plain("blobs", "")
    }

    fn plain(&self, folder: &str, ending: &str) -> Result<Vec<String>, EvidenceError> {
        let mut files: Vec<String> = list(&self.root.join(folder))?
            .into_iter()
            .filter(|e| e.name.ends_with(ending) && !e.name.starts_with('.'))
            .map(|e| format!("{folder}/{}", e.name))
            .collect();
        files.sort();
        Ok(files)
    }

    /// Reads one record and checks its bytes, its schema and its name.
    ///
    /// # Errors
    /// An [`EvidenceError`] that names the file.
    pub fn read(&self, file: &str) -> Result<Stored, EvidenceError> {
        let path = self.root.join(file);
        let bytes = self.bytes(file)?;
        let (value, digest) = canonical::parse_canonical(&bytes)
            .map_err(|source| EvidenceError::NotCanonical { path: path.clone(), source })?;
        let schema = value.get("schema").and_then(|v| v.as_str()).unwrap_or_default();
        if schema != SCHEMA {
            return Err(EvidenceError::Schema { path, found: schema.to_owned(), known: SCHEMA });
        }
        let named = digest_in_name(file).unwrap_or_default();
        if named != digest.short() {
            return Err(EvidenceError::WrongName { path, named: named.to_owned(), found: digest });
        }
        let record = serde_json::from_value(value).map_err(|error| {
            EvidenceError::NotCanonical { path, source: canonical::CanonicalError::Shape(error) }
        })?;
        Ok(Stored { file: file.to_owned(), digest, record })
    }

    /// Reads every record, in the order of the files.
    ///
    /// # Errors
    /// The first [`EvidenceError`]; use [`Folder::verify`] for all of them.
    pub fn read_all(&self) -> Result<Vec<Stored>, EvidenceError> {
        self.files()?.iter().map(|file| self.read(file)).collect()
    }

    /// What the logs name: the digest of each file. Their chains are followed.
    ///
    /// # Errors
    /// When a log cannot be read or its chain is broken.
    pub fn logged(&self) -> Result<HashMap<String, Digest>, EvidenceError> {
        let mut named = HashMap::new();
        for file in self.logs()? {
            let bytes = self.bytes(&file)?;
            let chain = log::read(&self.root.join(&file), &bytes)?;
            named.extend(chain.lines.into_iter().map(|line| (line.file, line.sha256)));
        }
        Ok(named)
    }

    /// Reads the samples of a blob.
    ///
    /// # Errors
    /// When it is missing, edited, or holds no samples.
    pub fn samples(&self, blob: &BlobRef) -> Result<Samples, EvidenceError> {
        let file = format!("blobs/{}", blob.sha256);
        let bytes = self.bytes(&file)?;
        blob::unpack(&self.root.join(file), &bytes, blob)
    }

    /// The bytes of a file of the folder, within the size limit.
    pub(crate) fn bytes(&self, file: &str) -> Result<Vec<u8>, EvidenceError> {
        let path = self.root.join(file);
        let unreadable = |source| EvidenceError::Unreadable { path: path.clone(), source };
        let meta = fs::symlink_metadata(&path).map_err(unreadable)?;
        // Opening a pipe would wait for ever.
        if !meta.is_file() {
            return Err(EvidenceError::Path { path });
        }
        if meta.len() > MAX_FILE {
            return Err(EvidenceError::TooLarge { path, size: meta.len(), limit: MAX_FILE });
        }
        fs::read(&path).map_err(unreadable)
    }
}

/// The twelve hex digits in `<gate>/<date>-<12 hex>.json`.
pub(crate) fn digest_in_name(file: &str) -> Option<&str> {
    file.strip_suffix(".json")?.rsplit_once('-').map(|(_, hex)| hex)
}

pub(crate) struct Entry {
    pub(crate) name: String,
    pub(crate) is_dir: bool,
}

/// The entries of a folder; none where there is no folder.
pub(crate) fn list(path: &Path) -> Result<Vec<Entry>, EvidenceError> {
    let unreadable = |source| EvidenceError::Unreadable { path: path.to_owned(), source };
    let entries = match fs::read_dir(path) {
        Ok(entries) => entries,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(e) => return Err(unreadable(e)),
    };
    let mut found = Vec::new();
    for entry in entries {
        let entry = entry.map_err(unreadable)?;
        let name = entry
            .file_name()
            .into_string()
            .map_err(|_| EvidenceError::Path { path: entry.path() })?;
        let is_dir = entry.file_type().map_err(unreadable)?.is_dir();
        found.push(Entry { name, is_dir });
    }
    Ok(found)
}

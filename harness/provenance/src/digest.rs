//! Digests of files and folders: what can change a result.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use proofhouse_schema::canonical::Digest;
use sha2::{Digest as _, Sha256};

/// A file or folder that cannot be digested.
#[derive(Debug, thiserror::Error)]
pub enum DigestError {
    /// It cannot be read.
    #[error("{path}: cannot be read", path = .path.display())]
    Io {
        /// The path.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// A name that is not UTF-8.
    #[error("{path}: the name is not UTF-8", path = .path.display())]
    Name {
        /// The path.
        path: PathBuf,
    },
    /// Nothing was there to digest.
    #[error("{path}: the folder holds no file", path = .path.display())]
    Empty {
        /// The path.
        path: PathBuf,
    },
}

/// The sha256 of a file.
///
/// # Errors
/// When it cannot be read.
pub fn file_digest(path: &Path) -> Result<Digest, DigestError> {
    let io = |source| DigestError::Io { path: path.to_owned(), source };
    let mut file = File::open(path).map_err(io)?;
    let mut hash = Sha256::new();
    let mut buffer = vec![0; 1 << 20];
    loop {
        match file.read(&mut buffer).map_err(io)? {
            0 => return Ok(Digest::from_hash(hash.finalize().into())),
            n => hash.update(&buffer[..n]),
        }
    }
}

/// The sha256 over names and digests of every file below a folder, in name order. Compiled Python, hidden files and
/// links are left out: they are not source.
///
/// # Errors
/// When something cannot be read, a name is not UTF-8, or there is no file at all.
pub fn folder_digest(path: &Path) -> Result<Digest, DigestError> {
    let mut files = Vec::new();
    collect(path, "", &mut files)?;
    if files.is_empty() {
        return Err(DigestError::Empty { path: path.to_owned() });
    }
    files.sort();
    let mut hash = Sha256::new();
    for name in &files {
        let digest = file_digest(&path.join(name))?;
        hash.update(format!("{digest} {name}\n"));
    }
    Ok(Digest::from_hash(hash.finalize().into()))
}

fn collect(root: &Path, below: &str, files: &mut Vec<String>) -> Result<(), DigestError> {
    let folder = root.join(below);
    let io = |source| DigestError::Io { path: folder.clone(), source };
    for entry in fs::read_dir(&folder).map_err(io)? {
        let entry = entry.map_err(io)?;
        let name = entry
            .file_name()
            .into_string()
            .map_err(|_| DigestError::Name { path: entry.path() })?;
        let kind = entry.file_type().map_err(io)?;
        if name.starts_with('.') || name == "__pycache__" || kind.is_symlink() {
            continue;
        }
        let relative = if below.is_empty() { name } else { format!("{below}/{name}") };
        if kind.is_dir() {
            collect(root, &relative, files)?;
        } else {
            files.push(relative);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_changed_byte_or_name_changes_the_folders_digest() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("sub")).unwrap();
        fs::write(dir.path().join("a.py"), "1").unwrap();
        fs::write(dir.path().join("sub/b.py"), "2").unwrap();
        let first = folder_digest(dir.path()).unwrap();
        fs::write(dir.path().join("sub/b.py"), "3").unwrap();
        let second = folder_digest(dir.path()).unwrap();
        fs::rename(dir.path().join("sub/b.py"), dir.path().join("sub/c.py")).unwrap();
        let third = folder_digest(dir.path()).unwrap();
        assert!(first != second && second != third && first != third);
    }

    #[test]
    fn compiled_python_is_not_source() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("a.py"), "1").unwrap();
        let before = folder_digest(dir.path()).unwrap();
        fs::create_dir(dir.path().join("__pycache__")).unwrap();
        fs::write(dir.path().join("__pycache__/a.pyc"), "x").unwrap();
        assert_eq!(folder_digest(dir.path()).unwrap(), before);
    }

    #[test]
    fn an_empty_folder_has_no_digest() {
        let dir = tempfile::tempdir().unwrap();
        assert!(matches!(folder_digest(dir.path()), Err(DigestError::Empty { .. })));
    }
}

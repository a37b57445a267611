//! One file for many: folders as compressed tar archives, and back. What is unpacked stays below its folder.

use std::fs::{self, File};
use std::io::{self, BufReader, BufWriter, Read as _, Write as _};
use std::path::{Component, Path, PathBuf};

use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use tar::{Archive, Builder, EntryType, Header};

use crate::error::CliError;

/// The most bytes that an archive may unpack to.
const MOST_BYTES: u64 = 4 << 30;
/// The most files of an archive.
const MOST_FILES: usize = 200_000;

/// A file to be packed.
#[derive(Debug, Clone)]
pub struct Item {
    /// The file.
    pub path: PathBuf,
    /// Its name in the archive.
    pub name: String,
}

/// Packs a folder under a name; gives the number of files.
///
/// # Errors
/// When a file cannot be read, or the archive cannot be written whole.
pub fn pack(folder: &Path, name: &str, output: &Path) -> Result<usize, CliError> {
    let mut items = Vec::new();
    below(folder, name, &mut items)?;
    write(&items, &[], output)?;
    Ok(items.len())
}

/// Every regular file below a folder, in order, under a name; hidden files and what is no file are left out.
///
/// # Errors
/// When a folder cannot be read.
pub fn below(folder: &Path, name: &str, items: &mut Vec<Item>) -> Result<(), CliError> {
    let at = |source| CliError::Read { path: folder.to_owned(), source };
    let mut entries: Vec<_> =
        fs::read_dir(folder).map_err(at)?.collect::<Result<_, _>>().map_err(at)?;
    entries.sort_by_key(fs::DirEntry::file_name);
    for entry in entries {
        let Ok(part) = entry.file_name().into_string() else { continue };
        if part.starts_with('.') || part == "__pycache__" {
            continue;
        }
        let kind = entry.file_type().map_err(at)?;
        let name = format!("{name}/{part}");
        if kind.is_dir() {
            below(&entry.path(), &name, items)?;
        } else if kind.is_file() {
            items.push(Item { path: entry.path(), name });
        }
    }
    Ok(())
}

/// Writes an archive of files, and of texts that are no files; whole or not at all.
///
/// # Errors
/// When a file cannot be read, or the archive cannot be written.
pub fn write(items: &[Item], texts: &[(String, Vec<u8>)], output: &Path) -> Result<(), CliError> {
    let at = |source| CliError::Write { path: output.to_owned(), source };
    let folder = output.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let temporary = tempfile::NamedTempFile::new_in(folder).map_err(at)?;
    let encoder = GzEncoder::new(BufWriter::new(temporary), Compression::default());
    let mut builder = Builder::new(encoder);
    for item in items {
        let read = |source| CliError::Read { path: item.path.clone(), source };
        let bytes = fs::read(&item.path).map_err(read)?;
        let mode = if is_program(&item.path) { 0o755 } else { 0o644 };
        append(&mut builder, &item.name, &bytes, mode).map_err(at)?;
    }
    for (name, bytes) in texts {
        append(&mut builder, name, bytes, 0o644).map_err(at)?;
    }
    let writer = builder.into_inner().and_then(GzEncoder::finish).map_err(at)?;
    let mut temporary = writer.into_inner().map_err(|error| at(error.into_error()))?;
    temporary.flush().map_err(at)?;
    temporary.persist(output).map_err(|error| at(error.error))?;
    Ok(())
}

fn append<W: io::Write>(
    builder: &mut Builder<W>,
    name: &str,
    bytes: &[u8],
    mode: u32,
) -> io::Result<()> {
    let mut header = Header::new_gnu();
    header.set_size(bytes.len() as u64);
    header.set_mode(mode);
    header.set_mtime(0);
    builder.append_data(&mut header, name, bytes)
}

fn is_program(path: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt as _;
    fs::metadata(path).is_ok_and(|facts| facts.permissions().mode() & 0o100 != 0)
}

/// Unpacks an archive below a folder; gives the number of files. Anything but regular files and folders with plain
/// relative names is refused, and so is what grows beyond measure.
///
/// # Errors
/// When it is no such archive, or a file cannot be written.
pub fn unpack(archive: &Path, folder: &Path) -> Result<usize, CliError> {
    let at = |source| CliError::Read { path: archive.to_owned(), source };
    let file = File::open(archive).map_err(at)?;
    let bounded = GzDecoder::new(BufReader::new(file)).take(MOST_BYTES);
    let mut entries = Archive::new(bounded);
    let mut files = 0;
    for entry in entries.entries().map_err(at)? {
        let mut entry = entry.map_err(at)?;
        let name = entry.path().map_err(at)?.into_owned();
        let plain = name.components().all(|part| matches!(part, Component::Normal(_)));
        let target = folder.join(&name);
        match entry.header().entry_type() {
            EntryType::Directory if plain => fs::create_dir_all(&target).map_err(at)?,
            EntryType::Regular if plain => {
                files += 1;
                if files > MOST_FILES {
                    return Err(at(refused(format!("more than {MOST_FILES} files"))));
                }
                if let Some(parent) = target.parent() {
                    fs::create_dir_all(parent).map_err(at)?;
                }
                let mut out = File::create_new(&target).map_err(at)?;
                let copied = io::copy(&mut entry, &mut out).map_err(at)?;
                if copied != entry.header().size().map_err(at)? {
                    return Err(at(refused(format!("{} is cut short", name.display()))));
                }
            }
            kind => {
                let what = format!("{} is a {kind:?}; accepted: files and folders", name.display());
                return Err(at(refused(what)));
            }
        }
    }
    Ok(files)
}

fn refused(what: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]

    use super::*;

    #[test]
    fn what_is_packed_is_unpacked_and_programs_stay_programs() {
        let dir = tempfile::tempdir().unwrap();
        let from = dir.path().join("from");
        fs::create_dir_all(from.join("a/__pycache__")).unwrap();
        fs::write(from.join("a/one"), "1").unwrap();
        fs::write(from.join("a/__pycache__/x"), "no").unwrap();
        fs::write(from.join(".hidden"), "no").unwrap();
        let archive = dir.path().join("x.tar.gz");
        assert_eq!(pack(&from, "evidence", &archive).unwrap(), 1);
        let to = dir.path().join("to");
        assert_eq!(unpack(&archive, &to).unwrap(), 1);
        assert_eq!(fs::read_to_string(to.join("evidence/a/one")).unwrap(), "1");
        assert!(unpack(&archive, &to).is_err(), "a file that is there is not overwritten");
    }

    #[test]
    fn names_that_leave_the_folder_links_and_cut_archives_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        let make = |name: &str, kind: EntryType| {
            let path = dir.path().join("bad.tar.gz");
            let mut builder =
                Builder::new(GzEncoder::new(File::create(&path).unwrap(), Compression::fast()));
            let mut header = Header::new_gnu();
            header.set_entry_type(kind);
            header.set_size(0);
            header.as_mut_bytes()[..name.len()].copy_from_slice(name.as_bytes());
            header.set_cksum();
            builder.append(&header, io::empty()).unwrap();
            builder.into_inner().unwrap().finish().unwrap();
            path
        };
        for (name, kind) in [
            ("../out", EntryType::Regular),
            ("/tmp/out", EntryType::Regular),
            ("link", EntryType::Symlink),
            ("fifo", EntryType::Fifo),
        ] {
            let archive = make(name, kind);
            assert!(unpack(&archive, &dir.path().join("to")).is_err(), "{name}");
        }
        let good = dir.path().join("good.tar.gz");
        fs::create_dir(dir.path().join("from")).unwrap();
        fs::write(dir.path().join("from/file"), vec![7; 100_000]).unwrap();
        pack(&dir.path().join("from"), "x", &good).unwrap();
        let bytes = fs::read(&good).unwrap();
        fs::write(&good, &bytes[..bytes.len() / 2]).unwrap();
        assert!(unpack(&good, &dir.path().join("cut")).is_err());
        fs::write(&good, b"no archive").unwrap();
        assert!(unpack(&good, &dir.path().join("none")).is_err());
    }
}

//! Puts the pinned libduckdb where the build links it, from the first source that has it.
//!
//! The order is: already in place, `PROOFHOUSE_DUCKDB_LIB`, the user's cache, npm.
//! A library is used only when its sha256 is the expected one; a stamp beside it makes the check of
//! every later call cost one look at its size and time instead of a read of 70 MB.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

use crate::digest;
use crate::error::{HouseError, Tried};
use crate::fetch::Fetch;
use crate::pins::{LIBRARY_FILE, Pin, this_machine};
use crate::tarball;

/// A library that the user brings instead of the fetched one.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Brought {
    /// `PROOFHOUSE_DUCKDB_LIB`: the file or its folder.
    pub library: Option<PathBuf>,
    /// `PROOFHOUSE_DUCKDB_LIB_SHA256`: the digest it must have, hex; the pin's when absent.
    pub sha256: Option<String>,
}

/// What is wanted and where it may come from.
pub struct Request<'a> {
    /// The folder the library is linked from.
    pub folder: PathBuf,
    /// Where tarballs are kept; none to keep none.
    pub cache: Option<PathBuf>,
    /// The pin for this machine, where one exists.
    pub pin: Option<Pin>,
    /// What the user brings.
    pub brought: Brought,
    /// The last source.
    pub fetch: &'a dyn Fetch,
    /// Receives one line for each step that takes time or that the user should know of.
    pub say: &'a dyn Fn(&str),
}

/// How the library came to be in place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin {
    /// It was there, and its stamp or its digest is right.
    InPlace,
    /// Copied from the user's own.
    Brought(PathBuf),
    /// Unpacked from the cache.
    Cache(PathBuf),
    /// Fetched now.
    Fetched,
}

/// Makes sure that the library is in `request.folder` and is the expected one.
///
/// Errors: [`HouseError::LibraryNotFound`] names every source that was asked; a library or tarball
/// with the wrong bytes is [`HouseError::DigestMismatch`].
pub fn ensure(request: &Request<'_>) -> Result<Origin, HouseError> {
    let expected = expected_digest(request)?;
    let library = request.folder.join(LIBRARY_FILE);
    if let Some(expected) = &expected {
        if stamp_holds(&library, expected) {
            return Ok(Origin::InPlace);
        }
        if library.is_file() {
            if digest::sha256_of(&library)?.eq_ignore_ascii_case(expected) {
                write_stamp(&library, expected)?;
                return Ok(Origin::InPlace);
            }
            (request.say)("the library in place is not the expected one; it is replaced");
        }
    }
    fs::create_dir_all(&request.folder).map_err(unwritable(&request.folder))?;
    let scratch = Scratch::new(&request.folder)?;
    let staged = scratch.path.join(LIBRARY_FILE);
    let origin = obtain(request, expected.as_deref(), &staged, &scratch.path)?;
    fs::rename(&staged, &library).map_err(unwritable(&library))?;
    if let Some(expected) = &expected {
        write_stamp(&library, expected)?;
    }
    Ok(origin)
}

fn expected_digest(request: &Request<'_>) -> Result<Option<String>, HouseError> {
    let pinned = request.pin.as_ref().map(|pin| pin.library_sha256.to_string());
    let Some(path) = &request.brought.library else { return Ok(pinned) };
    match request.brought.sha256.clone().or(pinned) {
        Some(digest) => Ok(Some(digest)),
        None => Err(HouseError::NoDigest { path: path.clone(), machine: this_machine() }),
    }
}

fn obtain(
    request: &Request<'_>,
    expected: Option<&str>,
    staged: &Path,
    scratch: &Path,
) -> Result<Origin, HouseError> {
    if let (Some(path), Some(expected)) = (&request.brought.library, expected) {
        let file = brought_file(path)?;
        (request.say)(&format!("taking libduckdb from {}", file.display()));
        copy(&file, staged)?;
        digest::require_sha256(staged, expected).map_err(|error| at(error, &file))?;
        return Ok(Origin::Brought(file));
    }
    let mut tried =
        vec![Tried { source: "PROOFHOUSE_DUCKDB_LIB".to_owned(), outcome: "not set".to_owned() }];
    let Some(pin) = &request.pin else {
        let machine = this_machine();
        let outcome = format!("no package is pinned for {machine}");
        tried.push(Tried { source: "the prebuilt packages".to_owned(), outcome });
        return Err(HouseError::LibraryNotFound { machine, tried });
    };
    if let Some(cached) = from_cache(request, pin, staged, &mut tried) {
        return Ok(Origin::Cache(cached));
    }
    from_registry(request, pin, staged, scratch, &mut tried)?;
    Ok(Origin::Fetched)
}

fn brought_file(path: &Path) -> Result<PathBuf, HouseError> {
    let inside = path.join(LIBRARY_FILE);
    [path, inside.as_path()]
        .into_iter()
        .find(|file| file.is_file())
        .map(Path::to_owned)
        .ok_or(HouseError::OverrideMissing { path: path.to_owned(), file: LIBRARY_FILE })
}

/// A bad file in the cache is said and passed over: the next fetch replaces it.
fn from_cache(
    request: &Request<'_>,
    pin: &Pin,
    staged: &Path,
    tried: &mut Vec<Tried>,
) -> Option<PathBuf> {
    let source = "the cache".to_owned();
    let Some(cached) = request.cache.as_ref().map(|cache| cached_tarball(cache, pin)) else {
        tried.push(Tried { source, outcome: "there is no home folder to keep one in".to_owned() });
        return None;
    };
    if !cached.is_file() {
        tried.push(Tried { source, outcome: format!("{} does not exist", cached.display()) });
        return None;
    }
    match tarball::unpack_library(&cached, pin, staged) {
        Ok(()) => Some(cached),
        Err(error) => {
            (request.say)(&format!("the cached package is not used: {error}"));
            tried.push(Tried { source, outcome: error.to_string() });
            None
        }
    }
}

fn from_registry(
    request: &Request<'_>,
    pin: &Pin,
    staged: &Path,
    scratch: &Path,
    tried: &mut Vec<Tried>,
) -> Result<(), HouseError> {
    let source = request.fetch.describe(pin);
    (request.say)(&format!("fetching libduckdb once: {source}"));
    let fetched = match request.fetch.fetch(pin, scratch) {
        Ok(fetched) => fetched,
        Err(error) => {
            tried.push(Tried { source, outcome: error.to_string() });
            let tried = std::mem::take(tried);
            return Err(HouseError::LibraryNotFound { machine: this_machine(), tried });
        }
    };
    tarball::unpack_library(&fetched, pin, staged)?;
    if let Some(cache) = &request.cache
        && let Err(error) = keep(&fetched, &cached_tarball(cache, pin))
    {
        (request.say)(&format!("the package is not kept for the next clone: {error}"));
    }
    Ok(())
}

fn cached_tarball(cache: &Path, pin: &Pin) -> PathBuf {
    let name = pin.package.rsplit('/').next().unwrap_or(&pin.package);
    cache.join("duckdb").join(format!("{name}-{}.tgz", pin.version))
}

fn keep(fetched: &Path, cached: &Path) -> Result<(), HouseError> {
    let folder = cached.parent().unwrap_or(cached);
    fs::create_dir_all(folder).map_err(unwritable(folder))?;
    let partial = cached.with_extension(format!("partial-{}", std::process::id()));
    copy(fetched, &partial)?;
    fs::rename(&partial, cached).map_err(unwritable(cached))
}

fn copy(from: &Path, to: &Path) -> Result<(), HouseError> {
    let mut reader = fs::File::open(from)
        .map_err(|source| HouseError::Unreadable { path: from.to_owned(), source })?;
    let mut writer = fs::File::create(to).map_err(unwritable(to))?;
    std::io::copy(&mut reader, &mut writer).map_err(unwritable(to))?;
    Ok(())
}

/// Names the user's file rather than our copy of it.
fn at(error: HouseError, file: &Path) -> HouseError {
    match error {
        HouseError::DigestMismatch { algorithm, expected, found, .. } => {
            HouseError::DigestMismatch { path: file.to_owned(), algorithm, expected, found }
        }
        other => other,
    }
}

fn unwritable(path: &Path) -> impl FnOnce(std::io::Error) -> HouseError + '_ {
    move |source| HouseError::Unwritable { path: path.to_owned(), source }
}

fn stamp_path(library: &Path) -> PathBuf {
    library.with_extension("stamp")
}

/// Digest, size and time of the library as it is now; none when it is not a readable file.
fn stamp_line(library: &Path, digest: &str) -> Option<String> {
    let facts = fs::metadata(library).ok().filter(fs::Metadata::is_file)?;
    let modified = facts.modified().ok()?.duration_since(UNIX_EPOCH).ok()?.as_nanos();
    Some(format!("sha256 {digest} bytes {} modified-ns {modified}\n", facts.len()))
}

fn stamp_holds(library: &Path, digest: &str) -> bool {
    let written = fs::read_to_string(stamp_path(library)).ok();
    written.is_some() && written == stamp_line(library, digest)
}

fn write_stamp(library: &Path, digest: &str) -> Result<(), HouseError> {
    let path = stamp_path(library);
    let Some(line) = stamp_line(library, digest) else { return Ok(()) };
    fs::write(&path, line).map_err(unwritable(&path))
}

/// A folder beside the library for one call's unfinished files, removed at the end.
struct Scratch {
    path: PathBuf,
}

impl Scratch {
    fn new(beside: &Path) -> Result<Scratch, HouseError> {
        let path = beside.join(format!("unfinished-{}", std::process::id()));
        fs::create_dir_all(&path).map_err(unwritable(&path))?;
        Ok(Scratch { path })
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // A leftover costs disk space only; the next call makes its own.
        let _ = fs::remove_dir_all(&self.path);
    }
}

#[cfg(test)]
mod tests;

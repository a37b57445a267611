//! Compiled kernels in a folder, by the digest of everything that they depend on.

use std::fs;
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

use crate::error::CudaError;

/// The first bytes of an entry; the number is the format's version.
const MAGIC: &[u8; 8] = b"PHcubin1";

/// A compiled kernel and what the compiler said of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) cubin: Vec<u8>,
    pub(crate) log: String,
}

/// How an entry was come by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Origin {
    /// It was in the folder.
    Cached,
    /// It was compiled: the folder did not have it, or there is no folder.
    Compiled,
    /// It was compiled again: what the folder had was not what had been written there.
    Replaced,
}

/// What an entry depends on, as a digest.
pub(crate) fn key<'a>(parts: impl IntoIterator<Item = &'a str>) -> String {
    let mut digest = Sha256::new();
    for part in parts {
        // Lengths keep neighbors apart.
        digest.update((part.len() as u64).to_le_bytes());
        digest.update(part.as_bytes());
    }
    hex::encode(digest.finalize())
}

/// A folder of compiled kernels.
#[derive(Clone, Debug)]
pub(crate) struct Cache {
    folder: Option<PathBuf>,
}

impl Cache {
    /// A cache in a folder, which is made when the first entry is written; without one nothing is kept.
    pub(crate) const fn new(folder: Option<PathBuf>) -> Self {
        Self { folder }
    }

    /// The entry of a key, made by `compile` where the folder does not hold it whole.
    pub(crate) fn get(
        &self,
        key: &str,
        compile: impl FnOnce() -> Result<Entry, CudaError>,
    ) -> Result<(Entry, Origin), CudaError> {
        let Some(folder) = &self.folder else {
            return Ok((compile()?, Origin::Compiled));
        };
        let path = folder.join(format!("{key}.cubin"));
        let origin = match fs::read(&path) {
            Ok(bytes) => match decode(&bytes) {
                Some(entry) => return Ok((entry, Origin::Cached)),
                None => Origin::Replaced,
            },
            Err(error) if error.kind() == ErrorKind::NotFound => Origin::Compiled,
            Err(source) => return Err(CudaError::Cache { path, source }),
        };
        let entry = compile()?;
        write(folder, &path, &encode(&entry))
            .map_err(|source| CudaError::Cache { path, source })?;
        Ok((entry, origin))
    }
}

/// Writes a file so that readers see all of it or none.
fn write(folder: &Path, path: &Path, bytes: &[u8]) -> Result<(), std::io::Error> {
    fs::create_dir_all(folder)?;
    // Two processes that compile the same kernel write files of their own; the last one's stays.
    let temporary = path.with_extension(format!("{}.part", std::process::id()));
    let mut file = fs::File::create(&temporary)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    drop(file);
    fs::rename(&temporary, path)
}

/// An entry as bytes: magic, digest of the rest, length of the log, log, cubin.
fn encode(entry: &Entry) -> Vec<u8> {
    let mut body = (entry.log.len() as u64).to_le_bytes().to_vec();
    body.extend_from_slice(entry.log.as_bytes());
    body.extend_from_slice(&entry.cubin);
    let mut bytes = MAGIC.to_vec();
    bytes.extend_from_slice(&Sha256::digest(&body));
    bytes.extend_from_slice(&body);
    bytes
}

/// The entry in some bytes; `None` when they are not what [`encode`] makes.
fn decode(bytes: &[u8]) -> Option<Entry> {
    let rest = bytes.strip_prefix(MAGIC)?;
    let (digest, body) = rest.split_at_checked(32)?;
    if Sha256::digest(body).as_slice() != digest {
        return None;
    }
    let (length, rest) = body.split_first_chunk::<8>()?;
    let (log, cubin) = rest.split_at_checked(u64::from_le_bytes(*length) as usize)?;
    Some(Entry { cubin: cubin.to_vec(), log: String::from_utf8(log.to_vec()).ok()? })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry() -> Entry {
        Entry { cubin: vec![1, 2, 3, 0, 255], log: "a log".to_owned() }
    }

    fn folder(name: &str) -> PathBuf {
        let unique = format!("proofhouse-cuda-{name}-{}", std::process::id());
        std::env::temp_dir().join(unique)
    }

    #[test]
    fn an_entry_is_compiled_once_and_then_read() {
        let folder = folder("once");
        let cache = Cache::new(Some(folder.clone()));
        let (made, origin) = cache.get("k", || Ok(entry())).unwrap();
        assert_eq!((made, origin), (entry(), Origin::Compiled));
        let never = || -> Result<Entry, CudaError> { panic!("compiled again") };
        assert_eq!(cache.get("k", never).unwrap(), (entry(), Origin::Cached));
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn every_damaged_entry_is_compiled_again_and_said_to_be() {
        let folder = folder("damaged");
        let cache = Cache::new(Some(folder.clone()));
        cache.get("k", || Ok(entry())).unwrap();
        let path = folder.join("k.cubin");
        let whole = fs::read(&path).unwrap();
        for at in 0..whole.len() {
            let mut damaged = whole.clone();
            damaged[at] ^= 1;
            for bytes in [&damaged[..], &whole[..at]] {
                fs::write(&path, bytes).unwrap();
                assert_eq!(cache.get("k", || Ok(entry())).unwrap(), (entry(), Origin::Replaced));
                assert_eq!(fs::read(&path).unwrap(), whole);
            }
        }
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn a_failed_compilation_leaves_nothing_behind() {
        let folder = folder("failed");
        let cache = Cache::new(Some(folder.clone()));
        let failure =
            || Err(CudaError::Nvrtc { call: "nvrtcCompileProgram", meaning: "no".to_owned() });
        assert!(cache.get("k", failure).is_err());
        assert!(!folder.exists());
    }

    #[test]
    fn a_folder_that_cannot_be_made_is_a_typed_error() {
        let file = folder("file");
        fs::write(&file, "not a folder").unwrap();
        let error = Cache::new(Some(file.join("below"))).get("k", || Ok(entry())).unwrap_err();
        assert!(matches!(error, CudaError::Cache { .. }), "{error}");
        fs::remove_file(file).unwrap();
    }

    #[test]
    fn neighboring_parts_of_a_key_are_kept_apart() {
        assert_ne!(key(["ab", "c"]), key(["a", "bc"]));
        assert_ne!(key(["a"]), key(["a", ""]));
        assert_eq!(key(["a", "b"]), key(["a", "b"]));
    }
}

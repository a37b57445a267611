//! Folders, tarballs and pins made for the tests of this crate.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use sha2::{Digest, Sha256, Sha512};

use crate::pins::Pin;

/// A folder of one test, removed when dropped.
pub struct Folder(PathBuf);

impl Folder {
    pub fn new() -> Folder {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path =
            std::env::temp_dir().join(format!("proofhouse-house-{}-{number}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Folder(path)
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // A folder left behind in the temporary directory harms nothing.
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A gzip tarball with these entries; paths are written as given, also unsafe ones.
pub fn tarball_with(folder: &Folder, entries: &[(&str, &[u8])]) -> PathBuf {
    let path = folder.path("package.tgz");
    let encoder = flate2::write::GzEncoder::new(
        fs::File::create(&path).unwrap(),
        flate2::Compression::fast(),
    );
    let mut builder = tar::Builder::new(encoder);
    for (name, bytes) in entries {
        let mut header = tar::Header::new_gnu();
        header.as_gnu_mut().unwrap().name[..name.len()].copy_from_slice(name.as_bytes());
        header.set_size(bytes.len() as u64);
        header.set_mode(0o644);
        header.set_entry_type(tar::EntryType::Regular);
        header.set_cksum();
        builder.append(&header, *bytes).unwrap();
    }
    builder.into_inner().unwrap().finish().unwrap();
    path
}

/// A pin that fits this tarball as it is now, and a library of these bytes.
pub fn pin_for(tarball: &Path, library: &[u8]) -> Pin {
    Pin {
        package: "@example/library".into(),
        version: "1.0.0".into(),
        tarball_sha512: hex::encode(Sha512::digest(fs::read(tarball).unwrap())).into(),
        library_sha256: hex::encode(Sha256::digest(library)).into(),
        library_bytes: library.len() as u64,
    }
}

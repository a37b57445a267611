//! Digests of files, in hex, read in pieces.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use sha2::{Digest, Sha256, Sha512};

use crate::error::HouseError;

/// sha256 of a file, hex.
pub fn sha256_of(path: &Path) -> Result<String, HouseError> {
    digest_of::<Sha256>(path)
}

/// Refuses a file whose sha512 is not `expected` (hex).
pub fn require_sha512(path: &Path, expected: &str) -> Result<(), HouseError> {
    require("sha512", path, expected, digest_of::<Sha512>(path)?)
}

/// Refuses a file whose sha256 is not `expected` (hex).
pub fn require_sha256(path: &Path, expected: &str) -> Result<(), HouseError> {
    require("sha256", path, expected, sha256_of(path)?)
}

fn require(
    algorithm: &'static str,
    path: &Path,
    expected: &str,
    found: String,
) -> Result<(), HouseError> {
    if found.eq_ignore_ascii_case(expected) {
        return Ok(());
    }
    Err(HouseError::DigestMismatch {
        path: path.to_owned(),
        algorithm,
        expected: expected.to_owned(),
        found,
    })
}

fn digest_of<D: Digest>(path: &Path) -> Result<String, HouseError> {
    let unreadable = |source| HouseError::Unreadable { path: path.to_owned(), source };
    let mut file = File::open(path).map_err(unreadable)?;
    let mut digest = D::new();
    let mut piece = vec![0_u8; 1 << 20];
    loop {
        let read = file.read(&mut piece).map_err(unreadable)?;
        if read == 0 {
            return Ok(hex::encode(digest.finalize()));
        }
        digest.update(&piece[..read]);
    }
}

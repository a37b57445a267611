//! Sample blobs: compressed columns, named by the digest of their compressed bytes.

use std::io::Read;
use std::path::Path;

use proofhouse_schema::canonical::Digest;
use proofhouse_schema::samples::{Samples, SamplesError};

use crate::error::EvidenceError;

/// The most that a blob may unpack to, in bytes.
const MAX_UNPACKED: u64 = 1 << 30;
/// zstd's level: samples are small, and are written between cells and never while one is measured.
const LEVEL: i32 = 9;

/// Compresses encoded columns.
pub(crate) fn pack(path: &Path, columns: &[u8]) -> Result<Vec<u8>, EvidenceError> {
    zstd::encode_all(columns, LEVEL).map_err(|e| EvidenceError::io("compress samples", path, e))
}

/// Checks the digest, unpacks within bounds and decodes.
pub(crate) fn unpack(
    path: &Path,
    bytes: &[u8],
    expected: &Digest,
) -> Result<Samples, EvidenceError> {
    let found = Digest::of(bytes);
    if found != *expected {
        return Err(EvidenceError::BlobDigest { path: path.to_owned(), found });
    }
    let decoder = zstd::Decoder::with_buffer(bytes)
        .map_err(|e| EvidenceError::io("decompress samples", path, e))?;
    let mut columns = Vec::new();
    let read = decoder
        .take(MAX_UNPACKED + 1)
        .read_to_end(&mut columns)
        .map_err(|e| EvidenceError::io("decompress samples", path, e))?;
    if read as u64 > MAX_UNPACKED {
        return Err(EvidenceError::TooLarge {
            path: path.to_owned(),
            size: read as u64,
            limit: MAX_UNPACKED,
        });
    }
    Samples::decode(&columns)
        .map_err(|source: SamplesError| EvidenceError::Blob { path: path.to_owned(), source })
}

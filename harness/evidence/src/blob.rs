//! Sample blobs: compressed columns, named by the digest of their compressed bytes.

use std::io::Read;
use std::path::Path;

use proofhouse_schema::canonical::Digest;
use proofhouse_schema::evidence::BlobRef;
use proofhouse_schema::samples::{Samples, SamplesError};

use crate::error::EvidenceError;

/// The most that any blob may unpack to, in bytes.
const MAX_UNPACKED: u64 = 1 << 28;
/// zstd's level: samples are small, and are written between cells and never while one is measured.
const LEVEL: i32 = 9;

/// Compresses encoded columns.
pub(crate) fn pack(path: &Path, columns: &[u8]) -> Result<Vec<u8>, EvidenceError> {
    zstd::encode_all(columns, LEVEL).map_err(|e| EvidenceError::io("compress samples", path, e))
}

/// Checks the digest, unpacks no more than the promised rows can need and decodes.
pub(crate) fn unpack(
    path: &Path,
    bytes: &[u8],
    promised: &BlobRef,
) -> Result<Samples, EvidenceError> {
    let found = Digest::of(bytes);
    if found != promised.sha256 {
        return Err(EvidenceError::BlobDigest { path: path.to_owned(), found });
    }
    let decoder = zstd::Decoder::with_buffer(bytes)
        .map_err(|e| EvidenceError::Unreadable { path: path.to_owned(), source: e })?;
    let limit = MAX_UNPACKED.min(Samples::encoded_size_limit(promised.rows));
    let mut columns = Vec::new();
    let read = decoder
        .take(limit + 1)
        .read_to_end(&mut columns)
        .map_err(|e| EvidenceError::Unreadable { path: path.to_owned(), source: e })?;
    if read as u64 > limit {
        return Err(EvidenceError::TooLarge { path: path.to_owned(), size: read as u64, limit });
    }
    Samples::decode(&columns)
        .map_err(|source: SamplesError| EvidenceError::Blob { path: path.to_owned(), source })
}

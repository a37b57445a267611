//! Tensors in files, read and written through plain file operations.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt as _;

use proofhouse_schema::protocol::TensorRef;

/// The elements of an F32 tensor with rows of stride one.
pub(crate) fn read(tensor: &TensorRef) -> io::Result<Vec<f32>> {
    let mut bytes = vec![0; usize::try_from(tensor.span).unwrap_or(0)];
    File::open(&tensor.file)?.read_exact_at(&mut bytes, tensor.offset)?;
    Ok(bytes.chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect())
}

/// Writes elements at the tensor's start.
pub(crate) fn write(tensor: &TensorRef, values: &[f32]) -> io::Result<()> {
    let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
    write_bytes(tensor, 0, &bytes)
}

/// Writes bytes at a distance from the tensor's start.
pub(crate) fn write_bytes(tensor: &TensorRef, at: u64, bytes: &[u8]) -> io::Result<()> {
    OpenOptions::new().write(true).open(&tensor.file)?.write_all_at(bytes, tensor.offset + at)
}

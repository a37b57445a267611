//! Tensors as a provider gets them: a checked span of memory and what it is said to hold.

use proofhouse_schema::catalog::Role;
use proofhouse_schema::dtype::Dtype;

/// The memory of one tensor, from its first element to the end of its last.
#[derive(Debug)]
pub enum Storage<'a> {
    /// An input.
    Read(&'a [u8]),
    /// An output, or a tensor that is changed in place.
    Write(&'a mut [u8]),
}

impl Storage<'_> {
    /// The bytes.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        match self {
            Storage::Read(bytes) => bytes,
            Storage::Write(bytes) => bytes,
        }
    }
}

/// One tensor of a case.
///
/// The memory is inside its file and no writable tensor shares bytes with another; nothing else is checked. Shape,
/// stride and dtype are what the request says, and a refusal case says something wrong on purpose: the provider
/// refuses it.
#[derive(Debug)]
pub struct Tensor<'a> {
    /// Its name in the operator's contract.
    pub name: String,
    /// in, out or in_out.
    pub role: Role,
    /// Its element type.
    pub dtype: Dtype,
    /// Extents.
    pub shape: Vec<u64>,
    /// Elements between the first elements of two neighboring rows (a row is the last axis).
    pub row_stride: u64,
    /// Its memory.
    pub storage: Storage<'a>,
}

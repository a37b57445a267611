//! Tensors over plain bytes: where the elements lie, and how to read and write them row by row.
//!
//! Every tensor is seen as rows of a width: the last axis is the width, the axes before it are the rows. The
//! inner stride is one. Elements are little-endian.

use crate::dtype::Dtype;
use crate::rounding;

/// Shape and storage geometry of one tensor; counts are elements, not bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TensorLayout {
    /// Element type.
    pub dtype: Dtype,
    /// Logical shape.
    pub shape: Vec<u64>,
    /// Distance between the first elements of two neighboring rows, in elements.
    pub row_stride: u64,
    /// Distance from the start of the storage to the first element, in elements.
    pub offset: u64,
}

impl TensorLayout {
    /// A layout without gaps that starts at the first byte of its storage.
    #[must_use]
    pub fn contiguous(dtype: Dtype, shape: &[u64]) -> Self {
        Self {
            dtype,
            shape: shape.to_vec(),
            row_stride: shape.last().copied().unwrap_or(1),
            offset: 0,
        }
    }

    /// Length of the last axis; 1 for a scalar.
    #[must_use]
    pub fn width(&self) -> u64 {
        self.shape.last().copied().unwrap_or(1)
    }

    /// Product of all axes but the last; `None` when it overflows.
    #[must_use]
    pub fn checked_rows(&self) -> Option<u64> {
        let outer = self.shape.len().saturating_sub(1);
        self.shape[..outer].iter().try_fold(1u64, |product, extent| product.checked_mul(*extent))
    }

    /// Product of all axes but the last; the layout must have been validated.
    #[must_use]
    pub fn rows(&self) -> u64 {
        self.checked_rows().unwrap_or(0)
    }

    /// Number of logical elements; `None` when it overflows.
    #[must_use]
    pub fn checked_elements(&self) -> Option<u64> {
        self.checked_rows()?.checked_mul(self.width())
    }

    /// Number of logical elements; the layout must have been validated.
    #[must_use]
    pub fn elements(&self) -> u64 {
        self.checked_elements().unwrap_or(0)
    }

    /// Bytes of storage needed from its start through the last element; `None` when that overflows.
    ///
    /// A tensor with no elements needs none.
    #[must_use]
    pub fn required_bytes(&self) -> Option<u64> {
        if self.checked_elements()? == 0 {
            return Some(0);
        }
        (self.checked_rows()? - 1)
            .checked_mul(self.row_stride)?
            .checked_add(self.offset)?
            .checked_add(self.width())?
            .checked_mul(self.dtype.size() as u64)
    }

    /// Byte range of one row inside the storage.
    ///
    /// # Panics
    /// Only when the range does not fit `usize`, which validation excludes.
    #[must_use]
    pub fn row_range(&self, row: u64) -> std::ops::Range<usize> {
        let size = self.dtype.size();
        let start = (self.offset + row * self.row_stride) as usize * size;
        start..start + self.width() as usize * size
    }
}

/// A readable tensor: a layout over borrowed storage.
#[derive(Clone, Debug)]
pub struct TensorView<'a> {
    /// Where the elements lie.
    pub layout: TensorLayout,
    /// The whole storage, offset and gaps included.
    pub bytes: &'a [u8],
}

/// A writable tensor: a layout over mutably borrowed storage.
#[derive(Debug)]
pub struct TensorMut<'a> {
    /// Where the elements lie.
    pub layout: TensorLayout,
    /// The whole storage, offset and gaps included.
    pub bytes: &'a mut [u8],
}

impl<'a> TensorView<'a> {
    /// Joins a layout and its storage; nothing is checked here, the operators check before they read.
    #[must_use]
    pub const fn new(layout: TensorLayout, bytes: &'a [u8]) -> Self {
        Self { layout, bytes }
    }

    /// The bytes of one row.
    ///
    /// # Panics
    /// When the row lies outside the storage, which validation excludes.
    #[must_use]
    pub fn row_bytes(&self, row: u64) -> &'a [u8] {
        &self.bytes[self.layout.row_range(row)]
    }

    /// Decodes one row exactly to f64, replacing the contents of `into`.
    pub fn read_row(&self, row: u64, into: &mut Vec<f64>) {
        decode_row(self.layout.dtype, self.row_bytes(row), into);
    }

    /// Decodes one row of an integer tensor, replacing the contents of `into`.
    pub fn read_integers(&self, row: u64, into: &mut Vec<i64>) {
        let dtype = self.layout.dtype;
        into.clear();
        into.extend(self.row_bytes(row).chunks_exact(dtype.size()).map(|raw| match dtype {
            Dtype::I32 => i64::from(load(raw) as u32 as i32),
            _ => load(raw) as i64,
        }));
    }

    /// The bits of one element, zero-extended.
    ///
    /// # Panics
    /// When the element lies outside the storage, which validation excludes.
    #[must_use]
    pub fn bits(&self, row: u64, column: u64) -> u64 {
        let size = self.layout.dtype.size();
        let start = column as usize * size;
        load(&self.row_bytes(row)[start..start + size])
    }

    /// The value of one element, decoded to f64.
    ///
    /// # Panics
    /// As [`TensorView::bits`].
    #[must_use]
    pub fn value(&self, row: u64, column: u64) -> f64 {
        rounding::decode(self.layout.dtype, self.bits(row, column))
    }
}

impl TensorMut<'_> {
    /// The same tensor, readable.
    #[must_use]
    pub fn view(&self) -> TensorView<'_> {
        TensorView::new(self.layout.clone(), self.bytes)
    }

    /// The bytes of one row, writable.
    ///
    /// # Panics
    /// When the row lies outside the storage, which validation excludes.
    pub fn row_bytes_mut(&mut self, row: u64) -> &mut [u8] {
        let range = self.layout.row_range(row);
        &mut self.bytes[range]
    }

    /// Splits the tensor into at most `parts` runs of rows, each with the number of its first row; one without elements,
    /// which has no storage, into none.
    pub fn split_rows(&mut self, parts: u64) -> Vec<(u64, TensorMut<'_>)> {
        if self.layout.elements() == 0 {
            return Vec::new();
        }
        let (rows, width) = (self.layout.rows(), self.layout.width());
        let each = rows.div_ceil(parts.max(1)).max(1);
        let (layout, mut rest, mut behind) = (&self.layout, &mut *self.bytes, 0);
        let mut split = Vec::new();
        for first in (0..rows).step_by(each as usize) {
            let count = each.min(rows - first);
            let range = layout.row_range(first).start..layout.row_range(first + count - 1).end;
            let (_, from) = rest.split_at_mut(range.start - behind);
            let (bytes, after) = from.split_at_mut(range.len());
            (rest, behind) = (after, range.end);
            let layout = TensorLayout { shape: vec![count, width], offset: 0, ..layout.clone() };
            split.push((first, TensorMut { layout, bytes }));
        }
        split
    }

    /// Rounds a row of values once each and stores it; surplus values or elements are left alone.
    pub fn write_row(&mut self, row: u64, values: &[f64]) {
        let dtype = self.layout.dtype;
        encode_row(dtype, values, self.row_bytes_mut(row));
    }

    /// Stores a row of integers, truncated to the element size; surplus values or elements are left alone.
    pub fn write_integers(&mut self, row: u64, values: &[i64]) {
        let size = self.layout.dtype.size();
        for (raw, value) in self.row_bytes_mut(row).chunks_exact_mut(size).zip(values) {
            raw.copy_from_slice(&value.to_le_bytes()[..size]);
        }
    }

    /// Stores the bits of one element.
    ///
    /// # Panics
    /// When the element lies outside the storage, which validation excludes.
    pub fn set_bits(&mut self, row: u64, column: u64, bits: u64) {
        let size = self.layout.dtype.size();
        let start = column as usize * size;
        self.row_bytes_mut(row)[start..start + size].copy_from_slice(&bits.to_le_bytes()[..size]);
    }
}

/// Loads up to eight little-endian bytes.
pub(crate) fn load(raw: &[u8]) -> u64 {
    let mut word = [0u8; 8];
    word[..raw.len()].copy_from_slice(raw);
    u64::from_le_bytes(word)
}

/// Decodes contiguous elements to f64, replacing the contents of `into`.
pub fn decode_row(dtype: Dtype, bytes: &[u8], into: &mut Vec<f64>) {
    into.clear();
    let elements = bytes.chunks_exact(dtype.size());
    match dtype {
        Dtype::F32 => {
            into.extend(elements.map(|raw| rounding::decode(Dtype::F32, load(raw))));
        }
        Dtype::F16 => into.extend(elements.map(|raw| rounding::decode(Dtype::F16, load(raw)))),
        Dtype::BF16 => into.extend(elements.map(|raw| rounding::decode(Dtype::BF16, load(raw)))),
        other => into.extend(elements.map(|raw| rounding::decode(other, load(raw)))),
    }
}

/// Rounds values once each and stores them as contiguous elements.
pub fn encode_row(dtype: Dtype, values: &[f64], bytes: &mut [u8]) {
    let size = dtype.size();
    let elements = bytes.chunks_exact_mut(size).zip(values);
    match dtype {
        Dtype::F32 => {
            elements.for_each(|(raw, value)| raw.copy_from_slice(&(*value as f32).to_le_bytes()));
        }
        Dtype::F16 => elements.for_each(|(raw, value)| {
            raw.copy_from_slice(&rounding::f16_bits(*value).to_le_bytes());
        }),
        Dtype::BF16 => elements.for_each(|(raw, value)| {
            raw.copy_from_slice(&rounding::bf16_bits(*value).to_le_bytes());
        }),
        other => elements.for_each(|(raw, value)| {
            raw.copy_from_slice(&rounding::encode(other, *value).to_le_bytes()[..size]);
        }),
    }
}

/// Alignment of an [`AlignedBytes`] block, in bytes: one cache line.
pub const BUFFER_ALIGNMENT: usize = 64;

/// Owned bytes that start at a multiple of [`BUFFER_ALIGNMENT`].
#[derive(Debug)]
pub struct AlignedBytes {
    block: Vec<u8>,
    start: usize,
    length: usize,
}

impl AlignedBytes {
    /// Allocates `length` bytes, each set to `fill`.
    #[must_use]
    pub fn new(length: usize, fill: u8) -> Self {
        let block = vec![fill; length + BUFFER_ALIGNMENT];
        let start = block.as_ptr().align_offset(BUFFER_ALIGNMENT);
        Self { block, start, length }
    }

    /// The bytes.
    #[must_use]
    pub fn as_slice(&self) -> &[u8] {
        &self.block[self.start..self.start + self.length]
    }

    /// The bytes, writable.
    pub fn as_mut_slice(&mut self) -> &mut [u8] {
        &mut self.block[self.start..self.start + self.length]
    }
}

impl Clone for AlignedBytes {
    fn clone(&self) -> Self {
        let mut copy = Self::new(self.length, 0);
        copy.as_mut_slice().copy_from_slice(self.as_slice());
        copy
    }
}

/// A tensor that owns its storage.
#[derive(Clone, Debug)]
pub struct OwnedTensor {
    /// The tensor's name in its operator.
    pub name: &'static str,
    /// Where the elements lie.
    pub layout: TensorLayout,
    /// The whole storage, offset, gaps and tail included.
    pub storage: AlignedBytes,
}

impl OwnedTensor {
    /// The tensor, readable.
    #[must_use]
    pub fn view(&self) -> TensorView<'_> {
        TensorView::new(self.layout.clone(), self.storage.as_slice())
    }

    /// The tensor, writable.
    pub fn view_mut(&mut self) -> TensorMut<'_> {
        TensorMut { layout: self.layout.clone(), bytes: self.storage.as_mut_slice() }
    }

    /// All logical elements in row order, with no gaps.
    #[must_use]
    pub fn packed_bytes(&self) -> Vec<u8> {
        let view = self.view();
        (0..self.layout.rows()).flat_map(|row| view.row_bytes(row).iter().copied()).collect()
    }

    /// Index of the first storage byte outside the logical elements that differs from `fill`, if any.
    ///
    /// After a call on storage poisoned with `fill`, such a byte was written out of bounds.
    #[must_use]
    pub fn first_stray_byte(&self, fill: u8) -> Option<usize> {
        let bytes = self.storage.as_slice();
        let mut next = 0;
        let rows = if self.layout.elements() == 0 { 0 } else { self.layout.rows() };
        for row in 0..rows {
            let range = self.layout.row_range(row);
            if let Some(at) = bytes[next..range.start].iter().position(|byte| *byte != fill) {
                return Some(next + at);
            }
            next = range.end;
        }
        bytes[next..].iter().position(|byte| *byte != fill).map(|at| next + at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn strided() -> TensorLayout {
        TensorLayout { dtype: Dtype::F16, shape: vec![2, 3], row_stride: 5, offset: 1 }
    }

    #[test]
    fn a_strided_view_reads_what_was_written_and_leaves_the_gaps() {
        let mut tensor =
            OwnedTensor { name: "x", layout: strided(), storage: AlignedBytes::new(24, 0xa5) };
        tensor.view_mut().write_row(0, &[1.0, 2.0, 3.0]);
        tensor.view_mut().write_row(1, &[4.0, 5.0, 6.0]);
        assert_eq!(tensor.first_stray_byte(0xa5), None);
        let mut row = Vec::new();
        tensor.view().read_row(1, &mut row);
        assert_eq!(row, [4.0, 5.0, 6.0]);
        assert_eq!(tensor.view().value(0, 2), 3.0);
        tensor.storage.as_mut_slice()[9] = 0;
        assert_eq!(tensor.first_stray_byte(0xa5), Some(9));
    }

    #[test]
    fn runs_of_rows_cover_the_tensor_and_nothing_else() {
        for parts in 1..7 {
            let layout =
                TensorLayout { dtype: Dtype::F16, shape: vec![5, 3], row_stride: 5, offset: 1 };
            let storage = AlignedBytes::new(52, 0xa5);
            let mut tensor = OwnedTensor { name: "x", layout, storage };
            let mut view = tensor.view_mut();
            let split = view.split_rows(parts);
            assert!(split.len() as u64 <= parts);
            for (first, mut part) in split {
                for row in 0..part.layout.rows() {
                    part.write_row(row, &[(first + row) as f64; 3]);
                }
            }
            let values: Vec<f64> = (0..5).map(|row| tensor.view().value(row, 2)).collect();
            assert_eq!(values, [0.0, 1.0, 2.0, 3.0, 4.0], "{parts} parts");
            assert_eq!(tensor.first_stray_byte(0xa5), None);
        }
    }

    #[test]
    fn a_tensor_without_elements_is_split_into_nothing() {
        for (rows, width) in [(3, 0), (0, 3), (0, 0)] {
            let layout = TensorLayout {
                dtype: Dtype::F32,
                shape: vec![rows, width],
                row_stride: 4,
                offset: 1,
            };
            let storage = AlignedBytes::new(layout.required_bytes().unwrap() as usize, 0);
            let mut tensor = OwnedTensor { name: "x", layout, storage };
            let mut view = tensor.view_mut();
            assert!(view.split_rows(2).is_empty());
        }
    }

    #[test]
    fn required_bytes_end_at_the_last_element_and_overflow_is_none() {
        assert_eq!(strided().required_bytes(), Some((1 + 5 + 3) * 2));
        let huge = TensorLayout::contiguous(Dtype::F32, &[u64::MAX / 2, 3]);
        assert_eq!(huge.required_bytes(), None);
        assert_eq!(TensorLayout::contiguous(Dtype::F32, &[0, 3]).required_bytes(), Some(0));
    }

    #[test]
    fn integers_keep_their_sign_and_width() {
        let mut tensor = OwnedTensor {
            name: "ids",
            layout: TensorLayout::contiguous(Dtype::I32, &[2]),
            storage: AlignedBytes::new(8, 0),
        };
        tensor.view_mut().write_integers(0, &[-1, 7]);
        let mut ids = Vec::new();
        tensor.view().read_integers(0, &mut ids);
        assert_eq!(ids, [-1, 7]);
    }

    #[test]
    fn owned_storage_starts_on_a_cache_line() {
        let bytes = AlignedBytes::new(10, 1);
        assert_eq!(bytes.as_slice().as_ptr() as usize % BUFFER_ALIGNMENT, 0);
        assert_eq!(bytes.clone().as_slice(), [1; 10]);
    }
}

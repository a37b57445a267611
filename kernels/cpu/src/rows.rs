//! Tensors as runs of rows that can be split among threads.

use proofhouse_contract::{TensorMut, TensorView};

/// Rows of bytes that are only read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rows<'a> {
    bytes: &'a [u8],
    width: usize,
    stride: usize,
    count: usize,
}

/// Rows of bytes that are written.
#[derive(Debug)]
pub(crate) struct RowsMut<'a> {
    bytes: &'a mut [u8],
    width: usize,
    stride: usize,
    count: usize,
}

/// First byte, width, stride and number of rows, in bytes; the layout must have been accepted.
fn geometry(layout: &proofhouse_contract::TensorLayout) -> (usize, usize, usize, usize) {
    let size = layout.dtype.size();
    let rows = layout.rows() as usize;
    (
        layout.offset as usize * size,
        layout.width() as usize * size,
        layout.row_stride as usize * size,
        rows,
    )
}

impl<'a> Rows<'a> {
    /// The rows of a tensor.
    pub(crate) fn of(view: &TensorView<'a>) -> Self {
        let (start, width, stride, count) = geometry(&view.layout);
        Self { bytes: view.bytes.get(start..).unwrap_or(&[]), width, stride, count }
    }

    /// A vector as one row per element.
    pub(crate) fn elements(view: &TensorView<'a>) -> Self {
        let size = view.layout.dtype.size();
        let rows = Self::of(view);
        Self { bytes: rows.bytes, width: size, stride: size, count: rows.width / size }
    }

    /// Number of rows.
    pub(crate) const fn count(&self) -> usize {
        self.count
    }

    /// Distance between two rows, in bytes.
    pub(crate) const fn stride(&self) -> usize {
        self.stride
    }

    /// One row.
    #[inline]
    pub(crate) fn row(&self, index: usize) -> &'a [u8] {
        let start = index * self.stride;
        &self.bytes[start..start + self.width]
    }
}

impl<'a> RowsMut<'a> {
    /// The rows of a tensor.
    pub(crate) fn of<'b: 'a>(tensor: &'a mut TensorMut<'b>) -> Self {
        let (start, width, stride, count) = geometry(&tensor.layout);
        Self { bytes: tensor.bytes.get_mut(start..).unwrap_or(&mut []), width, stride, count }
    }

    /// A vector, or a column, as one row per element; it must have no gaps.
    pub(crate) fn elements<'b: 'a>(tensor: &'a mut TensorMut<'b>) -> Self {
        let size = tensor.layout.dtype.size();
        let count = tensor.layout.elements() as usize;
        let rows = Self::of(tensor);
        Self { bytes: rows.bytes, width: size, stride: size, count }
    }

    /// Distance between two rows, in bytes.
    pub(crate) const fn stride(&self) -> usize {
        self.stride
    }

    /// One row.
    #[inline]
    pub(crate) fn row(&mut self, index: usize) -> &mut [u8] {
        let start = index * self.stride;
        &mut self.bytes[start..start + self.width]
    }
}

/// Rows that can be parted in two.
pub(crate) trait Split: Sized + Send {
    /// Number of rows.
    fn count(&self) -> usize;
    /// The first `at` rows, and the rest.
    fn split(self, at: usize) -> (Self, Self);
}

impl Split for Rows<'_> {
    fn count(&self) -> usize {
        self.count
    }

    fn split(self, at: usize) -> (Self, Self) {
        let (head, tail) = self.bytes.split_at((at * self.stride).min(self.bytes.len()));
        (
            Self { bytes: head, count: at, ..self },
            Self { bytes: tail, count: self.count - at, ..self },
        )
    }
}

impl Split for RowsMut<'_> {
    fn count(&self) -> usize {
        self.count
    }

    fn split(self, at: usize) -> (Self, Self) {
        let place = (at * self.stride).min(self.bytes.len());
        let (head, tail) = self.bytes.split_at_mut(place);
        let (width, stride) = (self.width, self.stride);
        (
            Self { bytes: head, width, stride, count: at },
            Self { bytes: tail, width, stride, count: self.count - at },
        )
    }
}

macro_rules! split_tuple {
    ($($name:ident $place:tt),*) => {
        impl<$($name: Split),*> Split for ($($name,)*) {
            fn count(&self) -> usize {
                self.0.count()
            }

            fn split(self, at: usize) -> (Self, Self) {
                let parts = ($(self.$place.split(at),)*);
                (($(parts.$place.0,)*), ($(parts.$place.1,)*))
            }
        }
    };
}

split_tuple!(A 0, B 1);
split_tuple!(A 0, B 1, C 2);
split_tuple!(A 0, B 1, C 2, D 3);
split_tuple!(A 0, B 1, C 2, D 3, E 4);

impl<T: Split> Split for Option<T> {
    fn count(&self) -> usize {
        self.as_ref().map_or(0, T::count)
    }

    fn split(self, at: usize) -> (Self, Self) {
        match self {
            None => (None, None),
            Some(rows) => {
                let (head, tail) = rows.split(at);
                (Some(head), Some(tail))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proofhouse_contract::{Dtype, TensorLayout};

    #[test]
    fn split_rows_are_the_rows_of_the_whole() {
        let bytes: Vec<u8> = (0..50).collect();
        let layout =
            TensorLayout { dtype: Dtype::F16, shape: vec![4, 3], row_stride: 5, offset: 1 };
        let rows = Rows::of(&TensorView::new(layout, &bytes));
        let (head, tail) = rows.split(3);
        assert_eq!((head.count(), tail.count()), (3, 1));
        assert_eq!(head.row(2), rows.row(2));
        assert_eq!(tail.row(0), rows.row(3));
        assert_eq!(rows.row(0), [2, 3, 4, 5, 6, 7]);
    }

    #[test]
    fn written_rows_keep_their_gaps() {
        let mut bytes = vec![0u8; 22];
        let layout = TensorLayout { dtype: Dtype::U8, shape: vec![3, 2], row_stride: 8, offset: 2 };
        let mut tensor = TensorMut { layout, bytes: &mut bytes };
        let (mut head, mut tail) = RowsMut::of(&mut tensor).split(1);
        head.row(0).fill(1);
        tail.row(0).fill(2);
        tail.row(1).fill(3);
        assert_eq!(bytes.iter().filter(|byte| **byte == 0).count(), 16);
        assert_eq!(
            (&bytes[2..4], &bytes[10..12], &bytes[18..20]),
            (&[1, 1][..], &[2, 2][..], &[3, 3][..])
        );
    }
}

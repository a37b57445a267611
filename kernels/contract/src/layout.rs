//! Storage layouts that cases are drawn from, and what each means for a tensor.

use std::fmt;
use std::str::FromStr;

use crate::dtype::Dtype;
use crate::error::{ContractError, ErrorKind};
use crate::tensor::TensorLayout;

/// How the tensors of a case lie in their storage.
///
/// Row gaps and windows apply to tensors whose contract allows a row stride; offsets apply to every tensor.
/// The text forms are `contiguous`, `row-strided:8`, `offset:3` and `packed:16`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Layout {
    /// No gaps, starting at an aligned address.
    Contiguous,
    /// `pad` unused elements after every row.
    RowStrided {
        /// Elements between the end of a row and the start of the next.
        pad: u32,
    },
    /// The first element lies `elements` elements behind an aligned address.
    Offset {
        /// Elements before the first one.
        elements: u32,
    },
    /// The tensor is a window of columns in a wider matrix, `side` foreign columns on either side.
    Packed {
        /// Foreign elements before and after every row.
        side: u32,
    },
}

impl Layout {
    /// The layouts that a correctness gate draws from.
    pub const CASES: [Self; 6] = [
        Self::Contiguous,
        Self::RowStrided { pad: 8 },
        Self::Offset { elements: 1 },
        Self::Offset { elements: 3 },
        Self::Offset { elements: 8 },
        Self::Packed { side: 5 },
    ];

    /// Places a tensor of the given shape; `strided` says whether its contract allows a row stride.
    #[must_use]
    pub fn place(self, dtype: Dtype, shape: &[u64], strided: bool) -> TensorLayout {
        let mut layout = TensorLayout::contiguous(dtype, shape);
        match self {
            Self::Contiguous => {}
            Self::RowStrided { pad } if strided => layout.row_stride += u64::from(pad),
            Self::Offset { elements } => layout.offset = u64::from(elements),
            Self::Packed { side } if strided => {
                layout.row_stride += 2 * u64::from(side);
                layout.offset = u64::from(side);
            }
            Self::RowStrided { .. } | Self::Packed { .. } => {}
        }
        layout
    }
}

impl fmt::Display for Layout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Contiguous => f.pad("contiguous"),
            Self::RowStrided { pad } => f.pad(&format!("row-strided:{pad}")),
            Self::Offset { elements } => f.pad(&format!("offset:{elements}")),
            Self::Packed { side } => f.pad(&format!("packed:{side}")),
        }
    }
}

impl FromStr for Layout {
    type Err = ContractError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let number = |count: &str| count.parse::<u32>().ok().filter(|value| *value > 0);
        let parsed = match text.split_once(':') {
            None if text == "contiguous" => Some(Self::Contiguous),
            Some(("row-strided", count)) => number(count).map(|pad| Self::RowStrided { pad }),
            Some(("offset", count)) => number(count).map(|elements| Self::Offset { elements }),
            Some(("packed", count)) => number(count).map(|side| Self::Packed { side }),
            _ => None,
        };
        parsed.ok_or_else(|| {
            ContractError::new("", "layout", ErrorKind::Unknown)
                .found(text)
                .accepted("contiguous, row-strided:N, offset:N or packed:N with N of at least 1")
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_layout_parses_back_from_its_text() {
        for layout in Layout::CASES {
            assert_eq!(layout.to_string().parse::<Layout>().unwrap(), layout);
        }
        for bad in ["packed", "offset:0", "offset:-1", "row-strided:x", "Contiguous"] {
            assert!(bad.parse::<Layout>().is_err(), "{bad}");
        }
    }

    #[test]
    fn a_window_has_an_offset_and_a_wider_stride_only_where_strides_are_allowed() {
        let packed = Layout::Packed { side: 5 };
        let window = packed.place(Dtype::F32, &[2, 4], true);
        assert_eq!((window.offset, window.row_stride), (5, 14));
        let vector = packed.place(Dtype::F32, &[4], false);
        assert_eq!((vector.offset, vector.row_stride), (0, 4));
        let moved = Layout::Offset { elements: 3 }.place(Dtype::F32, &[4], false);
        assert_eq!(moved.offset, 3);
    }
}

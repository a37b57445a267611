//! A safetensors file of real inputs. Its header is held against its length before any data are read; then the data are
//! read once, for the digest and for what can be compared in them.

use std::collections::BTreeMap;
use std::io::{self, Read};
use std::ops::Range;

use proofhouse_schema::canonical::Digest;
use serde::Deserialize;
use sha2::{Digest as _, Sha256};

/// Bytes of the field that holds the header's length.
const LENGTH_FIELD: u64 = 8;
/// The longest header accepted, in bytes.
const MAX_HEADER: u64 = 16 << 20;
/// The largest extent: canonical JSON holds no wider integer.
const MAX_EXTENT: u64 = 1 << 53;
/// Bytes read at a time; a multiple of every element's size.
const CHUNK: usize = 1 << 20;

/// Why a file holds no tensors.
#[derive(Debug, thiserror::Error)]
pub(super) enum TensorFileError {
    /// It cannot be read.
    #[error("it cannot be read")]
    Read(#[from] io::Error),
    /// It is too short for a header.
    #[error("it has {length} bytes, and a header and its length take more than {LENGTH_FIELD}")]
    TooShort {
        /// The file's length.
        length: u64,
    },
    /// The header is longer than the file, or than any header is.
    #[error(
        "its first 8 bytes say that the header has {header} bytes; accepted: at most {accepted}, what follows them in this file"
    )]
    HeaderLength {
        /// What the file says.
        header: u64,
        /// The most.
        accepted: u64,
    },
    /// The header is no JSON object of tensors.
    #[error("its header is no JSON object of tensors")]
    Header(#[from] serde_json::Error),
    /// One tensor of the header is not what a tensor is.
    #[error("tensor {name:?}: {found}; accepted: {accepted}")]
    Tensor {
        /// Its name.
        name: String,
        /// What it says.
        found: String,
        /// What it may say.
        accepted: String,
    },
    /// The data end before the tensors do, or go on behind them.
    #[error("the tensors of its header take {needed} bytes, and {found} follow the header")]
    DataLength {
        /// What the header asks for.
        needed: u64,
        /// What there is.
        found: u64,
    },
}

/// What is known of a file.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct TensorFile {
    /// The digest of the whole file.
    pub(super) sha256: Digest,
    /// Its tensors.
    pub(super) tensors: BTreeMap<String, FileTensor>,
}

/// One tensor of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct FileTensor {
    /// Its dtype, in safetensors' spelling.
    pub(super) dtype: String,
    /// Its extents.
    pub(super) shape: Vec<u64>,
    /// Its bytes behind the header.
    range: Range<u64>,
    /// What its elements are, where they are real numbers of a dtype that cases can have.
    pub(super) classes: Option<Classes>,
}

/// Counts of what a tensor's elements are.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Classes {
    /// Finite elements.
    pub(super) finite: u64,
    /// Rows without a NaN.
    pub(super) rows_without_nan: u64,
    /// Rows of finite elements only.
    pub(super) finite_rows: u64,
}

/// A tensor as the header writes it.
#[derive(Deserialize)]
struct Entry {
    dtype: String,
    shape: Vec<u64>,
    data_offsets: (u64, u64),
}

/// Reads a file of that length: the header first, and the data only where the header is that of this file.
pub(super) fn read(length: u64, file: &mut dyn Read) -> Result<TensorFile, TensorFileError> {
    let mut source = Hashing { file, hasher: Sha256::new() };
    let room = length
        .checked_sub(LENGTH_FIELD)
        .filter(|room| *room > 0)
        .ok_or(TensorFileError::TooShort { length })?;
    let mut field = [0; LENGTH_FIELD as usize];
    source.fill(&mut field)?;
    let header = u64::from_le_bytes(field);
    let accepted = room.min(MAX_HEADER);
    if header > accepted {
        return Err(TensorFileError::HeaderLength { header, accepted });
    }
    // At most MAX_HEADER, which fits.
    let mut text = vec![0; header as usize];
    source.fill(&mut text)?;
    let mut tensors = parse(&text)?;
    let found = room - header;
    let needed = lie_end_to_end(&tensors)?;
    if needed != found {
        return Err(TensorFileError::DataLength { needed, found });
    }
    let mut in_order: Vec<&mut FileTensor> = tensors.values_mut().collect();
    in_order.sort_by_key(|tensor| (tensor.range.start, tensor.range.end));
    for tensor in in_order {
        source.pass(tensor)?;
    }
    Ok(TensorFile { sha256: Digest::from_hash(source.hasher.finalize().into()), tensors })
}

fn parse(text: &[u8]) -> Result<BTreeMap<String, FileTensor>, TensorFileError> {
    let entries: BTreeMap<String, serde_json::Value> = serde_json::from_slice(text)?;
    let tensors = entries.into_iter().filter(|(name, _)| name != "__metadata__");
    tensors.map(|(name, value)| Ok((name.clone(), tensor(&name, value)?))).collect()
}

fn tensor(name: &str, value: serde_json::Value) -> Result<FileTensor, TensorFileError> {
    let refused = |found: String, accepted: &str| TensorFileError::Tensor {
        name: name.to_owned(),
        found,
        accepted: accepted.to_owned(),
    };
    let Entry { dtype, shape, data_offsets: (start, end) } = Entry::deserialize(value)
        .map_err(|error| refused(error.to_string(), "dtype, shape and data_offsets"))?;
    if let Some(extent) = shape.iter().find(|extent| **extent > MAX_EXTENT) {
        return Err(refused(format!("an extent of {extent}"), "at most 2^53"));
    }
    let bits = element_bits(&dtype)
        .ok_or_else(|| refused(format!("dtype {dtype:?}"), "a dtype of safetensors"))?;
    let bits = shape.iter().try_fold(bits, |product, extent| product.checked_mul(*extent));
    let bytes = bits.filter(|bits| bits % 8 == 0).map(|bits| bits / 8);
    if end.checked_sub(start).is_none() || end.checked_sub(start) != bytes {
        let found = format!("data_offsets [{start}, {end}] for {dtype} in the shape {shape:?}");
        let bytes = bytes.map_or("more bytes than there are".into(), |b| format!("{b} bytes"));
        return Err(refused(found, &format!("an end that is {bytes} behind its start")));
    }
    Ok(FileTensor { dtype, shape, range: start..end, classes: None })
}

/// Bits of an element, for every dtype that safetensors writes.
fn element_bits(dtype: &str) -> Option<u64> {
    Some(match dtype {
        "F4" => 4,
        "F6_E2M3" | "F6_E3M2" => 6,
        "BOOL" | "U8" | "I8" | "F8_E4M3" | "F8_E5M2" | "F8_E8M0" | "F8_E4M3FNUZ"
        | "F8_E5M2FNUZ" => 8,
        "I16" | "U16" | "F16" | "BF16" => 16,
        "I32" | "U32" | "F32" => 32,
        "I64" | "U64" | "F64" | "C64" => 64,
        _ => return None,
    })
}

/// Checks that the tensors follow one another without gap or overlap; gives the end of the last.
fn lie_end_to_end(tensors: &BTreeMap<String, FileTensor>) -> Result<u64, TensorFileError> {
    let mut in_order: Vec<(&String, &FileTensor)> = tensors.iter().collect();
    in_order.sort_by_key(|(_, tensor)| (tensor.range.start, tensor.range.end));
    let mut end = 0;
    for (name, tensor) in in_order {
        if tensor.range.start != end {
            return Err(TensorFileError::Tensor {
                name: name.clone(),
                found: format!("data that start at byte {}", tensor.range.start),
                accepted: format!("byte {end}, where the data before them end"),
            });
        }
        end = tensor.range.end;
    }
    Ok(end)
}

/// A file that is hashed as it is read.
struct Hashing<'a> {
    file: &'a mut dyn Read,
    hasher: Sha256,
}

impl Hashing<'_> {
    fn fill(&mut self, bytes: &mut [u8]) -> io::Result<()> {
        self.file.read_exact(bytes)?;
        self.hasher.update(bytes);
        Ok(())
    }

    /// Reads a tensor's data and counts what is in them.
    fn pass(&mut self, tensor: &mut FileTensor) -> io::Result<()> {
        let mut count = Count::of(&tensor.dtype, &tensor.shape);
        let mut left = tensor.range.end - tensor.range.start;
        let mut chunk = vec![0; CHUNK.min(usize::try_from(left).unwrap_or(CHUNK))];
        while left > 0 {
            let size = chunk.len().min(usize::try_from(left).unwrap_or(CHUNK));
            self.fill(&mut chunk[..size])?;
            if let Some(count) = &mut count {
                count.add(&chunk[..size]);
            }
            left -= size as u64;
        }
        tensor.classes = count.map(Count::done);
        Ok(())
    }
}

/// Where a dtype's NaN and infinities are among its bits.
struct Form {
    size: usize,
    exponent: u32,
    mantissa: u32,
    infinities: bool,
}

/// Counts element by element, row by row.
struct Count {
    form: Form,
    width: u64,
    column: u64,
    row: RowClass,
    classes: Classes,
}

#[derive(Default)]
struct RowClass {
    nan: bool,
    infinite: bool,
}

impl Count {
    fn of(dtype: &str, shape: &[u64]) -> Option<Self> {
        let form =
            |size, exponent, mantissa, infinities| Form { size, exponent, mantissa, infinities };
        let form = match dtype {
            "F32" => form(4, 0x7f80_0000, 0x007f_ffff, true),
            "F16" => form(2, 0x7c00, 0x03ff, true),
            "BF16" => form(2, 0x7f80, 0x007f, true),
            "F8_E4M3" => form(1, 0x78, 0x07, false),
            _ => return None,
        };
        let width = shape.last().copied().unwrap_or(1);
        let (row, classes) = (RowClass::default(), Classes::default());
        Some(Self { form, width, column: 0, row, classes })
    }

    fn add(&mut self, bytes: &[u8]) {
        let Form { size, exponent, mantissa, infinities } = self.form;
        for raw in bytes.chunks_exact(size) {
            let mut word = [0; 4];
            word[..size].copy_from_slice(raw);
            let bits = u32::from_le_bytes(word);
            let (extreme, fraction) = (bits & exponent == exponent, bits & mantissa);
            // E4M3 has no infinities: only its largest fraction is a NaN, the others are numbers.
            let nan = extreme && if infinities { fraction != 0 } else { fraction == mantissa };
            let infinite = extreme && infinities && fraction == 0;
            self.classes.finite += u64::from(!nan && !infinite);
            self.row.nan |= nan;
            self.row.infinite |= infinite;
            self.column += 1;
            if self.column == self.width {
                self.column = 0;
                let row = std::mem::take(&mut self.row);
                self.classes.rows_without_nan += u64::from(!row.nan);
                self.classes.finite_rows += u64::from(!row.nan && !row.infinite);
            }
        }
    }

    fn done(self) -> Classes {
        self.classes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(header: &str, data: &[u8]) -> Vec<u8> {
        let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
        bytes.extend_from_slice(header.as_bytes());
        bytes.extend_from_slice(data);
        bytes
    }

    fn read_all(bytes: &[u8]) -> Result<TensorFile, TensorFileError> {
        read(bytes.len() as u64, &mut &bytes[..])
    }

    /// What is told of a file that is refused.
    fn refused(bytes: &[u8]) -> String {
        read_all(bytes).unwrap_err().to_string()
    }

    const ONE: &str =
        r#"{"x":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]},"__metadata__":{"a":"b"}}"#;

    #[test]
    fn a_whole_file_gives_its_digest_and_its_tensors() {
        let bytes = file(ONE, &[0; 24]);
        let read = read_all(&bytes).unwrap();
        assert_eq!(read.sha256, Digest::of(&bytes));
        assert_eq!(read.tensors["x"].shape, [2, 3]);
        let classes = Classes { finite: 6, rows_without_nan: 2, finite_rows: 2 };
        assert_eq!(read.tensors["x"].classes, Some(classes));
        let none = file("{}", &[]);
        assert_eq!(read_all(&none).unwrap().tensors.len(), 0);
    }

    #[test]
    fn a_header_that_does_not_fit_the_file_is_refused_before_anything_else() {
        assert!(refused(b"").contains("has 0 bytes"));
        assert!(refused(&[0; 8]).contains("has 8 bytes"));
        assert!(refused(&[9, 0, 0, 0, 0, 0, 0, 0, b'{', b'}']).contains("at most 2"));
        assert!(refused(&file("not json", &[])).contains("no JSON object"));
        let mut huge = u64::MAX.to_le_bytes().to_vec();
        huge.push(b'{');
        assert!(refused(&huge).contains("18446744073709551615"));
    }

    #[test]
    fn data_that_are_short_or_go_on_are_refused_without_being_read() {
        struct Header(Vec<u8>);
        impl Read for Header {
            fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
                assert!(!self.0.is_empty(), "data were asked for");
                let count = into.len().min(self.0.len());
                into[..count].copy_from_slice(&self.0[..count]);
                self.0.drain(..count);
                Ok(count)
            }
        }
        let header = file(ONE, &[]);
        for data in [0, 23, 25] {
            let length = header.len() as u64 + data;
            let error = read(length, &mut Header(header.clone())).unwrap_err();
            assert!(
                matches!(error, TensorFileError::DataLength { needed: 24, found } if found == data)
            );
        }
    }

    #[test]
    fn offsets_that_overlap_leave_a_gap_or_contradict_the_shape_are_refused() {
        let two = |first: [u64; 2], second: [u64; 2]| {
            let header = format!(
                r#"{{"a":{{"dtype":"U8","shape":[4],"data_offsets":{first:?}}},"b":{{"dtype":"U8","shape":[4],"data_offsets":{second:?}}}}}"#
            );
            read_all(&file(&header, &[0; 8]))
        };
        assert!(two([0, 4], [4, 8]).is_ok() && two([4, 8], [0, 4]).is_ok());
        for (first, second) in [
            ([0, 4], [2, 6]),
            ([0, 4], [0, 4]),
            ([0, 4], [5, 9]),
            ([1, 5], [5, 9]),
            ([0, 4], [4, 7]),
            ([0, 4], [8, 4]),
            ([0, 4], [u64::MAX - 1, u64::MAX]),
        ] {
            let error = two(first, second).unwrap_err();
            assert!(
                matches!(error, TensorFileError::Tensor { .. }),
                "{first:?} {second:?}: {error}"
            );
        }
        for (entry, told) in [
            (r#""dtype":"F99","shape":[1],"data_offsets":[0,4]"#, "F99"),
            (r#""dtype":"F4","shape":[3],"data_offsets":[0,1]"#, "data_offsets [0, 1]"),
            (r#""dtype":"F32","shape":[9007199254740993],"data_offsets":[0,4]"#, "2^53"),
            (r#""dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,4]"#, "more bytes"),
            (r#""dtype":"F32","shape":[-1],"data_offsets":[0,4]"#, "invalid value"),
            (r#""dtype":"F32","shape":[1]"#, "data_offsets"),
        ] {
            let found = refused(&file(&format!("{{\"x\":{{{entry}}}}}"), &[0; 4]));
            assert!(found.contains(told), "{found}");
        }
    }

    #[test]
    fn elements_are_classed_in_every_dtype_that_cases_can_have() {
        for (dtype, elements) in [
            ("F32", [0x7f80_0001_u32, 0xff80_0000, 0x7f7f_ffff, 0x8000_0000]),
            ("F16", [0x7e00, 0xfc00, 0x7bff, 0x8000]),
            ("BF16", [0x7fc0, 0xff80, 0x7f7f, 0x8000]),
        ] {
            let size = if dtype == "F32" { 4 } else { 2 };
            let data: Vec<u8> =
                elements.iter().flat_map(|bits| bits.to_le_bytes()[..size].to_vec()).collect();
            // Rows of one element: a NaN, an infinity, two numbers.
            let header = format!(
                r#"{{"x":{{"dtype":"{dtype}","shape":[4,1],"data_offsets":[0,{}]}}}}"#,
                data.len()
            );
            let classes = read_all(&file(&header, &data)).unwrap().tensors["x"].classes;
            let expected = Classes { finite: 2, rows_without_nan: 3, finite_rows: 2 };
            assert_eq!(classes, Some(expected), "{dtype}");
        }
        let header = r#"{"x":{"dtype":"F8_E4M3","shape":[4],"data_offsets":[0,4]},"i":{"dtype":"I32","shape":[1],"data_offsets":[4,8]}}"#;
        let file = read_all(&file(header, &[0x7f, 0xff, 0x7e, 0x80, 0, 0, 0, 0])).unwrap();
        let expected = Classes { finite: 2, rows_without_nan: 0, finite_rows: 0 };
        assert_eq!((file.tensors["x"].classes, file.tensors["i"].classes), (Some(expected), None));
    }

    #[test]
    fn a_file_that_ends_early_although_its_length_fits_is_an_error() {
        let bytes = file(ONE, &[0; 24]);
        let error = read(bytes.len() as u64, &mut &bytes[..40]).unwrap_err();
        assert!(matches!(error, TensorFileError::Read(_)), "{error}");
    }
}

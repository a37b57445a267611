//! The column blob of raw samples: a header line and little-endian columns. Compression is the evidence crate's.
//!
//! Layout: the magic `PHS1`, a little-endian u32 with the length of a canonical JSON header
//! `{"providers": [...], "rows": n}`, the header, then the columns one after another, each `rows` long: provider u16
//! (index in `providers`), replicate u16, block u16, position u8, tag u8 (0 warm-up, 1 measured), calls u32,
//! elapsed_ns f64. With telemetry the magic is `PHS2`, the header names further columns in `columns`, and these follow as
//! f64, NaN where a sample has none.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::canonical::{self, CanonicalError};
use crate::ids::ProviderId;

const MAGIC: &[u8; 4] = b"PHS1";
const MAGIC_COLUMNS: &[u8; 4] = b"PHS2";
/// The most further columns.
const MAX_COLUMNS: usize = 32;
/// Bytes of one row over all columns.
const ROW: usize = 2 + 2 + 2 + 1 + 1 + 4 + 8;
/// The longest header accepted, in bytes.
const MAX_HEADER: usize = 1 << 20;

/// One sample.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Sample {
    /// Index into the providers.
    pub provider: u16,
    /// The replicate.
    pub replicate: u16,
    /// The block.
    pub block: u16,
    /// The place within the block.
    pub position: u8,
    /// Whether it counts (else warm-up).
    pub measured: bool,
    /// Calls in the sample.
    pub calls: u32,
    /// Nanoseconds for all the calls.
    pub elapsed_ns: f64,
}

/// Samples with their providers.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Samples {
    /// Providers, by the samples' index.
    pub providers: Vec<ProviderId>,
    /// The samples, in the order they were taken.
    pub rows: Vec<Sample>,
    /// What was read off the device around each sample, by name; each as long as `rows`.
    pub columns: BTreeMap<String, Vec<f64>>,
}

/// A blob that is not what it should be.
#[derive(Debug, thiserror::Error)]
pub enum SamplesError {
    /// Not a sample blob.
    #[error("not a sample blob: it does not start with PHS1 or PHS2")]
    Magic,
    /// Too short, or too long.
    #[error("sample blob of {found} bytes: its header promises {expected}")]
    Length {
        /// Bytes found.
        found: usize,
        /// Bytes promised.
        expected: usize,
    },
    /// The header is not readable.
    #[error("the sample blob's header is not readable")]
    Header(#[source] CanonicalError),
    /// A sample names a provider that the header lacks.
    #[error("sample {row} names provider {provider}, the header has {providers}")]
    Provider {
        /// The row.
        row: usize,
        /// The index found.
        provider: u16,
        /// How many there are.
        providers: usize,
    },
    /// Further columns that the layout has no room for.
    #[error(
        "a sample blob with {found} further columns: 1 to 32 are accepted where it starts with PHS2"
    )]
    Columns {
        /// How many there are.
        found: usize,
    },
    /// A tag that is neither 0 nor 1.
    #[error("sample {row} has tag {tag}: 0 and 1 are accepted")]
    Tag {
        /// The row.
        row: usize,
        /// The tag found.
        tag: u8,
    },
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Header {
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    columns: Vec<String>,
    providers: Vec<ProviderId>,
    rows: u64,
}

impl Samples {
    /// The uncompressed bytes.
    ///
    /// # Errors
    /// When the header cannot be written.
    pub fn encode(&self) -> Result<Vec<u8>, CanonicalError> {
        let header = canonical::to_bytes(&Header {
            columns: self.columns.keys().cloned().collect(),
            providers: self.providers.clone(),
            rows: self.rows.len() as u64,
        })?;
        let mut out = Vec::with_capacity(8 + header.len() + self.rows.len() * ROW);
        out.extend_from_slice(if self.columns.is_empty() { MAGIC } else { MAGIC_COLUMNS });
        out.extend_from_slice(&(header.len() as u32).to_le_bytes());
        out.extend_from_slice(&header);
        let rows = &self.rows;
        rows.iter().for_each(|r| out.extend_from_slice(&r.provider.to_le_bytes()));
        rows.iter().for_each(|r| out.extend_from_slice(&r.replicate.to_le_bytes()));
        rows.iter().for_each(|r| out.extend_from_slice(&r.block.to_le_bytes()));
        rows.iter().for_each(|r| out.push(r.position));
        rows.iter().for_each(|r| out.push(u8::from(r.measured)));
        rows.iter().for_each(|r| out.extend_from_slice(&r.calls.to_le_bytes()));
        rows.iter().for_each(|r| out.extend_from_slice(&r.elapsed_ns.to_le_bytes()));
        for column in self.columns.values() {
            let padded = column.iter().copied().chain(std::iter::repeat(f64::NAN));
            padded.take(rows.len()).for_each(|value| out.extend_from_slice(&value.to_le_bytes()));
        }
        Ok(out)
    }

    /// The most bytes that [`Samples::encode`] makes of so many rows.
    #[must_use]
    pub fn encoded_size_limit(rows: u64) -> u64 {
        let row = (ROW + 8 * MAX_COLUMNS) as u64;
        rows.saturating_mul(row).saturating_add(8 + MAX_HEADER as u64)
    }

    /// Reads uncompressed bytes; memory stays within the input's size.
    ///
    /// # Errors
    /// [`SamplesError`] for anything that [`Samples::encode`] does not write.
    pub fn decode(bytes: &[u8]) -> Result<Self, SamplesError> {
        let (rest, extended) = match (bytes.strip_prefix(MAGIC), bytes.strip_prefix(MAGIC_COLUMNS))
        {
            (Some(rest), _) => (rest, false),
            (None, Some(rest)) => (rest, true),
            (None, None) => return Err(SamplesError::Magic),
        };
        let short = |expected| SamplesError::Length { found: bytes.len(), expected };
        let (length, rest) = rest.split_first_chunk::<4>().ok_or_else(|| short(8))?;
        let length = u32::from_le_bytes(*length) as usize;
        if length > MAX_HEADER || rest.len() < length {
            return Err(short(8 + length));
        }
        let (header, body) = rest.split_at(length);
        let header = canonical::parse_canonical(header)
            .and_then(|(value, _)| {
                serde_json::from_value::<Header>(value).map_err(CanonicalError::Shape)
            })
            .map_err(SamplesError::Header)?;
        let more = header.columns.len();
        let ascending = header.columns.is_sorted_by(|a, b| a < b);
        if (more > 0) != extended || more > MAX_COLUMNS || !ascending {
            return Err(SamplesError::Columns { found: more });
        }
        let n = usize::try_from(header.rows).unwrap_or(usize::MAX);
        if n.checked_mul(ROW + 8 * more) != Some(body.len()) {
            return Err(short(n.saturating_mul(ROW + 8 * more).saturating_add(8 + length)));
        }
        let (body, rest) = body.split_at(n * ROW);
        let columns = Columns::split(body, n);
        let rows =
            (0..n).map(|i| columns.row(i, header.providers.len())).collect::<Result<_, _>>()?;
        let values = rest.as_chunks().0.iter().map(|bytes| f64::from_le_bytes(*bytes));
        let values: Vec<f64> = values.collect();
        let column = |(at, name): (usize, String)| (name, values[at * n..(at + 1) * n].to_vec());
        let columns = header.columns.into_iter().enumerate().map(column).collect();
        Ok(Samples { providers: header.providers, rows, columns })
    }
}

struct Columns<'a> {
    provider: &'a [[u8; 2]],
    replicate: &'a [[u8; 2]],
    block: &'a [[u8; 2]],
    position: &'a [u8],
    tag: &'a [u8],
    calls: &'a [[u8; 4]],
    elapsed: &'a [[u8; 8]],
}

impl<'a> Columns<'a> {
    fn split(body: &'a [u8], n: usize) -> Self {
        let (provider, rest) = body.split_at(2 * n);
        let (replicate, rest) = rest.split_at(2 * n);
        let (block, rest) = rest.split_at(2 * n);
        let (position, rest) = rest.split_at(n);
        let (tag, rest) = rest.split_at(n);
        let (calls, elapsed) = rest.split_at(4 * n);
        Columns {
            provider: provider.as_chunks().0,
            replicate: replicate.as_chunks().0,
            block: block.as_chunks().0,
            position,
            tag,
            calls: calls.as_chunks().0,
            elapsed: elapsed.as_chunks().0,
        }
    }

    fn row(&self, i: usize, providers: usize) -> Result<Sample, SamplesError> {
        let provider = u16::from_le_bytes(self.provider[i]);
        if usize::from(provider) >= providers {
            return Err(SamplesError::Provider { row: i, provider, providers });
        }
        let tag = self.tag[i];
        if tag > 1 {
            return Err(SamplesError::Tag { row: i, tag });
        }
        Ok(Sample {
            provider,
            replicate: u16::from_le_bytes(self.replicate[i]),
            block: u16::from_le_bytes(self.block[i]),
            position: self.position[i],
            measured: tag == 1,
            calls: u32::from_le_bytes(self.calls[i]),
            elapsed_ns: f64::from_le_bytes(self.elapsed[i]),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn two() -> Samples {
        let sample = Sample {
            provider: 1,
            replicate: 2,
            block: 3,
            position: 1,
            measured: true,
            calls: 40,
            elapsed_ns: 1234.5,
        };
        Samples {
            providers: vec!["cpu".parse().unwrap(), "numpy".parse().unwrap()],
            rows: vec![Sample { provider: 0, measured: false, ..sample }, sample],
            columns: BTreeMap::new(),
        }
    }

    #[test]
    fn what_is_encoded_is_decoded() {
        let bytes = two().encode().unwrap();
        assert_eq!(Samples::decode(&bytes).unwrap(), two());
    }

    #[test]
    fn telemetry_travels_with_its_samples_and_every_truncation_of_it_is_refused() {
        let mut samples = two();
        samples.columns.insert("sm_mhz".to_owned(), vec![1980.0, 1965.0]);
        samples.columns.insert("power_mw".to_owned(), vec![250_000.0, 251_000.0]);
        let bytes = samples.encode().unwrap();
        assert!(bytes.starts_with(b"PHS2"));
        assert_eq!(Samples::decode(&bytes).unwrap(), samples);
        for cut in 0..bytes.len() {
            assert!(Samples::decode(&bytes[..cut]).is_err(), "cut at {cut}");
        }
        samples.columns.insert("reasons".to_owned(), vec![]);
        let padded = Samples::decode(&samples.encode().unwrap()).unwrap();
        assert!(padded.columns["reasons"].iter().all(|value| value.is_nan()));
    }

    #[test]
    fn a_blob_without_telemetry_is_written_as_before() {
        assert!(two().encode().unwrap().starts_with(b"PHS1"));
    }

    #[test]
    fn every_truncation_is_refused() {
        let bytes = two().encode().unwrap();
        for cut in 0..bytes.len() {
            assert!(Samples::decode(&bytes[..cut]).is_err(), "cut at {cut}");
        }
    }

    #[test]
    fn a_provider_that_the_header_lacks_is_refused() {
        let mut samples = two();
        samples.providers.pop();
        let bytes = samples.encode().unwrap();
        assert!(matches!(Samples::decode(&bytes), Err(SamplesError::Provider { row: 1, .. })));
    }

    #[test]
    fn a_header_with_a_space_is_refused() {
        let header = br#"{"providers":[], "rows":0}"#;
        let mut bytes = b"PHS1".to_vec();
        bytes.extend_from_slice(&(header.len() as u32).to_le_bytes());
        bytes.extend_from_slice(header);
        let found = Samples::decode(&bytes);
        assert!(matches!(found, Err(SamplesError::Header(CanonicalError::NotCanonical))));
    }

    #[test]
    fn a_promise_of_many_rows_takes_no_memory() {
        let header = br#"{"providers":[],"rows":9007199254740991}"#;
        let mut bytes = b"PHS1".to_vec();
        bytes.extend_from_slice(&(header.len() as u32).to_le_bytes());
        bytes.extend_from_slice(header);
        assert!(matches!(Samples::decode(&bytes), Err(SamplesError::Length { .. })));
    }
}

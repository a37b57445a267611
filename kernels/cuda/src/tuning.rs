//! How an operator's work is parted over threads and blocks.
//!
//! Results do not depend on it, bit for bit, except on [`ChunkShape::values`], which therefore follows from the dtype
//! alone unless a caller says otherwise.

use proofhouse_contract::Dtype;

use crate::error::CudaError;

/// How the rows of a normalization are parted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RowShape {
    /// Threads that share a row: a multiple of 32 up to 1024, or a power of two below 32.
    pub threads: u32,
    /// 16-byte vectors of the row that each of them holds: 1 to 4; 1 below 32 threads.
    pub vectors: u32,
    /// Rows of a block; 1 above 32 threads.
    pub rows: u32,
    /// Blocks per multiprocessor that go over all rows, each reading one ahead; `None` for a block per row.
    pub looped: Option<u32>,
    /// Whether stores say that nobody reads the output soon.
    pub streaming: bool,
}

/// How the elements of a gated activation are parted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct GateShape {
    /// Threads beside each other in a row: a power of two up to 1024.
    pub threads: u32,
    /// 16-byte vectors of each half that a thread has under way: 1 to 8.
    pub vectors: u32,
    /// Rows of a block.
    pub rows: u32,
    /// Whether stores say that nobody reads the output soon.
    pub streaming: bool,
}

/// How a vocabulary is parted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ChunkShape {
    /// Logits of each lane of a warp, which has one chunk: 8, 16 or 32.
    pub values: u32,
    /// Chunks of a block: 1 to 32.
    pub warps: u32,
}

/// How the work of a prepared operator is parted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Tuning {
    /// Of a normalization.
    Rows(RowShape),
    /// Of a gated activation.
    Gate(GateShape),
    /// Of an operator over a vocabulary.
    Chunks(ChunkShape),
}

/// Elements in 16 bytes.
pub(crate) const fn per_vector(dtype: Dtype) -> u64 {
    16 / dtype.size() as u64
}

/// Most 16-byte vectors of a row that a block can hold.
const MOST_VECTORS: u64 = 4 * 1024;

/// Longest row that a normalization takes.
pub(crate) const fn longest_row(dtype: Dtype) -> u64 {
    MOST_VECTORS * per_vector(dtype)
}

impl RowShape {
    /// The shape for a call, on a device with `multiprocessors`.
    pub(crate) fn choose(rows: u64, hidden: u64, dtype: Dtype, multiprocessors: u32) -> Self {
        let vectors = hidden.div_ceil(per_vector(dtype)).clamp(1, MOST_VECTORS) as u32;
        let one_row = Self { threads: 1, vectors: 1, rows: 1, looped: None, streaming: false };
        if vectors <= 32 {
            let threads = vectors.next_power_of_two().max(4);
            return Self { threads, rows: 128 / threads, ..one_row };
        }
        let many = rows > 4 * u64::from(multiprocessors);
        // Few rows: every thread has as little to wait for as can be. Many: fewer threads with more under way.
        let wanted = match vectors {
            _ if !many => vectors.div_ceil(1024),
            33..=128 => vectors.div_ceil(32),
            _ => vectors.div_ceil(1024).max(2),
        };
        let threads = vectors.div_ceil(wanted).next_multiple_of(32);
        let rows_of_block = if threads == 32 { 4 } else { 1 };
        let looped = (many && threads > 32).then_some((2048 / threads / 2).clamp(1, 16));
        Self { threads, vectors: wanted, rows: rows_of_block, looped, ..one_row }
    }

    pub(crate) fn check(
        self,
        operator: &'static str,
        hidden: u64,
        dtype: Dtype,
    ) -> Result<(), CudaError> {
        let Self { threads, vectors, rows, looped, streaming: _ } = self;
        let refuse = |what, found: u32, accepted: &str| {
            Err(CudaError::Tuning {
                operator,
                what,
                found: found.to_string(),
                accepted: accepted.to_owned(),
            })
        };
        let whole_warps = (32..=1024).contains(&threads) && threads.is_multiple_of(32);
        if !(whole_warps || threads < 32 && threads.is_power_of_two()) {
            return refuse(
                "threads of a row",
                threads,
                "a multiple of 32 up to 1024, or a power of two below 32",
            );
        }
        if !(1..=4).contains(&vectors) || (threads < 32 && vectors > 1) {
            return refuse("vectors of a thread", vectors, "1 to 4, and 1 below 32 threads");
        }
        let most_rows = if threads > 32 { 1 } else { 1024 / threads };
        if !(1..=most_rows).contains(&rows) || !(rows * threads).is_multiple_of(32) {
            return refuse(
                "rows of a block",
                rows,
                "1 above 32 threads, else as many as make whole warps of at most 1024 threads",
            );
        }
        if looped == Some(0) {
            return refuse("looped blocks per multiprocessor", 0, "at least 1");
        }
        let held = u64::from(threads) * u64::from(vectors) * per_vector(dtype);
        if held < hidden {
            return refuse("elements held", held as u32, &format!("at least hidden, {hidden}"));
        }
        Ok(())
    }

    /// The numbers that the kernel is built with.
    pub(crate) fn numbers(self, aligned: bool) -> Vec<(&'static str, u32)> {
        vec![
            ("THREADS", self.threads),
            ("VECTORS", self.vectors),
            ("ROWS", self.rows),
            ("LOOPED", u32::from(self.looped.is_some())),
            ("ALIGNED", u32::from(aligned)),
            ("STREAMING", u32::from(self.streaming)),
        ]
    }

    /// Blocks of a launch.
    pub(crate) fn blocks(self, rows: u64, multiprocessors: u32) -> u64 {
        let all = rows.div_ceil(u64::from(self.rows));
        self.looped.map_or(all, |blocks| all.min(u64::from(blocks) * u64::from(multiprocessors)))
    }
}

impl GateShape {
    /// The shape for a call, on a device with `multiprocessors`.
    pub(crate) fn choose(rows: u64, width: u64, dtype: Dtype, multiprocessors: u32) -> Self {
        let vectors = width.div_ceil(per_vector(dtype)).max(1);
        let all = vectors.saturating_mul(rows);
        if vectors < 64 {
            let threads = vectors.next_power_of_two().max(4) as u32;
            return Self { threads, vectors: 1, rows: 128 / threads, streaming: false };
        }
        if all <= 256 * u64::from(multiprocessors) {
            return Self { threads: 64, vectors: 1, rows: 1, streaming: false };
        }
        Self { threads: 128, vectors: 2, rows: 1, streaming: false }
    }

    pub(crate) fn check(self, operator: &'static str) -> Result<(), CudaError> {
        let Self { threads, vectors, rows, streaming: _ } = self;
        let refuse = |what, found: u32, accepted: &str| {
            Err(CudaError::Tuning {
                operator,
                what,
                found: found.to_string(),
                accepted: accepted.to_owned(),
            })
        };
        if !threads.is_power_of_two() || threads > 1024 {
            return refuse("threads beside each other", threads, "a power of two up to 1024");
        }
        if !(1..=8).contains(&vectors) {
            return refuse("vectors of a thread", vectors, "1 to 8");
        }
        if !(1..=1024 / threads).contains(&rows) {
            return refuse("rows of a block", rows, "as many as make at most 1024 threads");
        }
        Ok(())
    }

    /// The numbers that the kernel is built with.
    pub(crate) fn numbers(self, aligned: bool) -> Vec<(&'static str, u32)> {
        vec![
            ("THREADS", self.threads),
            ("VECTORS", self.vectors),
            ("ROWS", self.rows),
            ("ALIGNED", u32::from(aligned)),
            ("STREAMING", u32::from(self.streaming)),
        ]
    }

    /// Blocks of a launch: along a row, and over the rows.
    pub(crate) fn blocks(self, rows: u64, width: u64, dtype: Dtype) -> [u64; 2] {
        let vectors = width.div_ceil(per_vector(dtype));
        let along = vectors.div_ceil(u64::from(self.threads) * u64::from(self.vectors));
        [along, rows.div_ceil(u64::from(self.rows)).min(65_535)]
    }
}

impl ChunkShape {
    /// The shape for a call, on a device with `multiprocessors`.
    pub(crate) fn choose(rows: u64, vocab: u64, multiprocessors: u32) -> Self {
        let values = 32;
        let chunks = vocab.div_ceil(32 * u64::from(values)).saturating_mul(rows);
        let warps = if chunks <= 8 * u64::from(multiprocessors) { 1 } else { 8 };
        Self { values, warps }
    }

    pub(crate) fn check(self, operator: &'static str) -> Result<(), CudaError> {
        let refuse = |what, found: u32, accepted: &str| {
            Err(CudaError::Tuning {
                operator,
                what,
                found: found.to_string(),
                accepted: accepted.to_owned(),
            })
        };
        if ![8, 16, 32].contains(&self.values) {
            return refuse("values of a lane", self.values, "8, 16 or 32");
        }
        if !(1..=32).contains(&self.warps) {
            return refuse("chunks of a block", self.warps, "1 to 32");
        }
        Ok(())
    }

    /// The numbers that the kernel is built with.
    pub(crate) fn numbers(self, aligned: bool) -> Vec<(&'static str, u32)> {
        vec![("VALUES", self.values), ("WARPS", self.warps), ("ALIGNED", u32::from(aligned))]
    }

    /// Chunks of a row.
    pub(crate) fn chunks(self, vocab: u64) -> u64 {
        vocab.div_ceil(32 * u64::from(self.values))
    }

    /// Blocks of a launch: along a row, and over the rows.
    pub(crate) fn blocks(self, rows: u64, vocab: u64) -> [u64; 2] {
        [self.chunks(vocab).div_ceil(u64::from(self.warps)), rows.min(65_535)]
    }
}

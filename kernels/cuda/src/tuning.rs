//! How an operator's work is parted over threads and blocks.
//!
//! Results do not depend on it, bit for bit, except on [`ChunkShape::values`], which therefore follows from the dtype
//! alone unless a caller says otherwise.

use proofhouse_contract::Dtype;

use crate::compile::Arch;
use crate::error::CudaError;

/// What tunings follow from on the side of the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Target {
    /// The architecture.
    pub arch: Arch,
    /// Multiprocessors.
    pub multiprocessors: u32,
    /// Bytes of the second-level cache.
    pub l2_bytes: u64,
}

/// When a launch begins, beside the launches in front of it and behind it in its stream.
///
/// Its accesses of memory are in the stream's order in every case: an overlapping launch waits, before its first one,
/// until everything in front of it has ended. What is gained is the time in which its blocks get into place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Overlap {
    /// When everything in front of it has ended.
    Off,
    /// While the launch in front of it ends; one behind it may do so once this one has waited. Needs compute
    /// capability 9.0.
    Ordered,
    /// The same, and one behind it may begin before this one has waited: a launch of others that reads, before it
    /// waits, what was written in front of this one, would read it too early. Needs compute capability 9.0.
    Early,
}

impl Overlap {
    /// The overlap of a call that has none given.
    const fn choose(arch: Arch) -> Self {
        if arch.has_dependent_launch() { Self::Ordered } else { Self::Off }
    }

    const fn number(self) -> u32 {
        match self {
            Self::Off => 0,
            Self::Ordered => 1,
            Self::Early => 2,
        }
    }
}

/// What accesses say about the time after the launch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Streaming {
    /// Nothing.
    Off,
    /// Stores: that nobody reads the output soon.
    Stores,
    /// Stores and loads: that nobody reads output or input soon.
    All,
}

impl Streaming {
    /// What suits a call that moves `bytes`: output that the cache cannot hold is not kept in it.
    const fn choose(bytes: u64, target: Target) -> Self {
        if bytes > target.l2_bytes { Self::Stores } else { Self::Off }
    }

    const fn number(self) -> u32 {
        match self {
            Self::Off => 0,
            Self::Stores => 1,
            Self::All => 2,
        }
    }
}

/// How the rows of a normalization are parted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RowShape {
    /// Threads that share a row: a multiple of 32 up to 1024, or a power of two below 32.
    pub threads: u32,
    /// 16-byte vectors of the row that each of them holds: 1, 2, 4, 8 or 16; 1 below 32 threads.
    pub vectors: u32,
    /// Rows of a block; 1 above 32 threads.
    pub rows: u32,
    /// Blocks per multiprocessor that go over all rows, each reading one ahead; `None` for a block per row.
    pub looped: Option<u32>,
    /// Whether gains are read with the row, and else after its sum.
    pub gains_ahead: bool,
    /// What accesses say about the time after the launch.
    pub streaming: Streaming,
    /// When the launch begins.
    pub overlap: Overlap,
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
    /// What accesses say about the time after the launch.
    pub streaming: Streaming,
    /// When the launch begins.
    pub overlap: Overlap,
}

/// How a vocabulary is parted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ChunkShape {
    /// Logits of each lane of a warp, which has one chunk: 8, 16 or 32.
    pub values: u32,
    /// Chunks of a block: 1 to 16.
    pub warps: u32,
    /// When the launch begins.
    pub overlap: Overlap,
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

impl Tuning {
    /// When the launch begins.
    #[must_use]
    pub const fn overlap(self) -> Overlap {
        match self {
            Self::Rows(shape) => shape.overlap,
            Self::Gate(shape) => shape.overlap,
            Self::Chunks(shape) => shape.overlap,
        }
    }
}

/// Numbers that a kernel is built with, by name.
pub(crate) type Numbers = Vec<(&'static str, u32)>;

/// What a normalization does with a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RowWork {
    /// Reads it and writes another.
    Plain,
    /// Reads two and writes both.
    Added,
    /// Reads it, reduces it twice and writes codes.
    Quantized,
}

impl RowWork {
    /// Bytes that a call over so many elements moves.
    const fn bytes(self, elements: u64, dtype: Dtype) -> u64 {
        let per_element = match self {
            Self::Plain => 2 * dtype.size(),
            Self::Added => 4 * dtype.size(),
            Self::Quantized => dtype.size() + 1,
        };
        elements.saturating_mul(per_element as u64)
    }
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
    /// The shape for a call. A row's bits do not depend on it, so it may follow from the number of rows.
    pub(crate) fn choose(
        rows: u64,
        hidden: u64,
        dtype: Dtype,
        work: RowWork,
        target: Target,
    ) -> Self {
        let vectors = hidden.div_ceil(per_vector(dtype)).clamp(1, MOST_VECTORS) as u32;
        let plain = Self {
            threads: 1,
            vectors: 1,
            rows: 1,
            looped: None,
            gains_ahead: true,
            streaming: Streaming::Off,
            overlap: Overlap::choose(target.arch),
        };
        if vectors <= 32 {
            let threads = vectors.next_power_of_two().max(4);
            return Self { threads, rows: 128 / threads, ..plain };
        }
        let shaped = |wanted: u32| {
            let threads = vectors.div_ceil(wanted).next_multiple_of(32);
            let rows = if threads == 32 { 4 } else { 1 };
            Self { threads, vectors: wanted, rows, gains_ahead: wanted <= 4, ..plain }
        };
        let least = vectors.div_ceil(1024).next_power_of_two();
        if rows <= 2 * u64::from(target.multiprocessors) {
            // Few rows: the warps of one block share the latency of one row.
            return shaped(least.max(2));
        }
        let streaming = Streaming::choose(work.bytes(rows * hidden, dtype), target);
        // Many rows: fewer warps, each with more under way.
        let wanted = match (work, streaming) {
            _ if vectors <= 256 => 2,
            (RowWork::Plain, Streaming::Stores) => 2,
            (RowWork::Added, Streaming::Stores) => 1,
            _ => 4,
        };
        let streaming = if work == RowWork::Plain { streaming } else { Streaming::Off };
        Self { streaming, ..shaped(wanted.max(least)) }
    }

    pub(crate) fn check(
        self,
        operator: &'static str,
        hidden: u64,
        dtype: Dtype,
    ) -> Result<(), CudaError> {
        let Self { threads, vectors, rows, looped, .. } = self;
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
        if ![1, 2, 4, 8, 16].contains(&vectors) || (threads < 32 && vectors > 1) {
            return refuse(
                "vectors of a thread",
                vectors,
                "1, 2, 4, 8 or 16, and 1 below 32 threads",
            );
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
    pub(crate) fn numbers(self, hidden: u64, dtype: Dtype, aligned: bool) -> Numbers {
        let whole = hidden == u64::from(self.threads * self.vectors) * per_vector(dtype);
        vec![
            ("THREADS", self.threads),
            ("VECTORS", self.vectors),
            ("ROWS", self.rows),
            ("LOOPED", u32::from(self.looped.is_some())),
            ("GAINS_AHEAD", u32::from(self.gains_ahead)),
            ("ALIGNED", u32::from(aligned)),
            ("WHOLE", u32::from(aligned && whole)),
            ("STREAMING", self.streaming.number()),
            ("OVERLAP", self.overlap.number()),
        ]
    }

    /// Blocks of a launch.
    pub(crate) fn blocks(self, rows: u64, multiprocessors: u32) -> u64 {
        let all = rows.div_ceil(u64::from(self.rows));
        self.looped.map_or(all, |blocks| all.min(u64::from(blocks) * u64::from(multiprocessors)))
    }
}

impl GateShape {
    /// The shape for a call.
    pub(crate) fn choose(rows: u64, width: u64, dtype: Dtype, target: Target) -> Self {
        let vectors = width.div_ceil(per_vector(dtype)).max(1);
        let all = vectors.saturating_mul(rows);
        // Two halves in, one out.
        let streaming = Streaming::choose(all.saturating_mul(3 * 16), target);
        let plain = Self {
            threads: 128,
            vectors: 1,
            rows: 1,
            streaming,
            overlap: Overlap::choose(target.arch),
        };
        if vectors < 64 {
            let threads = vectors.next_power_of_two().max(4) as u32;
            return Self { threads, rows: 128 / threads, ..plain };
        }
        // Where that spreads the work over more multiprocessors, blocks are smaller.
        let few = all <= 64 * u64::from(target.multiprocessors);
        Self { threads: if few { 64 } else { 128 }, ..plain }
    }

    pub(crate) fn check(self, operator: &'static str) -> Result<(), CudaError> {
        let Self { threads, vectors, rows, .. } = self;
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
    pub(crate) fn numbers(self, width: u64, dtype: Dtype, aligned: bool) -> Numbers {
        let block = u64::from(self.threads * self.vectors) * per_vector(dtype);
        vec![
            ("THREADS", self.threads),
            ("VECTORS", self.vectors),
            ("ROWS", self.rows),
            ("ALIGNED", u32::from(aligned)),
            ("WHOLE", u32::from(aligned && width.is_multiple_of(block))),
            ("STREAMING", self.streaming.number()),
            ("OVERLAP", self.overlap.number()),
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
    /// The shape for a call: the chunks are the same for every one, and so are a row's bits.
    pub(crate) const fn choose(target: Target) -> Self {
        Self { values: 32, warps: 4, overlap: Overlap::choose(target.arch) }
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
        if !(1..=16).contains(&self.warps) {
            return refuse("chunks of a block", self.warps, "1 to 16");
        }
        Ok(())
    }

    /// The numbers that the kernel is built with.
    pub(crate) fn numbers(self, aligned: bool) -> Numbers {
        vec![
            ("VALUES", self.values),
            ("WARPS", self.warps),
            ("ALIGNED", u32::from(aligned)),
            ("OVERLAP", self.overlap.number()),
        ]
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

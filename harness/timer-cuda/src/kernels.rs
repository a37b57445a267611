//! The timer's own kernels: spinning, reading a multiprocessor's clock, and moving memory.
//!
//! They are PTX text for compute capability 8.0 and later, which the driver compiles when it is
//! loaded, so that no compiler is needed.

use std::ffi::CStr;

use crate::driver::{Driven, Driver};
use crate::handle::{Function, Stream};

const PTX: &str = concat!(include_str!("kernels.ptx"), "\0");
const NAMES: [&CStr; 6] = [
    c"proofhouse_empty",
    c"proofhouse_spin",
    c"proofhouse_sm_clock",
    c"proofhouse_read",
    c"proofhouse_write",
    c"proofhouse_copy",
];
/// Bytes of one load or store.
pub(crate) const VECTOR_BYTES: u64 = 16;
const THREADS: u32 = 256;
/// Blocks that fit a multiprocessor of 2,048 threads.
const BLOCKS_PER_MULTIPROCESSOR: u32 = 8;

/// The kernels, loaded.
#[derive(Clone, Debug)]
pub(crate) struct Kernels<D> {
    driver: D,
    functions: [Function; NAMES.len()],
    most_blocks: u32,
}

impl<D: Driver> Kernels<D> {
    pub(crate) fn load(driver: &D, multiprocessors: u32) -> Driven<Self> {
        let text = CStr::from_bytes_with_nul(PTX.as_bytes()).unwrap_or(c"");
        let loaded = driver.load(text, &NAMES)?;
        let mut functions = [Function::new(0); NAMES.len()];
        // `load` gives one function for each name.
        functions.copy_from_slice(&loaded);
        let most_blocks = multiprocessors.max(1).saturating_mul(BLOCKS_PER_MULTIPROCESSOR);
        Ok(Self { driver: driver.clone(), functions, most_blocks })
    }

    fn one_thread(&self, kernel: usize, parameters: &[u64], stream: Stream) -> Driven<()> {
        self.driver.launch(self.functions[kernel], 1, 1, parameters, stream)
    }

    fn on_vectors(
        &self,
        kernel: usize,
        vectors: u64,
        parameters: &[u64],
        stream: Stream,
    ) -> Driven<()> {
        let wanted = vectors.div_ceil(u64::from(THREADS)).clamp(1, u64::from(self.most_blocks));
        // Not above `most_blocks`, so the cast is exact.
        self.driver.launch(self.functions[kernel], wanted as u32, THREADS, parameters, stream)
    }

    /// A kernel that does nothing.
    pub(crate) fn empty(&self, stream: Stream) -> Driven<()> {
        self.one_thread(0, &[], stream)
    }

    /// Keeps the stream busy for so many nanoseconds of the global timer.
    pub(crate) fn spin(&self, ns: u64, stream: Stream) -> Driven<()> {
        self.one_thread(1, &[ns], stream)
    }

    /// Writes cycles, nanoseconds and the timer's first step, over at least `ns` nanoseconds, to
    /// the 24 bytes at `out`.
    pub(crate) fn sm_clock(&self, out: u64, ns: u64, stream: Stream) -> Driven<()> {
        self.one_thread(2, &[out, ns], stream)
    }

    /// Reads `bytes` bytes, a multiple of 16; `sink` is writable for four bytes.
    pub(crate) fn read(&self, from: u64, bytes: u64, sink: u64, stream: Stream) -> Driven<()> {
        let vectors = bytes / VECTOR_BYTES;
        self.on_vectors(3, vectors, &[from, vectors, sink], stream)
    }

    /// Writes `bytes` bytes, a multiple of 16, with one word.
    pub(crate) fn write(&self, to: u64, bytes: u64, word: u32, stream: Stream) -> Driven<()> {
        let vectors = bytes / VECTOR_BYTES;
        self.on_vectors(4, vectors, &[to, vectors, u64::from(word)], stream)
    }

    /// Copies `bytes` bytes, a multiple of 16.
    pub(crate) fn copy(&self, to: u64, from: u64, bytes: u64, stream: Stream) -> Driven<()> {
        let vectors = bytes / VECTOR_BYTES;
        self.on_vectors(5, vectors, &[to, from, vectors], stream)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_holds_every_kernel_and_one_closing_zero() {
        assert_eq!(PTX.bytes().filter(|byte| *byte == 0).count(), 1);
        for name in NAMES {
            let entry = format!(".entry {}(", name.to_str().unwrap());
            assert!(PTX.contains(&entry), "{entry}");
        }
        assert_eq!(PTX.matches(".entry").count(), NAMES.len());
    }

    #[test]
    fn every_parameter_is_of_64_bits() {
        let parameters = PTX.lines().filter(|line| line.contains(".entry"));
        for line in parameters {
            assert_eq!(line.matches(".param").count(), line.matches(".u64").count(), "{line}");
        }
    }
}

//! The middle floor: kernels, the structures they take, and grids that a device can have.

use std::sync::Arc;

use crate::error::CudaError;
use crate::memory::Stream;
use crate::sys::driver::{Context, Function};

/// A structure that a kernel takes as its one argument, laid out as the device source lays it out.
///
/// The size is given to the compiler of the kernel, which refuses another one.
///
/// # Safety
/// The type is `repr(C)`, its fields are those of `Arguments` in the kernel's source, in order and kind, and it has
/// no padding that the source does not have.
pub(crate) unsafe trait Arguments: Copy + 'static {}

/// Blocks of a launch, threads of each block, and whether it begins while the launch in front of it ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Geometry {
    grid: [u32; 2],
    threads: u32,
    overlaps: bool,
}

/// Most blocks of a grid along its first and second axis, on every device of compute capability 3.0 and later.
const MOST_BLOCKS: [u64; 2] = [(1 << 31) - 1, 65_535];
/// Most threads of a block.
const MOST_THREADS: u64 = 1024;

impl Geometry {
    /// A grid of `x` by `y` blocks.
    pub(crate) fn new(
        operator: &'static str,
        grid: [u64; 2],
        threads: u64,
        overlaps: bool,
    ) -> Result<Self, CudaError> {
        let within = |what, found: u64, accepted: u64| {
            if found <= accepted {
                return Ok(found as u32);
            }
            Err(CudaError::TooLarge { operator, what, found, accepted })
        };
        Ok(Self {
            grid: [
                within("the grid's first axis", grid[0], MOST_BLOCKS[0])?,
                within("the grid's second axis", grid[1], MOST_BLOCKS[1])?,
            ],
            threads: within("the block", threads, MOST_THREADS)?,
            overlaps,
        })
    }

    /// Whether there is no block or no thread.
    pub(crate) const fn is_empty(self) -> bool {
        self.grid[0] == 0 || self.grid[1] == 0 || self.threads == 0
    }
}

/// A kernel that is loaded.
#[derive(Debug)]
pub(crate) struct Kernel {
    function: Function,
    argument_bytes: usize,
}

impl Kernel {
    /// Loads a cubin whose kernel takes an argument of `argument_bytes`.
    pub(crate) fn load(
        context: &Arc<Context>,
        cubin: &[u8],
        name: &str,
        argument_bytes: usize,
    ) -> Result<Self, CudaError> {
        Ok(Self { function: Function::load(context, cubin, name)?, argument_bytes })
    }

    /// Puts a launch into a stream; an empty grid is nothing to do.
    ///
    /// # Safety
    /// The kernel is the one that `A` belongs to, its variant fits the addresses' alignment and waits where the
    /// geometry overlaps, and the addresses are of tensors that the contract has accepted, or of workspace that is
    /// large enough.
    pub(crate) unsafe fn launch<A: Arguments>(
        &self,
        geometry: Geometry,
        stream: Stream,
        arguments: &A,
    ) -> Result<(), CudaError> {
        debug_assert_eq!(size_of::<A>(), self.argument_bytes);
        if geometry.is_empty() {
            return Ok(());
        }
        self.function.context().make_current()?;
        let [x, y] = geometry.grid;
        // SAFETY: the structure is the kernel's own, see `Arguments`; the rest is the caller's promise.
        unsafe {
            self.function.launch(
                [x, y, 1],
                geometry.threads,
                geometry.overlaps,
                stream.raw(),
                std::ptr::from_ref(arguments).cast(),
            )
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_grid_that_no_device_has_is_refused_with_the_axis_and_its_limit() {
        let largest = Geometry::new("rms_norm", [(1 << 31) - 1, 65_535], 1024, true).unwrap();
        assert!(!largest.is_empty());
        let refused = |grid, threads| match Geometry::new("rms_norm", grid, threads, false) {
            Err(CudaError::TooLarge { operator, what, found, accepted }) => {
                (operator, what, found, accepted)
            }
            other => panic!("{other:?}"),
        };
        let first = "the grid's first axis";
        assert_eq!(refused([1 << 31, 1], 32), ("rms_norm", first, 1 << 31, (1 << 31) - 1));
        assert_eq!(refused([u64::MAX, 1], 32), ("rms_norm", first, u64::MAX, (1 << 31) - 1));
        let second = "the grid's second axis";
        assert_eq!(refused([1, 65_536], 32), ("rms_norm", second, 65_536, 65_535));
        assert_eq!(refused([1, 1], 1025), ("rms_norm", "the block", 1025, 1024));
    }

    #[test]
    fn nothing_to_do_is_an_empty_grid() {
        assert!(Geometry::new("rms_norm", [0, 1], 32, false).unwrap().is_empty());
        assert!(Geometry::new("rms_norm", [1, 0], 32, false).unwrap().is_empty());
    }
}

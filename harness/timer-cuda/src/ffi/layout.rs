//! The structs that only this interface has.

use std::ffi::c_void;

use proofhouse_schema::timing::{Cache, Launch};
use proofhouse_timer::ffi::Callback;

use crate::plan::Cell;

/// Captures calls and gives the graph: `calls` calls that go round the `sets` sets from
/// `cycle_start` on and begin with `first_set`. A null graph leaves it to the timer to capture what
/// the enqueuing callback enqueues.
pub type Capture = unsafe extern "C" fn(
    context: *mut c_void,
    first_set: u32,
    cycle_start: u32,
    sets: u32,
    calls: u32,
    graph: *mut *mut c_void,
) -> i32;

/// What a timer is opened with.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct SetupC {
    /// Size of this struct in bytes.
    pub size: u32,
    /// 0 eager, 1 graph.
    pub launch: u32,
    /// The `CUstream` on which the callbacks enqueue; it must not be null, because the default
    /// stream cannot be captured.
    pub stream: *mut c_void,
    /// Bytes of the L2 cache; zero for what the device says.
    pub l2_bytes: u64,
    /// Enqueues one call on a set.
    pub enqueue: Option<Callback>,
    /// Enqueues what gives a set its original contents back; null where calls change no input.
    pub restore: Option<Callback>,
    /// Captures calls; null to leave it to the timer.
    pub capture: Option<Capture>,
    /// What the callbacks get.
    pub context: *mut c_void,
}

impl SetupC {
    pub(super) fn launch(&self) -> Result<Launch, String> {
        match self.launch {
            0 => Ok(Launch::Eager),
            1 => Ok(Launch::Graph),
            other => Err(format!("`launch` is {other}; accepted: 0 eager, 1 graph")),
        }
    }
}

/// What decides how a cell is measured, as far as the caller knows it.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct CellC {
    /// Size of this struct in bytes.
    pub size: u32,
    /// 1 when calls change their inputs, else 0.
    pub in_place: u32,
    /// 0 hot, 1 cold.
    pub cache: u32,
    /// Zero.
    pub reserved: u32,
    /// Bytes that one call touches.
    pub footprint_bytes: u64,
    /// For cold: bytes to be touched between two uses of a buffer, where five caches are less.
    pub reuse_bytes: u64,
    /// The time that a sample is to last at least, in nanoseconds.
    pub min_sample_ns: f64,
}

/// What the device knows of a cell.
#[derive(Clone, Copy, Debug)]
pub(super) struct Known {
    pub(super) launch: Launch,
    pub(super) call_ns: f64,
    pub(super) l2_bytes: u64,
    pub(super) free_bytes: u64,
}

impl CellC {
    pub(super) fn check(&self) -> Result<(), String> {
        if self.in_place > 1 {
            return Err(format!("`in_place` is {}; accepted: 0 and 1", self.in_place));
        }
        if self.cache > 1 {
            return Err(format!("`cache` is {}; accepted: 0 hot, 1 cold", self.cache));
        }
        if self.reserved != 0 {
            return Err(format!("`reserved` is {}; accepted: 0", self.reserved));
        }
        if !self.min_sample_ns.is_finite() || self.min_sample_ns < 1.0 {
            let found = self.min_sample_ns;
            return Err(format!("`min_sample_ns` is {found}; accepted: 1 or more"));
        }
        Ok(())
    }

    pub(super) fn with(&self, known: Known) -> Cell {
        Cell {
            footprint_bytes: self.footprint_bytes,
            in_place: self.in_place == 1,
            cache: if self.cache == 1 { Cache::Cold } else { Cache::Hot },
            launch: known.launch,
            min_sample_ns: self.min_sample_ns,
            call_ns: known.call_ns,
            l2_bytes: known.l2_bytes,
            free_bytes: known.free_bytes,
            reuse_bytes: self.reuse_bytes,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_structs_have_the_size_that_other_languages_declare() {
        assert_eq!(size_of::<SetupC>(), 56);
        assert_eq!(size_of::<CellC>(), 40);
    }

    #[test]
    fn unknown_values_are_refused_by_name() {
        let good = CellC { min_sample_ns: 1e6, ..CellC::default() };
        assert_eq!(good.check(), Ok(()));
        let refused = |cell: CellC| cell.check().unwrap_err();
        assert!(refused(CellC { in_place: 2, ..good }).starts_with("`in_place` is 2"));
        assert!(refused(CellC { cache: 2, ..good }).starts_with("`cache` is 2"));
        assert!(refused(CellC { reserved: 1, ..good }).starts_with("`reserved` is 1"));
        for time in [0.0, -1.0, f64::NAN, f64::INFINITY] {
            let text = refused(CellC { min_sample_ns: time, ..good });
            assert!(text.starts_with("`min_sample_ns` is"), "{text}");
        }
    }
}

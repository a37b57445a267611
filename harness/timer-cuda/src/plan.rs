//! One choice of plans for every worker: how many buffer sets and calls a cell gets on a device.

use proofhouse_schema::device::Reuse;
use proofhouse_schema::timing::{Cache as Contract, Launch};
use proofhouse_timer::{Cache, CallsPerSample, MAX_CALLS, Plan, REUSE_FACTOR, WarmUp};

/// The most buffer sets of a graph.
pub const MOST_SETS: u64 = 2_048;
/// The most calls of a graph.
pub const MOST_GRAPH_CALLS: u64 = 16_384;
/// The most bytes of all buffer sets together.
pub const MOST_SET_BYTES: u64 = 8 << 30;
/// The most buffer sets of a hot cell. Where the few kilobytes of a small call lie decides some of its time, and the mean
/// over several places less (decision 0016).
pub const MOST_HOT_SETS: u64 = 16;
/// Of the cache, what the buffer sets of a hot cell take at most.
const HOT_SHARE: u64 = 8;
/// Calls in a row on one buffer set of a hot cell at least, so that nearly all of them find what the call before left.
const LEAST_DWELL: u64 = 32;
/// Samples are planned to last this much longer than asked, since the guess of a call is rough.
const HEADROOM: f64 = 1.15;

/// What decides how a cell is measured.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Cell {
    /// Bytes that one call touches.
    pub footprint_bytes: u64,
    /// Whether calls change their inputs, so that these are restored before each sample.
    pub in_place: bool,
    /// Cold or hot.
    pub cache: Contract,
    /// Graph or eager.
    pub launch: Launch,
    /// The time that a sample is to last at least, in nanoseconds.
    pub min_sample_ns: f64,
    /// A guess of one call's time, in nanoseconds ([`crate::CudaDevice::guess_call_ns`]).
    pub call_ns: f64,
    /// Bytes of the L2 cache.
    pub l2_bytes: u64,
    /// Bytes of device memory that are free.
    pub free_bytes: u64,
    /// For cold: bytes to be touched between two uses of a buffer, where that is more than
    /// [`REUSE_FACTOR`] times the L2 cache.
    pub reuse_bytes: u64,
}

/// A plan, and how it keeps or empties the cache.
#[derive(Clone, Debug, PartialEq)]
pub struct DevicePlan {
    /// The plan; it takes one sample a turn where the turn does not ask for more.
    pub plan: Plan,
    /// How buffers are kept in or out of the cache.
    pub reuse: Reuse,
}

/// The plan of a cell.
///
/// A graph holds the same calls in every sample, so that one graph is enough: its calls are a
/// multiple of the sets that rotate, or as many as the sets where each is used once.
#[must_use]
pub fn device_plan(cell: &Cell) -> DevicePlan {
    let footprint = cell.footprint_bytes.max(1);
    let (plan, reuse) = match cell.cache {
        Contract::Hot if cell.in_place => {
            (once_each(cell, cell.l2_bytes / 2 / footprint, Cache::Hot), Reuse::Same)
        }
        Contract::Hot => {
            let (sets, each) = hot(cell, footprint);
            let plan = rotating(cell, sets * each, Cache::Hot);
            // At most MOST_SETS.
            (Plan { dwell: each as u32, ..plan }, Reuse::Same)
        }
        Contract::Cold => cold(cell, footprint),
    };
    let rewarm_samples = u32::from(cell.cache == Contract::Hot);
    DevicePlan { plan: Plan { restore: cell.in_place, rewarm_samples, ..plan }, reuse }
}

/// Buffer sets of a hot cell whose calls leave their inputs alone, and the calls in a row on each.
fn hot(cell: &Cell, footprint: u64) -> (u64, u64) {
    let wanted = wanted_calls(cell);
    let fit = cell.l2_bytes / HOT_SHARE / footprint;
    let sets = (wanted / LEAST_DWELL).min(fit).clamp(1, MOST_HOT_SETS);
    let most = if sets == 1 { 1 } else { MOST_SETS / sets };
    (sets, wanted.div_ceil(sets).clamp(1, most))
}

fn cold(cell: &Cell, footprint: u64) -> (Plan, Reuse) {
    let needed = cell.l2_bytes.saturating_mul(REUSE_FACTOR).max(cell.reuse_bytes);
    // Half of what is free, because providers live side by side and need memory of their own.
    let room = MOST_SET_BYTES.min(cell.free_bytes / 2);
    let sets = needed / footprint + 2;
    if !cell.in_place && sets <= MOST_SETS && sets.saturating_mul(footprint) <= room {
        return (rotating(cell, sets, Cache::Cold { evict_bytes: 0 }), Reuse::Rotated);
    }
    let cache = Cache::Cold { evict_bytes: needed };
    (once_each(cell, room / footprint, cache), Reuse::Evicted)
}

/// Calls that go round `sets` sets as often as it takes.
fn rotating(cell: &Cell, sets: u64, cache: Cache) -> Plan {
    let calls = match cell.launch {
        Launch::Eager => reach(cell, u64::from(MAX_CALLS)),
        Launch::Graph => {
            let most_rounds = (MOST_GRAPH_CALLS / sets).max(1);
            let rounds = wanted_calls(cell).div_ceil(sets).clamp(1, most_rounds);
            fixed(rounds * sets)
        }
    };
    plan(cell, sets, calls, cache)
}

/// Sets that are used once a sample, at most `fit` of them.
fn once_each(cell: &Cell, fit: u64, cache: Cache) -> Plan {
    let fit = fit.clamp(1, MOST_SETS);
    let wanted = wanted_calls(cell);
    let calls = match cell.launch {
        Launch::Eager if wanted <= fit => reach(cell, wanted),
        _ => fixed(wanted.min(fit)),
    };
    plan(cell, u64::from(calls.most()), calls, cache)
}

/// Calls that a sample needs by the guess; at most what a timer accepts.
fn wanted_calls(cell: &Cell) -> u64 {
    let wanted = HEADROOM * cell.min_sample_ns / cell.call_ns;
    if wanted.is_finite() {
        // Bounded, so the cast is exact.
        wanted.ceil().clamp(1.0, f64::from(MAX_CALLS)) as u64
    } else {
        1
    }
}

fn fixed(calls: u64) -> CallsPerSample {
    // At most MAX_CALLS.
    CallsPerSample::Fixed(calls as u32)
}

fn reach(cell: &Cell, at_most: u64) -> CallsPerSample {
    // Negative and not finite times become the least that is accepted.
    let at_least_ns = (cell.min_sample_ns.ceil() as u64).max(1);
    CallsPerSample::Reach { at_least_ns, at_most: at_most as u32 }
}

fn plan(cell: &Cell, sets: u64, calls: CallsPerSample, cache: Cache) -> Plan {
    Plan {
        // At most MOST_SETS.
        sets: sets as u32,
        dwell: 1,
        calls,
        samples: 1,
        rewarm_samples: 0,
        restore: false,
        footprint_bytes: cell.footprint_bytes.max(1),
        cache,
        warm_up: WarmUp::default(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;
    const L2: u64 = 60 * MIB;

    fn cell(footprint_bytes: u64) -> Cell {
        Cell {
            footprint_bytes,
            in_place: false,
            cache: Contract::Cold,
            launch: Launch::Graph,
            min_sample_ns: 1_000_000.0,
            call_ns: 2_000.0,
            l2_bytes: L2,
            free_bytes: 130 << 30,
            reuse_bytes: 0,
        }
    }

    fn every_cell() -> Vec<Cell> {
        let mut cells = Vec::new();
        for footprint in [0, 1, 4096, 150_000, MIB, 40 * MIB, L2, 500 * MIB, 5 << 30, 20 << 30] {
            for cache in [Contract::Hot, Contract::Cold] {
                for launch in [Launch::Graph, Launch::Eager] {
                    for in_place in [false, true] {
                        for call_ns in [1.0, 1_500.0, 1e6, 1e10, f64::NAN, 0.0] {
                            for free_bytes in [0, 4 << 30, 130 << 30] {
                                cells.push(Cell {
                                    cache,
                                    launch,
                                    in_place,
                                    call_ns,
                                    free_bytes,
                                    ..cell(footprint)
                                });
                            }
                        }
                    }
                }
            }
        }
        cells
    }

    #[test]
    fn every_plan_is_one_that_the_timer_accepts() {
        let cells = every_cell();
        assert_eq!(cells.len(), 10 * 2 * 2 * 2 * 6 * 3);
        for cell in cells {
            let chosen = device_plan(&cell);
            let valid = chosen.plan.validate(cell.l2_bytes);
            assert!(valid.is_ok(), "{cell:?}: {valid:?}");
            assert_eq!(chosen.plan.restore, cell.in_place);
        }
    }

    #[test]
    fn a_graph_holds_whole_rounds_of_at_most_so_many_sets_and_bytes() {
        for cell in every_cell().into_iter().filter(|cell| cell.launch == Launch::Graph) {
            let plan = device_plan(&cell).plan;
            let CallsPerSample::Fixed(calls) = plan.calls else { panic!("{cell:?}") };
            assert_eq!(calls % plan.sets, 0, "{cell:?}");
            assert!(u64::from(plan.sets) <= MOST_SETS, "{cell:?}");
            assert!(u64::from(calls) <= MOST_GRAPH_CALLS, "{cell:?}");
            let bytes = u64::from(plan.buffer_sets()) * plan.footprint_bytes;
            assert!(bytes <= MOST_SET_BYTES || plan.buffer_sets() == 1, "{cell:?}");
        }
    }

    #[test]
    fn cold_cells_rotate_where_sets_suffice_and_evict_where_they_do_not() {
        let chosen = device_plan(&cell(MIB));
        assert_eq!((chosen.plan.sets, chosen.reuse), (302, Reuse::Rotated));
        assert_eq!(chosen.plan.calls, CallsPerSample::Fixed(604));
        assert_eq!(chosen.plan.cache, Cache::Cold { evict_bytes: 0 });
        let small = device_plan(&cell(64 * 1024));
        assert_eq!((small.plan.sets, small.reuse), (575, Reuse::Evicted));
        assert_eq!(small.plan.calls, CallsPerSample::Fixed(575));
        assert_eq!(small.plan.cache, Cache::Cold { evict_bytes: 5 * L2 });
        let restored = device_plan(&Cell { in_place: true, ..cell(MIB) });
        assert_eq!((restored.plan.sets, restored.reuse), (575, Reuse::Evicted));
    }

    #[test]
    fn a_request_for_more_distance_than_five_caches_is_honored() {
        let chosen = device_plan(&Cell { reuse_bytes: 10 * L2, ..cell(MIB) });
        assert_eq!(chosen.plan.reuse_distance_bytes().unwrap(), 601 * MIB);
        let evicted = device_plan(&Cell { reuse_bytes: 10 * L2, ..cell(4096) });
        assert_eq!(evicted.plan.cache, Cache::Cold { evict_bytes: 10 * L2 });
    }

    #[test]
    fn hot_cells_use_so_few_sets_that_the_cache_holds_them() {
        let hot = Cell { cache: Contract::Hot, ..cell(MIB) };
        let chosen = device_plan(&hot);
        // 575 calls of 2 us: seven buffer sets of a mebibyte in an eighth of the cache, 83 calls on each.
        assert_eq!(
            (chosen.plan.buffer_sets(), chosen.plan.dwell, chosen.reuse),
            (7, 83, Reuse::Same)
        );
        assert_eq!(
            (chosen.plan.calls, chosen.plan.rewarm_samples),
            (CallsPerSample::Fixed(581), 1)
        );
        let sets = |footprint_bytes, min_sample_ns| {
            let chosen = device_plan(&Cell { footprint_bytes, min_sample_ns, ..hot });
            (chosen.plan.buffer_sets(), chosen.plan.dwell)
        };
        assert_eq!((sets(4096, 1e6), sets(8 * MIB, 1e6)), ((16, 36), (1, 1)));
        assert_eq!(sets(4096, 1e5), (1, 1), "58 calls are too few for two");
        assert_eq!(sets(4096, 1e8), (16, 128), "as many sets of the plan as there may be");
        let restored = device_plan(&Cell { in_place: true, ..hot });
        assert_eq!((restored.plan.sets, restored.plan.calls.most()), (30, 30));
        assert_eq!(restored.reuse, Reuse::Same);
    }

    #[test]
    fn eager_calls_grow_in_the_warm_up_and_never_past_the_sets_that_are_used_once() {
        let eager = Cell { launch: Launch::Eager, ..cell(MIB) };
        let chosen = device_plan(&eager).plan;
        let wanted = CallsPerSample::Reach { at_least_ns: 1_000_000, at_most: MAX_CALLS };
        assert_eq!((chosen.sets, chosen.calls), (302, wanted));
        let restored = device_plan(&Cell { in_place: true, ..eager }).plan;
        let once = CallsPerSample::Reach { at_least_ns: 1_000_000, at_most: 575 };
        assert_eq!((restored.sets, restored.calls), (575, once));
    }
}

//! What is counted of each operator on a device.

use std::sync::atomic::{AtomicU64, Ordering};

use proofhouse_contract::catalog;

use crate::layout::CountersC;

/// What can be counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    Launch,
    Refusal,
    Failure,
    Preparation,
    CacheHit,
    Eviction,
}

const EVENTS: usize = 6;

/// Counters of every operator of the contract, and of calls that name none of them.
#[derive(Debug)]
pub(crate) struct Counters {
    /// As the catalog has them, with one more behind.
    of_operators: Vec<[AtomicU64; EVENTS]>,
}

impl Counters {
    pub(crate) fn new() -> Self {
        let of_operators = (0..=catalog().len()).map(|_| Default::default()).collect();
        Self { of_operators }
    }

    /// The operator's place; none for a name that the contract does not have.
    pub(crate) fn place(operator: &str) -> Option<usize> {
        catalog().iter().position(|spec| spec.name == operator)
    }

    /// Counts one event; of an operator that the contract does not have it is part of the totals only.
    pub(crate) fn count(&self, operator: &str, event: Event) {
        let place = Self::place(operator).unwrap_or(catalog().len());
        self.of_operators[place][event as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// What was counted of the operator at a place, or of all calls.
    pub(crate) fn read(&self, place: Option<usize>) -> CountersC {
        let counted = |event: Event| {
            let of =
                |counters: &[AtomicU64; EVENTS]| counters[event as usize].load(Ordering::Relaxed);
            match place {
                Some(place) => of(&self.of_operators[place]),
                None => self.of_operators.iter().map(of).sum(),
            }
        };
        CountersC {
            // Some ten words.
            size: size_of::<CountersC>() as u32,
            reserved: 0,
            launches: counted(Event::Launch),
            refusals: counted(Event::Refusal),
            failures: counted(Event::Failure),
            preparations: counted(Event::Preparation),
            cache_hits: counted(Event::CacheHit),
            evictions: counted(Event::Eviction),
        }
    }

    /// Begins at zero again.
    pub(crate) fn reset(&self) {
        for counter in self.of_operators.iter().flatten() {
            counter.store(0, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_counted_apart_and_totals_hold_what_names_no_operator() {
        let counters = Counters::new();
        let events = [
            Event::Launch,
            Event::Refusal,
            Event::Failure,
            Event::Preparation,
            Event::CacheHit,
            Event::Eviction,
        ];
        for (times, event) in events.into_iter().enumerate() {
            for _ in 0..=times {
                counters.count("rms_norm", event);
            }
        }
        counters.count("no_such_operator", Event::Refusal);
        let of = counters.read(Counters::place("rms_norm"));
        assert_eq!(
            (of.launches, of.refusals, of.failures, of.preparations, of.cache_hits, of.evictions),
            (1, 2, 3, 4, 5, 6)
        );
        assert_eq!(counters.read(Counters::place("add_rms_norm")).refusals, 0);
        assert_eq!(counters.read(None).refusals, 3);
        counters.reset();
        assert_eq!(counters.read(None).refusals, 0);
    }
}

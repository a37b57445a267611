//! The best logits seen so far, on the stack.

/// Largest `k` that fits.
pub(crate) const MAX_BEST: usize = 128;
/// Candidates gathered between two prunings.
const CAPACITY: usize = 4 * MAX_BEST;

/// Gathers candidates and keeps the best `k` of them: value descending, id ascending.
///
/// A candidate is one word whose order is that order, so that pruning is a selection over integers.
#[derive(Clone, Debug)]
pub(crate) struct Candidates {
    keys: [u64; CAPACITY],
    length: usize,
    best: usize,
    threshold: f32,
}

impl Candidates {
    /// An empty set that keeps the best `best` (1 to [`MAX_BEST`]).
    pub(crate) fn new(best: usize) -> Self {
        debug_assert!((1..=MAX_BEST).contains(&best));
        Self {
            keys: [0; CAPACITY],
            length: 0,
            best: best.clamp(1, MAX_BEST),
            threshold: f32::NEG_INFINITY,
        }
    }

    /// An empty set for another part of the same row.
    pub(crate) fn another(&self) -> Self {
        Self::new(self.best)
    }

    /// Only values above this one can still be among the best, once offered in ascending order of ids.
    #[inline(always)]
    pub(crate) const fn threshold(&self) -> f32 {
        self.threshold
    }

    /// Adds a candidate; NaN is not one.
    #[inline(always)]
    pub(crate) fn push(&mut self, value: f32, id: u32) {
        self.keys[self.length] = key(value, id);
        self.length += 1;
        if self.length == CAPACITY {
            self.prune();
        }
    }

    /// Drops all but the best and raises the threshold to the worst of them.
    #[inline(never)]
    pub(crate) fn prune(&mut self) {
        if self.length <= self.best {
            return;
        }
        let keys = &mut self.keys[..self.length];
        let (_, worst, _) = keys.select_nth_unstable_by(self.best - 1, |a, b| b.cmp(a));
        self.threshold = value_of(*worst);
        self.length = self.best;
    }

    /// The best candidates in order, as value and id; fewer than asked for when fewer were offered.
    pub(crate) fn sorted(&mut self) -> impl Iterator<Item = (f32, u32)> + '_ {
        self.prune();
        let keys = &mut self.keys[..self.length];
        keys.sort_unstable_by(|a, b| b.cmp(a));
        keys.iter().map(|key| (value_of(*key), !(*key as u32)))
    }

    /// Takes over the candidates of a later part of the row.
    pub(crate) fn absorb(&mut self, later: &Self) {
        for key in &later.keys[..later.length] {
            self.keys[self.length] = *key;
            self.length += 1;
            if self.length == CAPACITY {
                self.prune();
            }
        }
    }
}

/// The value in the upper half so that integer order is its order, the complement of the id below it.
#[inline(always)]
fn key(value: f32, id: u32) -> u64 {
    // Adding zero makes -0 into +0: the two tie.
    let bits = (value + 0.0).to_bits();
    let ordered = if bits >> 31 == 1 { !bits } else { bits | 1 << 31 };
    u64::from(ordered) << 32 | u64::from(!id)
}

fn value_of(key: u64) -> f32 {
    let ordered = (key >> 32) as u32;
    f32::from_bits(if ordered >> 31 == 1 { ordered & !(1 << 31) } else { !ordered })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_best_come_out_in_order_and_ties_go_to_the_lowest_id() {
        let mut candidates = Candidates::new(3);
        for (id, value) in [0.0, -0.0, -3.0, 7.5, 7.5, f32::NEG_INFINITY].into_iter().enumerate() {
            candidates.push(value, id as u32);
        }
        assert_eq!(candidates.sorted().collect::<Vec<_>>(), [(7.5, 3), (7.5, 4), (0.0, 0)]);
    }

    #[test]
    fn many_more_than_fit_agree_with_a_full_sort() {
        let mut word = 1u64;
        let values: Vec<f32> = (0..20_000)
            .map(|_| {
                word = word.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(99);
                ((word >> 40) as i32 - (1 << 23)) as f32 / 64.0
            })
            .collect();
        for best in [1, 2, 50, MAX_BEST] {
            let mut candidates = Candidates::new(best);
            for (id, value) in values.iter().enumerate() {
                if *value > candidates.threshold() {
                    candidates.push(*value, id as u32);
                }
            }
            let mut order: Vec<u32> = (0..values.len() as u32).collect();
            order
                .sort_by(|a, b| values[*b as usize].total_cmp(&values[*a as usize]).then(a.cmp(b)));
            let ids: Vec<u32> = candidates.sorted().map(|(_, id)| id).collect();
            assert_eq!(ids, order[..best]);
        }
    }

    #[test]
    fn absorbing_a_later_part_equals_offering_it() {
        let mut whole = Candidates::new(2);
        let mut first = Candidates::new(2);
        let mut later = Candidates::new(2);
        for (id, value) in [1.0, 5.0, 5.0, 4.0, 5.0].into_iter().enumerate() {
            whole.push(value, id as u32);
            (if id < 2 { &mut first } else { &mut later }).push(value, id as u32);
        }
        first.absorb(&later);
        assert_eq!(first.sorted().collect::<Vec<_>>(), whole.sorted().collect::<Vec<_>>());
    }
}

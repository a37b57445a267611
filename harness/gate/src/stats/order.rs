//! In which order the providers of each block run.
//!
//! Two providers alternate as A B, B A (read on: A B B A). Three and more follow a Williams
//! design: every provider is in every place equally often, and every provider directly follows
//! every other equally often, so that neither place nor carry-over favors one.
//! An even number needs one such square, an odd number two.

use super::distribution::bad;
use super::error::StatsError;

/// Why no order can be given.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OrderError {
    /// Nobody runs.
    #[error("no providers")]
    NoProviders,
    /// The number of blocks leaves the design unbalanced.
    #[error("{blocks} blocks for {providers} providers; accepted: multiples of {cycle}")]
    Unbalanced {
        /// Blocks.
        blocks: usize,
        /// Providers.
        providers: usize,
        /// Blocks of one whole design.
        cycle: usize,
    },
}

/// The rows of the design: the providers of each block, by index, in running order.
#[must_use]
pub fn design_rows(providers: usize) -> Vec<Vec<usize>> {
    if providers < 2 {
        return vec![(0..providers).collect(); providers];
    }
    let first: Vec<usize> = zigzag(providers);
    let shifted = |by: usize| first.iter().map(|p| (p + by) % providers).collect::<Vec<_>>();
    let mut rows: Vec<Vec<usize>> = (0..providers).map(shifted).collect();
    if providers % 2 == 1 {
        let mirrored: Vec<Vec<usize>> =
            rows.iter().map(|row| row.iter().rev().copied().collect()).collect();
        rows.extend(mirrored);
    }
    rows
}

/// 0, 1, n-1, 2, n-2, ...: successive differences are all different.
fn zigzag(providers: usize) -> Vec<usize> {
    (0..providers)
        .map(
            |place| {
                if place % 2 == 1 { place.div_ceil(2) } else { (providers - place / 2) % providers }
            },
        )
        .collect()
}

/// The least number of blocks that is at least `at_least` and leaves the design balanced.
#[must_use]
pub fn balanced_blocks(providers: usize, at_least: usize) -> usize {
    at_least.max(1).next_multiple_of(design_rows(providers).len().max(1))
}

/// The running order of each block of a replicate, drawn with a seed.
///
/// Whole designs follow one another; in each, the rows are shuffled and the providers are dealt to
/// the design's symbols anew.
///
/// # Errors
/// [`OrderError`] for no providers, or blocks that are not whole designs.
pub fn block_orders(
    providers: usize,
    blocks: usize,
    seed: u64,
) -> Result<Vec<Vec<usize>>, OrderError> {
    if providers == 0 {
        return Err(OrderError::NoProviders);
    }
    let cycle = design_rows(providers).len();
    if blocks == 0 || !blocks.is_multiple_of(cycle) {
        return Err(OrderError::Unbalanced { blocks, providers, cycle });
    }
    let mut draw = Draw(seed);
    let mut orders = Vec::with_capacity(blocks);
    while orders.len() < blocks {
        let mut dealt: Vec<usize> = (0..providers).collect();
        draw.shuffle(&mut dealt);
        let mut rows = design_rows(providers);
        draw.shuffle(&mut rows);
        orders.extend(rows.iter().map(|row| row.iter().map(|p| dealt[*p]).collect::<Vec<_>>()));
    }
    Ok(orders)
}

/// A 64-bit mixing sequence: the same seed gives the same draws for ever.
#[derive(Clone, Debug)]
pub(super) struct Draw(pub(super) u64);

impl Draw {
    pub(super) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    /// A number below `bound`, each equally likely.
    fn below(&mut self, bound: u64) -> u64 {
        let whole = u64::MAX - u64::MAX % bound;
        loop {
            let drawn = self.next();
            if drawn < whole {
                return drawn % bound;
            }
        }
    }

    fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            // Below the length of a slice, so the cast is exact.
            let chosen = self.below(last as u64 + 1) as usize;
            items.swap(last, chosen);
        }
    }
}

/// Checks a fraction that a caller hands in.
pub(super) fn checked_fraction(what: &'static str, value: f64) -> Result<f64, StatsError> {
    if value > 0.0 && value < 1.0 { Ok(value) } else { Err(bad(what, value, "between 0 and 1")) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    type Counts = BTreeMap<(usize, usize), usize>;

    /// How often each provider is in each place, and how often each directly follows each other.
    fn counts(orders: &[Vec<usize>]) -> (Counts, Counts) {
        let (mut places, mut pairs) = (Counts::new(), Counts::new());
        for order in orders {
            for (place, provider) in order.iter().enumerate() {
                *places.entry((*provider, place)).or_default() += 1;
            }
            for pair in order.windows(2) {
                *pairs.entry((pair[0], pair[1])).or_default() += 1;
            }
        }
        (places, pairs)
    }

    fn assert_balanced(providers: usize, orders: &[Vec<usize>]) {
        let (places, pairs) = counts(orders);
        let per_place = orders.len() / providers;
        assert_eq!(places.len(), providers * providers);
        assert!(places.values().all(|count| *count == per_place), "{places:?}");
        assert_eq!(pairs.len(), providers * (providers - 1));
        let per_pair = orders.len() * (providers - 1) / (providers * (providers - 1));
        assert!(pairs.values().all(|count| *count == per_pair), "{pairs:?}");
    }

    #[test]
    fn two_providers_alternate() {
        assert_eq!(design_rows(2), [[0, 1], [1, 0]]);
    }

    #[test]
    fn every_design_balances_places_and_carry_over() {
        for providers in 2..=9 {
            let rows = design_rows(providers);
            let expected = if providers % 2 == 0 { providers } else { 2 * providers };
            assert_eq!(rows.len(), expected);
            assert_balanced(providers, &rows);
        }
    }

    #[test]
    fn a_plain_latin_square_would_leave_carry_over_and_the_check_sees_it() {
        let latin = [vec![0, 1, 2], vec![1, 2, 0], vec![2, 0, 1]];
        let (_, pairs) = counts(&latin);
        assert!(pairs.len() < 6);
    }

    #[test]
    fn every_drawn_order_is_balanced() {
        for providers in 2..=6 {
            for seed in 0..50 {
                let blocks = balanced_blocks(providers, 12);
                let orders = block_orders(providers, blocks, seed).unwrap();
                assert_eq!(orders.len(), blocks);
                assert_balanced(providers, &orders);
            }
        }
    }

    #[test]
    fn a_seed_always_draws_the_same_and_seeds_differ() {
        let draw = |seed| block_orders(4, 12, seed).unwrap();
        assert_eq!(draw(7), draw(7));
        assert!((0..20).any(|seed| draw(seed) != draw(7)));
    }

    #[test]
    fn either_of_two_providers_comes_first_equally_often_over_seeds() {
        let firsts = (0..1000).filter(|seed| block_orders(2, 2, *seed).unwrap()[0][0] == 0).count();
        assert!((440..=560).contains(&firsts), "{firsts}");
    }

    #[test]
    fn unbalanced_blocks_are_refused_and_rounded_up() {
        let refused = block_orders(3, 8, 1);
        assert_eq!(refused, Err(OrderError::Unbalanced { blocks: 8, providers: 3, cycle: 6 }));
        assert_eq!(balanced_blocks(3, 8), 12);
        assert_eq!(balanced_blocks(2, 12), 12);
        assert_eq!(balanced_blocks(1, 5), 5);
        assert!(block_orders(2, 0, 1).is_err());
        assert_eq!(block_orders(0, 2, 1), Err(OrderError::NoProviders));
    }

    #[test]
    fn one_provider_is_alone_in_every_block() {
        assert_eq!(block_orders(1, 3, 1), Ok(vec![vec![0]; 3]));
    }
}

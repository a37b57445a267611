//! One estimate over many cells: the geometric mean of their ratios.

use std::collections::BTreeSet;

use super::error::StatsError;
use super::estimate::{Orders, PairEstimate, Tested, of_replicates, pooled_within, within_one};
use super::paired::{PairedReplicate, PairedSamples};

/// Estimates the ratio of two providers over many cells, each of the same weight.
///
/// A replicate's value is the mean over cells of its values there, and the interval is Student's on the replicates: those
/// that every cell has.
/// With one replicate the cells' own errors are pooled, with the least degrees of freedom of any cell; it is exploratory,
/// as in one cell. One cell gives what [`estimate_pair`](super::estimate_pair) gives.
///
/// # Errors
/// [`StatsError::NoSamples`] for no cell or no replicate that all have, [`StatsError::TooFewBlocks`].
pub fn estimate_cells(cells: &[PairedSamples]) -> Result<PairEstimate, StatsError> {
    let common = common_replicates(cells);
    let replicates: Vec<u32> = common.into_iter().collect();
    match replicates.as_slice() {
        [] => Err(StatsError::NoSamples),
        [only] => of_one(cells, *only),
        _ => of_many(cells, &replicates),
    }
}

fn common_replicates(cells: &[PairedSamples]) -> BTreeSet<u32> {
    let of = |cell: &PairedSamples| -> BTreeSet<u32> {
        cell.replicates().iter().map(|replicate| replicate.replicate).collect()
    };
    cells
        .iter()
        .map(of)
        .reduce(|all, next| all.intersection(&next).copied().collect())
        .unwrap_or_default()
}

fn find(cell: &PairedSamples, replicate: u32) -> Result<&PairedReplicate, StatsError> {
    let found = cell.replicates().iter().find(|found| found.replicate == replicate);
    found.ok_or(StatsError::NoSamples)
}

fn of_many(cells: &[PairedSamples], replicates: &[u32]) -> Result<PairEstimate, StatsError> {
    let count = cells.len() as f64;
    let (mut means, mut effects) = (Vec::new(), Vec::new());
    for replicate in replicates {
        let (mut mean, mut effect) = (0.0, Some(0.0));
        for cell in cells {
            let orders = Orders::of(find(cell, *replicate)?);
            mean += orders.center(cell.location()) / count;
            let this = orders.effect(cell.location());
            effect = effect.zip(this).map(|(sum, this)| sum + this / count);
        }
        means.push(mean);
        effects.push(effect);
    }
    let ratio = of_replicates(&means)?;
    let effects: Option<Vec<f64>> = effects.into_iter().collect();
    let effect = effects.map(|effects| of_replicates(&effects)).transpose()?;
    finished(&ratio, effect, means)
}

fn of_one(cells: &[PairedSamples], replicate: u32) -> Result<PairEstimate, StatsError> {
    let mut ratios = Vec::new();
    let mut effects = Some(Vec::new());
    for cell in cells {
        let (ratio, effect) = within_one(find(cell, replicate)?, pooled_within(cell))?;
        ratios.push(ratio);
        effects = effects.zip(effect).map(|(mut all, this)| {
            all.push(this);
            all
        });
    }
    let ratio = pooled(&ratios)?;
    let effect = effects.map(|effects| pooled(&effects)).transpose()?;
    let mean = ratio.interval.center;
    finished(&ratio, effect, vec![mean])
}

/// The mean of independent estimates.
fn pooled(parts: &[Tested]) -> Result<Tested, StatsError> {
    let count = parts.len() as f64;
    let center = parts.iter().map(|part| part.interval.center).sum::<f64>() / count;
    let error = parts.iter().map(|part| part.error * part.error).sum::<f64>().sqrt() / count;
    let freedom = parts.iter().map(|part| part.freedom).min().ok_or(StatsError::NoSamples)?;
    Tested::new(center, error, freedom)
}

fn finished(
    ratio: &Tested,
    effect: Option<Tested>,
    replicate_means: Vec<f64>,
) -> Result<PairEstimate, StatsError> {
    Ok(PairEstimate {
        ratio: ratio.interval,
        replicate_means,
        freedom: ratio.freedom,
        p_value: ratio.p_value()?,
        order_effect: effect.map(|effect| effect.interval),
        between_sd: None,
        within_sd: None,
    })
}

#[cfg(test)]
mod tests {
    use super::super::call::tests::paired;
    use super::super::estimate::{Location, estimate_pair};
    use super::*;

    fn close(found: f64, expected: f64) {
        assert!((found - expected).abs() < 1e-9, "{found} is not {expected}");
    }

    fn median(samples: PairedSamples) -> PairedSamples {
        samples.with_location(Location::Median)
    }

    #[test]
    fn one_cell_gives_its_own_estimate() {
        for means in [&[0.05, 0.051, 0.052][..], &[0.05]] {
            let cell = median(paired(means, 0.01));
            let (alone, pooled) = (estimate_pair(&cell).unwrap(), estimate_cells(&[cell]).unwrap());
            close(pooled.ratio.center, alone.ratio.center);
            close(pooled.ratio.half_width, alone.ratio.half_width);
            close(pooled.p_value, alone.p_value);
            close(pooled.order_effect.unwrap().center, alone.order_effect.unwrap().center);
        }
    }

    #[test]
    fn the_mean_is_over_cells_and_the_interval_over_replicates() {
        // A replicate that is fast in one cell and slow in the other has no spread between replicates.
        let cells = [paired(&[0.1, 0.2, 0.3], 0.0), paired(&[0.3, 0.2, 0.1], 0.0)].map(median);
        let found = estimate_cells(&cells).unwrap();
        close(found.ratio.center, 0.2);
        assert!(found.ratio.half_width < 1e-6, "{}", found.ratio.half_width);
        assert_eq!((found.replicate_means.len(), found.freedom), (3, 2));
    }

    #[test]
    fn only_replicates_that_every_cell_has_count() {
        let cells = [paired(&[0.1, 0.2, 0.9], 0.0), paired(&[0.1, 0.2], 0.0)].map(median);
        assert_eq!(estimate_cells(&cells).unwrap().replicate_means.len(), 2);
        assert_eq!(estimate_cells(&[]), Err(StatsError::NoSamples));
    }

    #[test]
    fn with_one_replicate_more_cells_are_more_certain() {
        let one = paired(&[0.1], 0.0);
        let alone = estimate_cells(std::slice::from_ref(&one)).unwrap();
        let four = estimate_cells(&[one.clone(), one.clone(), one.clone(), one]).unwrap();
        close(four.ratio.half_width, alone.ratio.half_width / 2.0);
    }
}

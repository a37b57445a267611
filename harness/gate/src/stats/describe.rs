//! Quantiles and summaries of times.

use proofhouse_schema::evidence::Summary;
use proofhouse_schema::real::Real;

use super::error::StatsError;

/// The quantile of type 7: for `n` sorted values, the point at `(n - 1) * p` counted from zero,
/// linear between neighbors.
///
/// # Errors
/// [`StatsError::NoSamples`], [`StatsError::BadValue`] for a value that is not finite or a `p`
/// outside 0 to 1.
pub fn quantile(values: &[f64], p: f64) -> Result<f64, StatsError> {
    let sorted = sorted(values)?;
    if !(0.0..=1.0).contains(&p) {
        let found = p.to_string();
        return Err(StatsError::BadValue { what: "quantile", found, accepted: "0 to 1" });
    }
    Ok(of_sorted(&sorted, p))
}

/// The quantile at one half.
///
/// # Errors
/// As for [`quantile`].
pub fn median(values: &[f64]) -> Result<f64, StatsError> {
    quantile(values, 0.5)
}

/// Least, percentiles, largest, mean and coefficient of variation of times in nanoseconds.
///
/// The coefficient divides the standard deviation with `n - 1` by the mean; it is NaN for one
/// value.
///
/// # Errors
/// [`StatsError::NoSamples`], [`StatsError::BadValue`] for a time that is not finite or not above
/// zero.
pub fn summarize(times_ns: &[f64]) -> Result<Summary, StatsError> {
    let sorted = sorted(times_ns)?;
    if sorted[0] <= 0.0 {
        let found = sorted[0].to_string();
        return Err(StatsError::BadValue { what: "time", found, accepted: "above zero" });
    }
    let mean = mean(&sorted);
    Ok(Summary {
        count: sorted.len() as u64,
        min_ns: Real(sorted[0]),
        p10_ns: Real(of_sorted(&sorted, 0.1)),
        p50_ns: Real(of_sorted(&sorted, 0.5)),
        p90_ns: Real(of_sorted(&sorted, 0.9)),
        max_ns: Real(sorted[sorted.len() - 1]),
        mean_ns: Real(mean),
        cv: Real(variance(&sorted).sqrt() / mean),
    })
}

fn sorted(values: &[f64]) -> Result<Vec<f64>, StatsError> {
    if values.is_empty() {
        return Err(StatsError::NoSamples);
    }
    if let Some(bad) = values.iter().find(|value| !value.is_finite()) {
        let found = bad.to_string();
        return Err(StatsError::BadValue { what: "value", found, accepted: "finite numbers" });
    }
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    Ok(sorted)
}

fn of_sorted(sorted: &[f64], p: f64) -> f64 {
    let place = (sorted.len() - 1) as f64 * p;
    let below = place.floor() as usize;
    let above = (below + 1).min(sorted.len() - 1);
    sorted[below] + (place - below as f64) * (sorted[above] - sorted[below])
}

pub(super) fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

/// The median of at least one value, all finite.
pub(super) fn median_of_finite(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    of_sorted(&sorted, 0.5)
}

/// The variance with `n - 1`; NaN for one value.
pub(super) fn variance(values: &[f64]) -> f64 {
    let mean = mean(values);
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    squares / (values.len() as f64 - 1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_linear_between_neighbors() {
        let values = [4.0, 1.0, 3.0, 2.0];
        assert_eq!(quantile(&values, 0.0), Ok(1.0));
        assert_eq!(quantile(&values, 0.25), Ok(1.75));
        assert_eq!(median(&values), Ok(2.5));
        assert_eq!(quantile(&values, 0.9), Ok(3.7));
        assert_eq!(quantile(&values, 1.0), Ok(4.0));
        assert_eq!(quantile(&[7.0], 0.9), Ok(7.0));
    }

    #[test]
    fn a_summary_is_the_hand_computed_one() {
        let summary = summarize(&[10.0, 12.0, 14.0, 16.0, 18.0]).unwrap();
        assert_eq!(summary.count, 5);
        assert_eq!((summary.min_ns, summary.max_ns), (Real(10.0), Real(18.0)));
        assert_eq!((summary.p50_ns, summary.mean_ns), (Real(14.0), Real(14.0)));
        assert!((summary.p10_ns.0 - 10.8).abs() < 1e-12);
        assert!((summary.p90_ns.0 - 17.2).abs() < 1e-12);
        // Squares 16 + 4 + 0 + 4 + 16 over 4 are 10.
        assert!((summary.cv.0 - 10.0_f64.sqrt() / 14.0).abs() < 1e-12);
        assert!(summarize(&[3.0]).unwrap().cv.0.is_nan());
    }

    #[test]
    fn nothing_and_what_is_no_time_are_typed_errors() {
        assert_eq!(summarize(&[]), Err(StatsError::NoSamples));
        assert_eq!(median(&[]), Err(StatsError::NoSamples));
        for bad in [f64::NAN, f64::INFINITY, 0.0, -1.0] {
            assert!(matches!(summarize(&[1.0, bad]), Err(StatsError::BadValue { .. })), "{bad}");
        }
        assert!(quantile(&[1.0], 1.5).is_err());
    }
}

//! Student's t, the exact binomial interval, and Holm's correction.

use statrs::function::beta::beta_reg;

use super::error::StatsError;

/// Halvings that are enough for every double between 0 and 1; the loop ends as soon as no digit is
/// undecided, which takes about sixty.
const HALVINGS: u32 = 1100;

/// The two-sided p-value of `t` with `freedom` degrees of freedom.
///
/// # Errors
/// [`StatsError::BadValue`] for zero degrees of freedom or a `t` that is no number.
pub fn student_two_sided_p(t: f64, freedom: u32) -> Result<f64, StatsError> {
    check_freedom(freedom)?;
    if t.is_nan() {
        return Err(bad("t", t, "a number"));
    }
    if t.is_infinite() {
        return Ok(0.0);
    }
    let freedom = f64::from(freedom);
    Ok(beta_reg(freedom / 2.0, 0.5, freedom / (freedom + t * t)))
}

/// The `t` that a two-sided interval of the given confidence reaches to.
///
/// # Errors
/// [`StatsError::BadValue`] for zero degrees of freedom or a confidence outside 0 to 1.
pub fn student_quantile(confidence: f64, freedom: u32) -> Result<f64, StatsError> {
    check_freedom(freedom)?;
    check_open_unit("confidence", confidence)?;
    let alpha = 1.0 - confidence;
    let freedom = f64::from(freedom);
    let x = solve(|x| beta_reg(freedom / 2.0, 0.5, x) < alpha);
    Ok((freedom * (1.0 - x) / x).sqrt())
}

/// The exact (Clopper-Pearson) interval of a rate: `hits` of `trials`.
///
/// # Errors
/// [`StatsError::NoSamples`] for zero trials, [`StatsError::BadValue`] for more hits than trials
/// or a confidence outside 0 to 1.
pub fn binomial_interval(
    hits: u64,
    trials: u64,
    confidence: f64,
) -> Result<(f64, f64), StatsError> {
    if trials == 0 {
        return Err(StatsError::NoSamples);
    }
    if hits > trials {
        return Err(bad("hits", hits as f64, "at most the trials"));
    }
    check_open_unit("confidence", confidence)?;
    let tail = (1.0 - confidence) / 2.0;
    let (found, missed) = (hits as f64, (trials - hits) as f64);
    let low = match hits {
        0 => 0.0,
        _ => solve(|p| beta_reg(found, missed + 1.0, p) < tail),
    };
    let high = match trials - hits {
        0 => 1.0,
        _ => solve(|p| beta_reg(found + 1.0, missed, p) < 1.0 - tail),
    };
    Ok((low, high))
}

/// Holm's adjusted p-values, in the order given: a hypothesis is rejected at a level when its
/// adjusted value is at most that level, and the chance of any false rejection stays below it.
///
/// # Errors
/// [`StatsError::NoSamples`] for none, [`StatsError::BadValue`] for a value outside 0 to 1.
pub fn holm(p_values: &[f64]) -> Result<Vec<f64>, StatsError> {
    if p_values.is_empty() {
        return Err(StatsError::NoSamples);
    }
    if let Some(p) = p_values.iter().find(|p| !(0.0..=1.0).contains(*p)) {
        return Err(bad("p-value", *p, "0 to 1"));
    }
    let mut order: Vec<usize> = (0..p_values.len()).collect();
    order.sort_by(|a, b| p_values[*a].total_cmp(&p_values[*b]));
    let mut adjusted = vec![0.0; p_values.len()];
    let mut largest = 0.0_f64;
    for (rank, index) in order.into_iter().enumerate() {
        let left = (p_values.len() - rank) as f64;
        largest = largest.max((left * p_values[index]).min(1.0));
        adjusted[index] = largest;
    }
    Ok(adjusted)
}

/// The point of 0 to 1 up to which `below` holds, by bisection.
fn solve(below: impl Fn(f64) -> bool) -> f64 {
    let (mut low, mut high) = (0.0, 1.0);
    for _ in 0..HALVINGS {
        let middle = f64::midpoint(low, high);
        if middle <= low || middle >= high {
            break;
        }
        if below(middle) {
            low = middle;
        } else {
            high = middle;
        }
    }
    f64::midpoint(low, high)
}

fn check_freedom(freedom: u32) -> Result<(), StatsError> {
    if freedom == 0 { Err(bad("degrees of freedom", 0.0, "at least 1")) } else { Ok(()) }
}

fn check_open_unit(what: &'static str, value: f64) -> Result<(), StatsError> {
    if value > 0.0 && value < 1.0 { Ok(()) } else { Err(bad(what, value, "between 0 and 1")) }
}

pub(super) fn bad(what: &'static str, found: f64, accepted: &'static str) -> StatsError {
    StatsError::BadValue { what, found: found.to_string(), accepted }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn close(found: f64, expected: f64) {
        assert!((found / expected - 1.0).abs() < 1e-9, "{found} is not {expected}");
    }

    #[test]
    fn student_quantiles_are_those_of_the_tables() {
        for (freedom, expected) in [
            (1, 12.706_204_736_174_7),
            (2, 4.302_652_729_749_46),
            (4, 2.776_445_105_197_79),
            (9, 2.262_157_162_798_21),
            (30, 2.042_272_456_301_24),
        ] {
            close(student_quantile(0.95, freedom).unwrap(), expected);
        }
    }

    #[test]
    fn p_values_are_those_of_the_tables_and_the_inverse_of_quantiles() {
        close(student_two_sided_p(2.0, 4).unwrap(), 0.116_116_523_516_816);
        close(student_two_sided_p(-3.5, 9).unwrap(), 0.006_723_515_763_058_96);
        close(student_two_sided_p(1.0, 1).unwrap(), 0.5);
        close(student_two_sided_p(10.0, 2).unwrap(), 0.009_852_457_023_325_69);
        for freedom in 1..40 {
            let t = student_quantile(0.95, freedom).unwrap();
            close(student_two_sided_p(t, freedom).unwrap(), 0.05);
        }
        assert_eq!(student_two_sided_p(0.0, 3), Ok(1.0));
        assert_eq!(student_two_sided_p(f64::INFINITY, 3), Ok(0.0));
    }

    #[test]
    fn exact_intervals_are_those_of_the_references() {
        let check = |hits, trials, low, high| {
            let found = binomial_interval(hits, trials, 0.95).unwrap();
            close(found.0, low);
            close(found.1, high);
        };
        check(5, 10, 0.187_086_028_447_399, 0.812_913_971_552_601);
        check(1, 20, 0.001_265_089_497_949_8, 0.248_732_762_772_028);
        check(4, 400, 0.002_731_195_971_242_95, 0.025_404_800_907_336_3);
        // Conover's textbook example.
        let (low, high) = binomial_interval(682, 925, 0.95).unwrap();
        assert!((low - 0.707_668_3).abs() < 1e-7 && (high - 0.765_406_6).abs() < 1e-7);
    }

    #[test]
    fn none_and_all_have_closed_forms() {
        let (low, high) = binomial_interval(0, 400, 0.95).unwrap();
        assert_eq!(low, 0.0);
        close(high, 1.0 - 0.025_f64.powf(1.0 / 400.0));
        let (low, high) = binomial_interval(10, 10, 0.95).unwrap();
        close(low, 0.025_f64.powf(0.1));
        assert_eq!(high, 1.0);
    }

    #[test]
    fn holm_steps_down_and_keeps_the_order_given() {
        // Sorted 0.01, 0.02, 0.03, 0.04 times 4, 3, 2, 1, and never falling.
        let adjusted = holm(&[0.04, 0.01, 0.03, 0.02]).unwrap();
        for (found, expected) in adjusted.iter().zip([0.06, 0.04, 0.06, 0.06]) {
            close(*found, expected);
        }
        assert_eq!(holm(&[0.9, 0.8]), Ok(vec![1.0, 1.0]));
        assert_eq!(holm(&[0.25]), Ok(vec![0.25]));
    }

    #[test]
    fn what_has_no_answer_is_a_typed_error() {
        assert_eq!(holm(&[]), Err(StatsError::NoSamples));
        assert!(holm(&[0.1, f64::NAN]).is_err());
        assert!(holm(&[1.1]).is_err());
        assert_eq!(binomial_interval(0, 0, 0.95), Err(StatsError::NoSamples));
        assert!(binomial_interval(3, 2, 0.95).is_err());
        assert!(binomial_interval(1, 2, 1.0).is_err());
        assert!(student_quantile(0.95, 0).is_err());
        assert!(student_quantile(f64::NAN, 3).is_err());
        assert!(student_two_sided_p(f64::NAN, 3).is_err());
    }
}

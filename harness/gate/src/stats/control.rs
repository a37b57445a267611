//! Comparisons whose answer is known, and what they say of the session.

use proofhouse_schema::device::DeviceKind;
use proofhouse_schema::evidence::Control;
use proofhouse_schema::verdict::Speed;

use super::call::{Margin, NoiseFloor, Rules, judge_pair};
use super::describe::median;
use super::distribution::bad;
use super::error::StatsError;
use super::estimate::PairEstimate;
use super::paired::PairedSamples;

/// An identical-input run may be faster by this fraction; more is a remembered result.
pub const FASTEST_IDENTICAL: f64 = 0.10;

/// The noise floor of a session: the largest difference that the intervals of its A/A controls
/// allow between a provider and itself, as a fraction.
///
/// # Errors
/// [`StatsError::NoSamples`] for no control.
pub fn noise_floor<'a>(
    controls: impl IntoIterator<Item = &'a PairEstimate>,
) -> Result<f64, StatsError> {
    let reaches = controls.into_iter().map(|control| control.ratio.reach());
    let largest = reaches.fold(None, |largest: Option<f64>, reach| {
        Some(largest.map_or(reach, |so_far| so_far.max(reach)))
    });
    largest.map(f64::exp_m1).ok_or(StatsError::NoSamples)
}

/// Judges a control: A/A when `planted` is zero, else the slowdown of the *candidate* by that
/// fraction.
///
/// A/A is right when no difference is called.
/// A planted slowdown is right when it is called, and the interval, widened by the margin, holds
/// what was planted.
///
/// # Errors
/// [`StatsError`] when the data allow no estimate, or when the slowdown is inside the margin and
/// could never be called.
pub fn judge_control(
    samples: &PairedSamples,
    margin: Margin,
    planted: f64,
) -> Result<(Control, PairEstimate), StatsError> {
    if planted != 0.0 && !(planted.is_finite() && planted > margin.fraction()) {
        return Err(bad("planted slowdown", planted, "0, or more than the margin"));
    }
    let rules = Rules { margin, noise_floor: NoiseFloor::Control };
    let judged = judge_pair(samples, &rules)?;
    let right = if planted == 0.0 {
        matches!(judged.speed, Speed::Parity | Speed::Even | Speed::Inconclusive)
    } else {
        let called = matches!(judged.speed, Speed::Loss | Speed::Trail);
        let missed = (judged.estimate.ratio.center + planted.ln_1p()).abs();
        called && missed <= judged.estimate.ratio.half_width + margin.log()
    };
    let control = Control {
        device: DeviceKind::Cpu,
        name: if planted == 0.0 { "a-a" } else { "a-b" }.to_owned(),
        planted,
        estimate: Some(judged.estimate.to_record()),
        speed: judged.speed,
        right,
    };
    Ok((control, judged.estimate))
}

/// What a run on identical inputs says of the provider.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct IdenticalInputs {
    /// Median time on rotating inputs over median time on identical ones.
    pub ratio: f64,
    /// True when identical inputs are faster than allowed: results are remembered.
    pub remembered: bool,
}

/// Compares times per call on rotating inputs with those on one set again and again.
///
/// # Errors
/// [`StatsError`] for no times, or a time that is not finite or not above zero.
pub fn check_identical_inputs(
    rotating_ns: &[f64],
    identical_ns: &[f64],
) -> Result<IdenticalInputs, StatsError> {
    let (rotating, identical) = (median(rotating_ns)?, median(identical_ns)?);
    let all = rotating_ns.iter().chain(identical_ns);
    if let Some(time) = all.copied().find(|time| *time <= 0.0) {
        return Err(bad("time", time, "above zero"));
    }
    let ratio = rotating / identical;
    Ok(IdenticalInputs { ratio, remembered: ratio > 1.0 + FASTEST_IDENTICAL })
}

#[cfg(test)]
mod tests {
    use super::super::call::tests::paired;
    use super::super::estimate::estimate_pair;
    use super::*;

    fn margin() -> Margin {
        Margin::new(0.03).unwrap()
    }

    fn control(
        samples: &PairedSamples,
        planted: f64,
    ) -> Result<(Control, PairEstimate), StatsError> {
        judge_control(samples, margin(), planted)
    }

    #[test]
    fn the_noise_floor_is_the_largest_reach_of_any_control() {
        let small = estimate_pair(&paired(&[0.001, 0.0, -0.001], 0.0)).unwrap();
        let large = estimate_pair(&paired(&[-0.01, -0.02, -0.03], 0.0)).unwrap();
        let floor = noise_floor([&small, &large]).unwrap();
        // Center -0.02, sd 0.01: the interval reaches to 0.02 + t(2) x 0.01 / sqrt(3).
        let reach: f64 = 0.02 + 4.302_652_729_749_46 * 0.01 / 3.0_f64.sqrt();
        assert!((floor - reach.exp_m1()).abs() < 1e-9, "{floor}");
        assert_eq!(noise_floor([]), Err(StatsError::NoSamples));
    }

    #[test]
    fn a_provider_against_itself_must_not_be_called() {
        let (calm, _) = control(&paired(&[0.001, 0.0, -0.001], 0.0), 0.0).unwrap();
        assert!(calm.right && calm.speed == Speed::Parity && calm.name == "a-a");
        let (noisy, _) = control(&paired(&[0.1, 0.0, -0.1], 0.0), 0.0).unwrap();
        assert!(noisy.right && noisy.speed == Speed::Inconclusive);
        for mean in [0.06, -0.06] {
            let (called, _) = control(&paired(&[mean; 3], 0.0), 0.0).unwrap();
            assert!(!called.right, "{called:?}");
        }
        let (lead, _) = control(&paired(&[0.06], 0.0), 0.0).unwrap();
        assert!(!lead.right && lead.speed == Speed::Lead);
    }

    #[test]
    fn a_planted_slowdown_must_be_called_as_what_it_is() {
        let log = -(0.05_f64.ln_1p());
        let judged = |means: &[f64]| control(&paired(means, 0.0), 0.05).unwrap().0;
        let seen = judged(&[log, log + 0.001, log - 0.001]);
        assert!(seen.right && seen.speed == Speed::Loss && seen.name == "a-b");
        assert!(judged(&[log]).right);
        assert!(!judged(&[0.0, 0.001, -0.001]).right, "not called");
        assert!(!judged(&[-log, -log + 0.001, -log - 0.001]).right, "the wrong side");
        assert!(!judged(&[-0.5, -0.501, -0.499]).right, "far more than was planted");
    }

    #[test]
    fn a_slowdown_inside_the_margin_is_refused_because_it_could_never_be_called() {
        for planted in [0.02, 0.03, -0.05, f64::NAN] {
            assert!(control(&paired(&[0.0; 3], 0.0), planted).is_err(), "{planted}");
        }
    }

    #[test]
    fn more_than_a_tenth_faster_on_identical_inputs_is_a_remembered_result() {
        let rotating = [100.0, 101.0, 99.0];
        let check = |identical: &[f64]| check_identical_inputs(&rotating, identical).unwrap();
        assert!(!check(&[100.0, 99.0, 101.0]).remembered);
        assert!(!check(&[92.0, 91.0, 93.0]).remembered);
        assert!(check(&[90.0, 89.0, 90.5]).remembered);
        assert!(check(&[1.0]).remembered);
        assert!(!check(&[200.0]).remembered);
    }

    #[test]
    fn identical_input_runs_without_times_are_errors() {
        assert_eq!(check_identical_inputs(&[], &[1.0]), Err(StatsError::NoSamples));
        assert_eq!(check_identical_inputs(&[1.0], &[]), Err(StatsError::NoSamples));
        assert!(check_identical_inputs(&[1.0, f64::NAN], &[1.0]).is_err());
        assert!(check_identical_inputs(&[1.0], &[1.0, 0.0]).is_err());
    }
}

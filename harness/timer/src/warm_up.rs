//! The warm-up: when code stops loading and samples stop drifting.

use crate::device::Device;
use crate::measure::{MeasureError, Stage};
use crate::plan::{CallsPerSample, RESOLUTION_FACTOR};
use crate::region::{Core, Region, Stop, next_rotation};
use crate::sample::{Calibration, Phase, Sample};

/// Growth of the calls from one sample to the next is at most this.
const MOST_GROWTH: f64 = 64.0;
/// Calls are chosen so that a sample lasts this much longer than asked.
const HEADROOM: f64 = 1.05;

pub(crate) struct Warmed {
    pub(crate) samples: Vec<Sample>,
    pub(crate) calls: u32,
    pub(crate) next_set: u32,
}

/// The window of last samples, emptied whenever something changes under it.
struct Window {
    times_ns: Vec<f64>,
    size: usize,
}

impl Window {
    fn push(&mut self, elapsed_ns: f64) {
        if self.times_ns.len() == self.size {
            self.times_ns.remove(0);
        }
        self.times_ns.push(elapsed_ns);
    }

    /// Change from the median of the older half to that of the newer, as a fraction.
    fn drift(&self) -> Option<f64> {
        if self.times_ns.len() < self.size {
            return None;
        }
        let (older, newer) = self.times_ns.split_at(self.size / 2);
        Some((median(newer) / median(older) - 1.0).abs())
    }
}

fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    if sorted.len() % 2 == 1 {
        sorted[middle]
    } else {
        f64::midpoint(sorted[middle - 1], sorted[middle])
    }
}

/// Runs the warm-up; its samples are kept whatever they show.
pub(crate) fn run<D: Device>(
    core: &mut Core<D>,
    calibration: Calibration,
) -> Result<Warmed, MeasureError> {
    let stop = |stop: Stop| stop.into_error(Stage::WarmUp);
    let limits = core.plan.warm_up;
    let needed_ns = needed_ns(core.plan.calls, calibration);
    let (mut calls, most_calls) = match core.plan.calls {
        CallsPerSample::Fixed(calls) => (calls, calls),
        CallsPerSample::Reach { at_most, .. } => (1, at_most),
    };
    core.allow_retakes(limits.max_samples);
    let start_ns = core.host_now().map_err(stop)?;
    let mut code = core.loaded_code().map_err(stop)?;
    let mut window = Window { times_ns: Vec::new(), size: limits.window as usize };
    let mut samples = Vec::new();
    let mut next_set = 0;
    let mut still_loading = true;
    for index in 0..limits.max_samples {
        let rotation = next_rotation(&core.plan, &mut next_set, calls);
        let region = Region { rotation, phase: Phase::WarmUp, index, slowdown: 0.0 };
        let sample = core.take(region).map_err(stop)?.sample;
        samples.push(sample);
        window.push(sample.elapsed_ns);
        let code_now = core.loaded_code().map_err(stop)?;
        still_loading = code_now != code;
        if still_loading {
            code = code_now;
            window.times_ns.clear();
        }
        let typical_ns = median_or(&window.times_ns, sample.elapsed_ns);
        if typical_ns < needed_ns && calls < most_calls {
            calls = grown(calls, typical_ns, needed_ns, most_calls);
            window.times_ns.clear();
        }
        if window.drift().is_some_and(|drift| drift < limits.drift) {
            if typical_ns < needed_ns {
                return Err(MeasureError::SampleTooShort {
                    calls,
                    sample_ns: typical_ns,
                    needed_ns,
                });
            }
            core.device.settled(typical_ns).map_err(|error| stop(error.into()))?;
            return Ok(Warmed { samples, calls, next_set });
        }
        if core.host_now().map_err(stop)? - start_ns > limits.max_ns {
            break;
        }
    }
    Err(MeasureError::Unsettled {
        // The loop's bound fits.
        samples: samples.len() as u32,
        spent_ns: core.host_now().map_err(stop)? - start_ns,
        still_loading,
        drift: window.drift(),
        limit: limits.drift,
    })
}

fn needed_ns(calls: CallsPerSample, calibration: Calibration) -> f64 {
    let resolution_ns = RESOLUTION_FACTOR * calibration.step_ns;
    match calls {
        CallsPerSample::Fixed(_) => resolution_ns,
        CallsPerSample::Reach { at_least_ns, .. } => resolution_ns.max(at_least_ns as f64),
    }
}

fn median_or(times_ns: &[f64], otherwise: f64) -> f64 {
    if times_ns.is_empty() { otherwise } else { median(times_ns) }
}

fn grown(calls: u32, sample_ns: f64, needed_ns: f64, most_calls: u32) -> u32 {
    let growth = (HEADROOM * needed_ns / sample_ns).min(MOST_GROWTH);
    let wanted = (f64::from(calls) * growth).ceil().min(f64::from(most_calls));
    // Between one and `most_calls`, so the cast is exact.
    (wanted as u32).max(calls + 1).min(most_calls)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drift_compares_the_halves_of_a_full_window() {
        let mut window = Window { times_ns: Vec::new(), size: 4 };
        for time in [100.0, 100.0, 110.0] {
            window.push(time);
            assert_eq!(window.drift(), None);
        }
        window.push(110.0);
        let drift = window.drift().unwrap();
        assert!((drift - 0.1).abs() < 1e-12, "{drift}");
        window.push(110.0);
        window.push(110.0);
        assert_eq!(window.drift(), Some(0.0));
    }

    #[test]
    fn calls_grow_to_the_target_and_never_past_the_most() {
        assert_eq!(grown(1, 10.0, 100.0, 1_000), 11);
        assert_eq!(grown(1, 1e-9, 1e9, 1_000), 64);
        assert_eq!(grown(900, 1.0, 100.0, 1_000), 1_000);
        assert_eq!(grown(10, 99.999, 100.0, 1_000), 11);
    }

    #[test]
    fn the_median_of_an_even_count_is_the_middle_of_two() {
        assert_eq!(median(&[4.0, 1.0, 3.0, 2.0]), 2.5);
        assert_eq!(median(&[3.0, 1.0, 2.0]), 2.0);
    }
}

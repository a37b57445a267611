//! Whole comparisons simulated from seeds: how often the judge is wrong, and how often it sees.
//!
//! A simulated process has its own speed (its standard deviation is given), each block drifts for
//! both sides alike, each turn has noise with heavy tails, and the first place of a block may be
//! slower.

use proofhouse_schema::verdict::Speed;

use super::call::{Margin, NoiseFloor, PairJudgment, Rules, judge_pair};
use super::control::noise_floor;
use super::distribution::binomial_interval;
use super::estimate::{Location, estimate_pair};
use super::order::{Draw, block_orders};
use super::paired::{PairedSamples, Turn};

const COMPARISONS: u64 = 2_000;

/// The noise of a simulated machine, as standard deviations of log times.
#[derive(Clone, Copy)]
struct Machine {
    between: f64,
    within: f64,
    tail_chance: f64,
    longest_tail: f64,
    first_place: f64,
    replicates: u32,
    location: Location,
}

impl Machine {
    fn with_between(between: f64) -> Self {
        Self {
            between,
            within: 0.01,
            tail_chance: 0.03,
            longest_tail: 0.3,
            first_place: 0.0,
            replicates: 5,
            location: Location::Mean,
        }
    }

    /// A comparison in which the candidate is slower by the fraction `slowdown`.
    fn compare(&self, seed: u64, slowdown: f64) -> PairedSamples {
        let mut noise = Noise(Draw(seed));
        let (mut candidate, mut baseline) = (Vec::new(), Vec::new());
        for replicate in 0..self.replicates {
            let speeds = [self.between * noise.normal(), self.between * noise.normal()];
            let orders = block_orders(2, 12, seed ^ (u64::from(replicate) << 32)).unwrap();
            let mut drift = 0.0;
            for (block, order) in (0..).zip(&orders) {
                drift += 0.005 * noise.normal();
                for (position, side) in (0..).zip(order) {
                    let mut log = speeds[*side] + drift + self.turn_noise(&mut noise);
                    if position == 0 {
                        log += self.first_place;
                    }
                    if *side == 0 {
                        log += slowdown.ln_1p();
                    }
                    let per_call_ns = 20_000.0 * log.exp();
                    let turn = Turn { replicate, block, position, per_call_ns };
                    if *side == 0 { candidate.push(turn) } else { baseline.push(turn) }
                }
            }
        }
        PairedSamples::from_turns(&candidate, &baseline).unwrap().with_location(self.location)
    }

    fn turn_noise(&self, noise: &mut Noise) -> f64 {
        let usual = self.within * noise.normal();
        // A tail is always slower: an interruption that the turn's median did not hide.
        if noise.uniform() < self.tail_chance {
            usual + 0.02 + (self.longest_tail - 0.02) * noise.uniform()
        } else {
            usual
        }
    }

    fn judge(&self, seed: u64, slowdown: f64) -> PairJudgment {
        let control = self.compare(seed ^ 0x5EED_0000_0000_0000, 0.0);
        let floor = noise_floor([&estimate_pair(&control).unwrap()]).unwrap();
        let noise_floor = NoiseFloor::Known(floor);
        let rules = Rules { margin: Margin::new(0.03).unwrap(), noise_floor };
        judge_pair(&self.compare(seed, slowdown), &rules).unwrap()
    }

    fn count(&self, slowdown: f64, wanted: impl Fn(Speed) -> bool) -> u64 {
        (0..COMPARISONS)
            .filter(|seed| wanted(self.judge(0xA11CE + seed * 0x1_0001, slowdown).speed))
            .count() as u64
    }
}

struct Noise(Draw);

impl Noise {
    /// Above 0 and below 1.
    fn uniform(&mut self) -> f64 {
        ((self.0.next() >> 12) as f64 + 0.5) / (1_u64 << 52) as f64
    }

    fn normal(&mut self) -> f64 {
        (-2.0 * self.uniform().ln()).sqrt() * (std::f64::consts::TAU * self.uniform()).cos()
    }
}

fn is_call(speed: Speed) -> bool {
    matches!(speed, Speed::Win | Speed::Loss)
}

fn assert_at_most(hits: u64, rate: f64, what: &str) {
    let (_, high) = binomial_interval(hits, COMPARISONS, 0.95).unwrap();
    assert!(high <= rate, "{what}: {hits} of {COMPARISONS}, the rate may be {high}");
}

#[test]
fn a_provider_against_itself_is_called_in_under_a_hundredth_of_comparisons() {
    for between in [0.005, 0.02] {
        for first_place in [0.0, 0.24] {
            for location in [Location::Mean, Location::Median] {
                let machine = Machine { first_place, location, ..Machine::with_between(between) };
                let what = format!("between {between}, first {first_place}, {location:?}");
                assert_at_most(machine.count(0.0, is_call), 0.01, &what);
            }
        }
    }
}

fn assert_sees_five_percent(machine: Machine) {
    let seen = machine.count(0.05, |speed| speed == Speed::Loss);
    let (low, _) = binomial_interval(seen, COMPARISONS, 0.95).unwrap();
    assert!(low >= 0.95, "{seen} of {COMPARISONS}");
}

#[test]
fn a_slowdown_of_five_percent_is_seen_where_processes_agree_and_interruptions_are_small() {
    assert_sees_five_percent(Machine { longest_tail: 0.06, ..Machine::with_between(0.004) });
}

#[test]
fn a_median_sees_five_percent_where_interruptions_are_large_and_a_mean_does_not() {
    let harsh = Machine::with_between(0.004);
    assert_sees_five_percent(Machine { location: Location::Median, ..harsh });
    let by_mean = harsh.count(0.05, |speed| speed == Speed::Loss);
    assert!(by_mean < COMPARISONS * 9 / 10, "{by_mean}");
}

#[test]
fn a_slowdown_is_never_called_a_win_and_noise_makes_it_inconclusive() {
    for between in [0.005, 0.01, 0.02] {
        let machine = Machine::with_between(between);
        assert_at_most(machine.count(0.05, |speed| speed == Speed::Win), 0.002, "wins");
    }
    let noisy = Machine::with_between(0.02);
    let undecided = noisy.count(0.05, |speed| speed == Speed::Inconclusive);
    assert!(undecided > COMPARISONS / 2, "{undecided}");
}

#[test]
fn a_penalty_of_the_first_place_yields_no_win_and_is_named() {
    let calm = Machine { tail_chance: 0.0, ..Machine::with_between(0.005) };
    let machine = Machine { first_place: 0.24, ..calm };
    for seed in 0..200 {
        let judged = machine.judge(seed, 0.0);
        assert_eq!(judged.speed, Speed::Inconclusive);
        assert!(judged.reasons.iter().any(|reason| reason.code == "order-effect"));
        // The design itself keeps the penalty out of the ratio.
        assert!(judged.estimate.ratio.center.abs() < 0.03, "{:?}", judged.estimate.ratio);
    }
}

#[test]
fn an_unbalanced_order_would_turn_the_penalty_into_a_win_and_is_refused() {
    let machine = Machine { first_place: 0.24, ..Machine::with_between(0.005) };
    let mut noise = Noise(Draw(1));
    let (mut candidate, mut baseline) = (Vec::new(), Vec::new());
    for replicate in 0..5 {
        for block in 0..12 {
            let mut time = || 20_000.0 * machine.turn_noise(&mut noise).exp();
            let turn = |position, per_call_ns| Turn { replicate, block, position, per_call_ns };
            baseline.push(turn(0, time() * 1.24));
            candidate.push(turn(1, time()));
        }
    }
    let samples = PairedSamples::from_turns(&candidate, &baseline).unwrap();
    let rules = Rules { margin: Margin::new(0.03).unwrap(), noise_floor: NoiseFloor::Known(0.0) };
    let judged = judge_pair(&samples, &rules).unwrap();
    assert!(judged.estimate.ratio.low() > 0.03);
    assert_eq!(judged.speed, Speed::Inconclusive);
}

#[test]
fn one_replicate_is_never_called_whatever_the_noise() {
    let machine = Machine { replicates: 1, ..Machine::with_between(0.02) };
    assert_eq!(machine.count(0.05, is_call), 0);
    assert_eq!(machine.count(-0.3, is_call), 0);
}

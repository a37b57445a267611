//! Turns: a plain loop over the operator with the monotonic clock.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use proofhouse_schema::device::{Reuse, Telemetry};
use proofhouse_schema::protocol::{Measure, Measured, Phase};
use proofhouse_schema::timing::Cache;
use proofhouse_schema::units::Nanos;

use crate::device;
use crate::norm::rms_norm;

/// A case with private copies of its inputs.
#[derive(Debug, Default)]
pub(crate) struct Timed {
    pub(crate) x: Vec<f32>,
    pub(crate) weight: Vec<f32>,
    pub(crate) eps: f64,
    pub(crate) out: Vec<f32>,
    pub(crate) calls: u32,
    /// Whether the warm-up gave nothing: then there is no timer for turns.
    pub(crate) cold: bool,
    /// The result that a memo by address keeps.
    kept: Option<Vec<f32>>,
    turns: u32,
}

/// Time that a call takes beside its work, so that defects of speed are large against noise.
const PAD: Duration = Duration::from_micros(400);

/// What outputs hold before a turn whose outputs are published, where its contents are not new.
const POISON: u32 = 0xa5a5_a5a5;

fn spin(time: Duration) {
    let begun = Instant::now();
    while begun.elapsed() < time {
        std::hint::spin_loop();
    }
}

/// How long a call of a defect spins.
fn pad(defect: &str, position: u32, fast_process: bool) -> Duration {
    match defect {
        "slow-but-right" => PAD * 3,
        "slow-first-slot" if position > 0 => PAD / 2,
        "bimodal-by-process" if fast_process => PAD / 2,
        _ => PAD,
    }
}

/// Contents that were seen, by a hash of their bits.
#[derive(Debug, Default)]
pub(crate) struct Memory(HashSet<u64>);

impl Memory {
    /// Whether the contents were seen before; from now on they were.
    pub(crate) fn knows(&mut self, x: &[f32]) -> bool {
        let mix = |hash: u64, value: &f32| {
            (hash ^ u64::from(value.to_bits())).wrapping_mul(0x100_0000_01b3)
        };
        !self.0.insert(x.iter().fold(0xcbf2_9ce4_8422_2325, mix))
    }
}

impl Timed {
    fn call(&mut self, defect: &str, memory: &mut Memory, position: u32, fast: bool) {
        match defect {
            "noop-fast" => return,
            _ if device::idles(defect) => return spin(pad(defect, position, fast)),
            "memo-by-pointer" => {
                if let Some(kept) = &self.kept {
                    self.out.clone_from(kept);
                    return;
                }
            }
            "skips-when-written" if self.kept.is_some() && !self.is_poisoned() => return,
            "memo-by-content" if memory.knows(&self.x) => {
                self.out = rms_norm(&self.x, &self.weight, self.eps, false);
                return;
            }
            _ => {}
        }
        self.out = rms_norm(&self.x, &self.weight, self.eps, false);
        spin(pad(defect, position, fast));
        if matches!(defect, "memo-by-pointer" | "skips-when-written") {
            self.kept = Some(self.out.clone());
        }
    }

    fn is_poisoned(&self) -> bool {
        self.out.first().is_some_and(|value| value.to_bits() == POISON)
    }

    /// One request's samples.
    pub(crate) fn measure(
        &mut self,
        asked: &Measure,
        defect: &str,
        memory: &mut Memory,
        fast: bool,
    ) -> Measured {
        let begun = Instant::now();
        self.turns += 1;
        if asked.publish && !asked.refresh {
            self.out.fill(f32::from_bits(POISON));
        }
        let count = if asked.phase == Phase::Warm { 4 } else { asked.samples };
        let mut elapsed = Vec::new();
        if asked.phase == Phase::Warm {
            let trial = Instant::now();
            self.call(defect, memory, asked.position, fast);
            let one = trial.elapsed().as_nanos() as f64;
            self.calls = (asked.min_sample_ns / one.max(1.0)).ceil().clamp(1.0, 1000.0) as u32;
        }
        for _ in 0..count {
            let sample = Instant::now();
            for _ in 0..self.calls {
                self.call(defect, memory, asked.position, fast);
            }
            if asked.slowdown > 0.0 {
                spin(sample.elapsed().mul_f64(asked.slowdown));
            }
            elapsed.push(sample.elapsed().as_nanos() as f64);
        }
        let on_device = device::opened(defect).is_some();
        let found = device::refused(defect, asked, self.turns).filter(|_| on_device);
        if found.is_some() {
            elapsed.clear();
        }
        if asked.phase == Phase::Warm {
            self.cold = found.is_some();
        }
        let mut measured = Measured {
            case: asked.case.clone(),
            phase: asked.phase,
            block: asked.block,
            position: asked.position,
            calls: self.calls,
            sets: 1,
            timed: Nanos(elapsed.iter().sum()),
            elapsed_ns: elapsed,
            untimed: Nanos(0.0),
            wall: Nanos(begun.elapsed().as_nanos() as f64),
            modules: [5, 5],
            invalid: found.into_iter().collect(),
            enqueue_ns: vec![],
            telemetry: Telemetry::default(),
            kernels: vec![],
            retaken: 0,
            reuse: on_device.then_some(match asked.cache {
                Cache::Hot => Reuse::Same,
                Cache::Cold => Reuse::Rotated,
            }),
        };
        if on_device {
            device::account(defect, asked, self.turns, &mut measured);
        }
        if asked.phase == Phase::Turn { self.lie(defect, measured) } else { measured }
    }

    fn lie(&self, defect: &str, mut measured: Measured) -> Measured {
        let mut scale = |factor: f64| {
            measured.elapsed_ns.iter_mut().for_each(|time| *time *= factor);
            measured.timed.0 *= factor;
            measured.wall.0 *= factor;
        };
        match defect {
            "clock-patched" => scale(0.1),
            "clock-inflated" => scale(20.0),
            "zero-time" => scale(0.0),
            "jit-on-call-n" if self.turns == 4 => measured.modules = [5, 6],
            "wrong-block" if self.turns == 4 => measured.block += 1,
            "fewer-samples" if self.turns == 4 => {
                let left = measured.elapsed_ns.pop().unwrap_or(0.0);
                measured.timed.0 -= left;
            }
            _ => {}
        }
        measured
    }
}

/// Takes as long as a call that is not remembered, outside any turn: far more than what a busy machine adds to one.
pub(crate) fn dawdle() {
    spin(PAD * 25);
}

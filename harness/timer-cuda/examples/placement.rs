//! How much of a small call's time is decided by where the driver puts things: the same copy, measured anew with fresh
//! buffers and graphs, for several counts of instances of the graph.
//!
//! `cargo run --release -p proofhouse-timer-cuda --example placement`

#![allow(clippy::print_stdout, reason = "an example prints what it finds")]

use std::error::Error;

use proofhouse_schema::timing::{Cache, Launch};
use proofhouse_timer::{Device as _, Timer, TurnInputs, TurnOutcome, TurnRequest, Warm};
use proofhouse_timer_cuda::{Cell, CopyWork, Cuda, CudaDevice, Options, device_plan};

const FRESH: usize = 10;
const TURNS: usize = 6;

fn main() -> Result<(), Box<dyn Error>> {
    let cuda = Cuda::open(0)?;
    println!(
        "bytes cache instances  median_ns  spread_of_turns_%  spread_of_fresh_%  range_of_fresh_%"
    );
    for cache in [Cache::Cold, Cache::Hot] {
        for bytes in [8 << 10, 64 << 10, 256 << 10, 1 << 20] {
            for instances in [1, 4, 16] {
                let mut medians = Vec::new();
                let mut within = Vec::new();
                for _ in 0..FRESH {
                    let mut warm = warmed(&cuda, bytes, cache, instances)?;
                    let turns: Vec<f64> =
                        (0..TURNS).map(|_| turn(&mut warm)).collect::<Result<_, _>>()?;
                    within.push(spread(&turns));
                    medians.push(median(&turns));
                }
                let center = median(&medians);
                let range = medians.iter().copied().fold(f64::MIN, f64::max)
                    - medians.iter().copied().fold(f64::MAX, f64::min);
                println!(
                    "{bytes} {cache:?} {instances} {center:.1} {:.3} {:.3} {:.3}",
                    100.0 * median(&within),
                    100.0 * spread(&medians),
                    100.0 * range / center,
                );
            }
        }
    }
    Ok(())
}

fn warmed(
    cuda: &Cuda,
    bytes: u64,
    cache: Cache,
    instances: u32,
) -> Result<Warm<CudaDevice<CopyWork>>, Box<dyn Error>> {
    let options = Options { instances, ..Options::new(Launch::Graph) };
    let mut device = CudaDevice::new(cuda, CopyWork::new(cuda, bytes)?, options)?;
    let call_ns = device.guess_call_ns(false)?;
    let chosen = device_plan(&Cell {
        footprint_bytes: 2 * bytes,
        in_place: false,
        cache,
        launch: Launch::Graph,
        min_sample_ns: 1e6,
        call_ns,
        l2_bytes: device.properties().last_level_cache_bytes,
        free_bytes: device.free_bytes()?,
        reuse_bytes: 0,
    });
    device.work_mut().grow(&chosen.plan)?;
    Ok(Timer::new(device, &chosen.plan)?.calibrate()?.warm()?)
}

fn turn(warm: &mut Warm<CudaDevice<CopyWork>>) -> Result<f64, Box<dyn Error>> {
    let request = TurnRequest { inputs: TurnInputs::Rotating, samples: Some(5), slowdown: 0.0 };
    match warm.turn(request)? {
        TurnOutcome::Valid(turn) => {
            let times: Vec<f64> = turn.samples.iter().map(|sample| sample.per_call_ns()).collect();
            Ok(median(&times))
        }
        TurnOutcome::Invalid(turn) => Err(format!("{:?}", turn.reasons).into()),
    }
}

fn median(times: &[f64]) -> f64 {
    let mut sorted = times.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    if sorted.len().is_multiple_of(2) {
        f64::midpoint(sorted[middle - 1], sorted[middle])
    } else {
        sorted[middle]
    }
}

/// Standard deviation over mean.
fn spread(times: &[f64]) -> f64 {
    let count = times.len() as f64;
    let mean = times.iter().sum::<f64>() / count;
    let square = times.iter().map(|time| (time - mean).powi(2)).sum::<f64>() / (count - 1.0);
    square.sqrt() / mean
}

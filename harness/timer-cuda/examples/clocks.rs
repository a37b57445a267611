//! What a device's clocks, caches, driver and sensors do, in one run of about half a minute.
//!
//! `cargo run --release -p proofhouse-timer-cuda --example clocks`

#![allow(clippy::print_stdout, reason = "an example prints what it finds")]

use std::error::Error;
use std::time::Instant;

use nvml_wrapper::Nvml;
use nvml_wrapper::enum_wrappers::device::{Clock, TemperatureSensor};
use proofhouse_schema::timing::{Cache, Launch};
use proofhouse_timer::host::CallFailure;
use proofhouse_timer::{Device, MeasureError, Plan, Rotation, Timer, TurnInputs, TurnOutcome};
use proofhouse_timer_cuda::{
    CacheControl, Ceilings, CopyWork, Cuda, CudaDevice, CudaWork, NvmlSensors, Options,
    OwnedStream, Sensors, Spinner, Stream, TimedCopy, columns,
};

type Outcome = Result<(), Box<dyn Error>>;

const GRAPH: Options = Options::new(Launch::Graph);
const EAGER: Options = Options::new(Launch::Eager);

/// A part of the probe.
type Part = fn(&Cuda) -> Outcome;

fn main() -> Outcome {
    let begun = Instant::now();
    let cuda = Cuda::open(0)?;
    println!("{:#?}", cuda.facts());
    let parts: [(&str, Part); 11] = [
        ("events", events),
        ("clock of a multiprocessor", sm_clock),
        ("spin", spin),
        ("ceilings", ceilings),
        ("sensors", sensors),
        ("cold and hot", cold_and_hot),
        ("five and ten caches", five_and_ten),
        ("the same against itself", same_against_itself),
        ("planted slowdown", planted_slowdown),
        ("captures", captures),
        ("escapes", escapes),
    ];
    for (name, part) in parts {
        println!("\n== {name} ({:.1} s)", begun.elapsed().as_secs_f64());
        if let Err(error) = part(&cuda) {
            println!("FAILED: {}", chain(error.as_ref()));
        }
    }
    println!("\n== end ({:.1} s)", begun.elapsed().as_secs_f64());
    Ok(())
}

fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(inner) = cause {
        text = format!("{text}: {inner}");
        cause = inner.source();
    }
    text
}

fn sorted(mut values: Vec<f64>) -> Vec<f64> {
    values.sort_by(f64::total_cmp);
    values
}

fn median(values: &[f64]) -> f64 {
    sorted(values.to_vec())[values.len() / 2]
}

/// Least, median and largest.
fn spread(values: &[f64]) -> String {
    let sorted = sorted(values.to_vec());
    let at = |part: f64| sorted[((sorted.len() - 1) as f64 * part) as usize];
    format!(
        "min {:.1} p10 {:.1} median {:.1} p90 {:.1} max {:.1}",
        at(0.0),
        at(0.1),
        at(0.5),
        at(0.9),
        at(1.0)
    )
}

/// Microseconds of a host call, repeated.
fn host_us(count: usize, mut call: impl FnMut() -> Outcome) -> Result<String, Box<dyn Error>> {
    let mut times = Vec::new();
    for _ in 0..count {
        let from = Instant::now();
        call()?;
        times.push(from.elapsed().as_secs_f64() * 1e6);
    }
    Ok(spread(&times))
}

fn events(cuda: &Cuda) -> Outcome {
    let mut device = CudaDevice::new(cuda, CopyWork::new(cuda, 1 << 20)?, GRAPH)?;
    println!(
        "idle device-wide wait {:.0} ns, spin overhead {:.0} ns",
        device.idle_wait_ns(),
        device.spin_overhead_ns()
    );
    let pairs =
        |device: &mut CudaDevice<CopyWork>, lead: bool| -> Result<Vec<f64>, Box<dyn Error>> {
            let mut pairs = Vec::new();
            for _ in 0..200 {
                if lead {
                    device.lead_in()?;
                }
                let (from, to) = (device.stamp()?, device.stamp()?);
                pairs.push(device.elapsed_ns(from, to)?);
            }
            Ok(pairs)
        };
    println!("empty pair, device idle:  {}", spread(&pairs(&mut device, false)?));
    let busy = pairs(&mut device, true)?;
    println!("empty pair, device busy:  {}", spread(&busy));
    let mut distinct = sorted(busy);
    distinct.dedup();
    println!("distinct values: {:?}", &distinct[..distinct.len().min(24)]);
    println!(
        "loaded code, host us:     {}",
        host_us(20, || Ok(device.loaded_code().map(|_| ())?))?
    );
    println!("device-wide wait, us:     {}", host_us(200, || Ok(device.sync()?))?);
    let mut waits = Vec::new();
    for _ in 0..200 {
        device.lead_in()?;
        let stamp = device.stamp()?;
        device.elapsed_ns(stamp, stamp)?;
        let from = Instant::now();
        device.sync()?;
        waits.push(from.elapsed().as_secs_f64() * 1e6);
    }
    println!("wait after an event, us:  {}", spread(&waits));
    let calibrated = Timer::new(&mut device, &Plan::hot(1, 64, 64, 1))?.calibrate()?;
    println!("{:?}", calibrated.calibration());
    println!(
        "first evicting pass:      {}",
        host_us(1, || {
            device.evict(300 << 20)?;
            Ok(device.sync()?)
        })?
    );
    println!(
        "evicting pass, us:        {}",
        host_us(20, || {
            device.evict(300 << 20)?;
            Ok(device.sync()?)
        })?
    );
    println!("enqueueing one, us:       {}", host_us(20, || Ok(device.evict(300 << 20)?))?);
    Ok(device.sync()?)
}

fn sm_clock(cuda: &Cuda) -> Outcome {
    let device = CudaDevice::new(cuda, CopyWork::new(cuda, 1 << 20)?, GRAPH)?;
    for _ in 0..6 {
        let [cycles, ns, step] = device.count_cycles()?;
        println!(
            "{cycles} cycles in {ns} ns: {:.1} MHz, timer step {step} ns",
            cycles as f64 * 1e3 / ns as f64
        );
    }
    println!("one reading, host us: {}", host_us(50, || Ok(device.count_cycles().map(|_| ())?))?);
    Ok(())
}

fn spin(cuda: &Cuda) -> Outcome {
    let spinner = Spinner::new(cuda)?;
    let mut device = CudaDevice::new(cuda, CopyWork::new(cuda, 1 << 20)?, GRAPH)?;
    for wanted in [0_u64, 1_000, 2_000, 5_000, 10_000, 25_000, 50_000] {
        let mut times = Vec::new();
        for _ in 0..40 {
            device.lead_in()?;
            let from = device.stamp()?;
            spinner.spin(wanted, device.stream())?;
            let to = device.stamp()?;
            times.push(device.elapsed_ns(from, to)?);
        }
        println!("{wanted:6} ns: {}", spread(&times));
    }
    Ok(())
}

fn ceilings(cuda: &Cuda) -> Outcome {
    for _ in 0..2 {
        println!("{:?}", Ceilings::measure(cuda)?);
    }
    Ok(())
}

fn sensors(cuda: &Cuda) -> Outcome {
    let mut sensors = NvmlSensors::open(&cuda.facts().uuid)?;
    println!("{:?}", sensors.read());
    println!("{:?}", sensors.snapshot());
    println!(
        "reading, host us:  {}",
        host_us(50, || {
            sensors.read();
            Ok(())
        })?
    );
    println!(
        "snapshot, host us: {}",
        host_us(10, || {
            sensors.snapshot();
            Ok(())
        })?
    );
    let nvml = Nvml::builder().lib_path("libnvidia-ml.so.1".as_ref()).init()?;
    let device = nvml.device_by_uuid(cuda.facts().uuid.as_str())?;
    println!(
        "reasons, us:     {}",
        host_us(50, || Ok(device.current_throttle_reasons().map(|_| ())?))?
    );
    println!("power, us:       {}", host_us(50, || Ok(device.power_usage().map(|_| ())?))?);
    println!(
        "temperature, us: {}",
        host_us(50, || Ok(device.temperature(TemperatureSensor::Gpu).map(|_| ())?))?
    );
    println!(
        "energy, us:      {}",
        host_us(50, || Ok(device.total_energy_consumption().map(|_| ())?))?
    );
    println!("SM clock, us:    {}", host_us(50, || Ok(device.clock_info(Clock::SM).map(|_| ())?))?);
    println!(
        "processes, us:   {}",
        host_us(10, || Ok(device.running_compute_processes().map(|_| ())?))?
    );
    Ok(())
}

fn cold_and_hot(cuda: &Cuda) -> Outcome {
    for _ in 0..3 {
        let control = CacheControl::measure(cuda)?;
        println!(
            "1 MiB: cold {:.0} ns, hot {:.0} ns, ratio {:.2}, holds {}",
            control.cold_ns,
            control.hot_ns,
            control.ratio(),
            control.holds()
        );
    }
    for bytes in [16 << 10, 64 << 10, 256 << 10, 4 << 20, 16 << 20] {
        for cache in [Cache::Cold, Cache::Hot] {
            let mut copy = TimedCopy::warm(cuda, bytes, cache, Launch::Graph, 0)?;
            let times = copy.turn(0.0)?;
            println!(
                "{:6} KiB {cache:?} {:?}: {} ns; guessed {:.0} ns, sets {}, calls {}",
                bytes >> 10,
                copy.chosen.reuse,
                spread(&times),
                copy.guessed_ns,
                copy.chosen.plan.sets,
                copy.warm.calls()
            );
        }
        let mut eager = TimedCopy::warm(cuda, bytes, Cache::Hot, Launch::Eager, 0)?;
        println!(
            "{:6} KiB Hot eager: {} ns; guessed {:.0} ns, calls {}",
            bytes >> 10,
            spread(&eager.turn(0.0)?),
            eager.guessed_ns,
            eager.warm.calls()
        );
    }
    Ok(())
}

fn five_and_ten(cuda: &Cuda) -> Outcome {
    let l2 = cuda.facts().l2_bytes;
    for bytes in [32 << 10, 1 << 20, 8 << 20] {
        for caches in [5, 10, 20, 5, 10, 20] {
            let mut copy = TimedCopy::warm(cuda, bytes, Cache::Cold, Launch::Graph, caches * l2)?;
            let times = spread(&copy.turn(0.0)?);
            let (reuse, sets) = (copy.chosen.reuse, copy.chosen.plan.sets);
            println!("{:5} KiB {caches:2} caches {reuse:?}, {sets} sets: {times} ns", bytes >> 10);
        }
    }
    Ok(())
}

fn same_against_itself(cuda: &Cuda) -> Outcome {
    for (bytes, cache) in [
        (16 << 10, Cache::Cold),
        (16 << 10, Cache::Hot),
        (1 << 20, Cache::Cold),
        (8 << 20, Cache::Cold),
    ] {
        let mut medians = Vec::new();
        for _ in 0..8 {
            let mut copy = TimedCopy::warm(cuda, bytes, cache, Launch::Graph, 0)?;
            for _ in 0..2 {
                medians.push(median(&copy.turn(0.0)?));
            }
        }
        let sorted = sorted(medians.clone());
        let range = (sorted[sorted.len() - 1] / sorted[0] - 1.0) * 100.0;
        println!("{:5} KiB {cache:?}: range {range:.2} %, medians {:.0?}", bytes >> 10, medians);
    }
    Ok(())
}

fn planted_slowdown(cuda: &Cuda) -> Outcome {
    for (bytes, cache) in [(1 << 20, Cache::Cold), (16 << 10, Cache::Hot)] {
        let mut copy = TimedCopy::warm(cuda, bytes, cache, Launch::Graph, 0)?;
        for planted in [0.01, 0.02, 0.05, 0.10] {
            let mut ratios = Vec::new();
            for _ in 0..6 {
                let plain = median(&copy.turn(0.0)?);
                let slowed = median(&copy.turn(planted)?);
                ratios.push((slowed / plain - 1.0) * 100.0);
            }
            println!(
                "{:5} KiB planted {:.0} %: found {} %",
                bytes >> 10,
                planted * 100.0,
                ratios.iter().map(|r| format!("{r:.2}")).collect::<Vec<_>>().join(" ")
            );
        }
        let device = copy.warm.device_mut();
        println!("exposed regions {}", device.exposed_regions());
        println!("{:?}", columns(device.last_rows(5)));
        println!("{:?}", device.snapshot());
    }
    Ok(())
}

fn captures(cuda: &Cuda) -> Outcome {
    for calls in [1_u32, 64, 604, 2_048, 8_192, 16_384] {
        let mut device = CudaDevice::new(cuda, CopyWork::new(cuda, 4096)?, GRAPH)?;
        device.call(0)?;
        device.sync()?;
        let rotation = Rotation { first_set: 0, cycle_start: 0, sets: 1, calls };
        let from = Instant::now();
        let fault = device.prepare(rotation)?;
        device.sync()?;
        let prepared = from.elapsed().as_secs_f64() * 1e6;
        let mut enqueued = Vec::new();
        for _ in 0..8 {
            device.lead_in()?;
            device.stamp()?;
            let from = Instant::now();
            device.run_calls(rotation)?;
            enqueued.push(from.elapsed().as_secs_f64() * 1e6);
            device.sync()?;
        }
        println!(
            "{calls:5} calls: ready after {prepared:.0} us, launch us {}, exposed {}, fault {fault:?}",
            spread(&enqueued),
            device.exposed_regions()
        );
        if let Some(witness) = device.witness() {
            println!("      {}", serde_json::to_string(witness)?);
        }
    }
    Ok(())
}

/// A copy whose rest runs on another stream.
struct Escaping {
    copy: Option<CopyWork>,
    spinner: Spinner,
    elsewhere: OwnedStream,
    ns: u64,
}

impl CudaWork for Escaping {
    fn enqueue(&mut self, set: u32, stream: Stream) -> Result<(), CallFailure> {
        if let Some(copy) = &mut self.copy {
            copy.enqueue(set, stream)?;
        }
        let spun = self.spinner.spin(self.ns, self.elsewhere.handle());
        spun.map_err(|error| CallFailure { code: error.code, message: error.to_string() })
    }
}

fn escapes(cuda: &Cuda) -> Outcome {
    for (what, options, with_copy, ns) in [
        ("eager, half elsewhere", EAGER, true, 50_000),
        ("graph, half elsewhere", GRAPH, true, 50_000),
        ("graph, all elsewhere", GRAPH, false, 50_000),
        ("eager, honest", EAGER, true, 0),
    ] {
        let copy = if with_copy { Some(CopyWork::new(cuda, 1 << 20)?) } else { None };
        let work =
            Escaping { copy, spinner: Spinner::new(cuda)?, elsewhere: OwnedStream::new(cuda)?, ns };
        let device = CudaDevice::new(cuda, work, options)?;
        let plan = Plan::hot(1, 2 << 20, 64, 5);
        let ended = Timer::new(device, &plan)?
            .calibrate()?
            .warm()
            .and_then(|mut w| w.turn(TurnInputs::Rotating));
        match ended {
            Ok(TurnOutcome::Valid(turn)) => {
                let sync: Vec<f64> =
                    turn.samples.iter().map(|sample| sample.sync_ns as f64).collect();
                println!("{what}: VALID, sync ns {}", spread(&sync));
            }
            Ok(TurnOutcome::Invalid(turn)) => println!("{what}: invalid {:?}", turn.reasons),
            Err(MeasureError::Clock { source, .. }) => {
                println!("{what}: {} ({source})", source.code())
            }
            Err(error) => println!("{what}: {}", chain(&error)),
        }
    }
    Ok(())
}

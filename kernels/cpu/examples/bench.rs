//! Times the operators on one thread: against a plain Rust loop, and against the machine's copy bandwidth.
//!
//! `cargo run --release -p proofhouse-cpu --example bench [--csv]`
#![allow(clippy::print_stdout)] // a table is what this program is for
#![allow(clippy::unwrap_used)] // shapes and names are constants

use std::hint::black_box;
use std::time::{Duration, Instant};

use proofhouse_contract::{
    AlignedBytes, Call, Dtype, Mode, OwnedTensor, ParamValue, TensorLayout, TensorMut, TensorView,
    rounding,
};
use proofhouse_cpu::{Cpu, dispatch_name};

/// Time spent on each cell.
const BUDGET: Duration = Duration::from_millis(60);

/// Lower quartile of the time of one call, in nanoseconds, over samples of several calls each.
fn quartile_ns(mut call: impl FnMut()) -> f64 {
    call();
    let start = Instant::now();
    call();
    let once = start.elapsed().max(Duration::from_nanos(50));
    let calls = (Duration::from_micros(200).as_nanos() / once.as_nanos()).clamp(1, 4096) as u32;
    let mut samples = Vec::new();
    let begin = Instant::now();
    while begin.elapsed() < BUDGET || samples.len() < 5 {
        let start = Instant::now();
        for _ in 0..calls {
            call();
        }
        samples.push(start.elapsed().as_nanos() as f64 / f64::from(calls));
    }
    samples.sort_by(f64::total_cmp);
    samples[samples.len() / 4]
}

/// Normal-like values by summing uniform ones; scaled by `spread`.
fn value(index: u64, spread: f64) -> f64 {
    let mut word = index.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x1234_5678_9abc_def1;
    let mut sum = 0.0;
    for _ in 0..4 {
        word ^= word >> 29;
        word = word.wrapping_mul(0xbf58_476d_1ce4_e5b9);
        sum += (word >> 40) as f64 / (1u64 << 24) as f64 - 0.5;
    }
    sum * spread
}

fn make(call: &Call, written: bool) -> Vec<OwnedTensor> {
    call.tensors()
        .filter(|spec| spec.role.is_written() == written)
        .map(|spec| {
            let layout =
                TensorLayout::contiguous(call.dtype_of(spec), &call.shape_of(spec).unwrap());
            let storage = AlignedBytes::new(layout.required_bytes().unwrap() as usize, 0);
            let mut tensor = OwnedTensor { name: spec.name, layout, storage };
            fill(&mut tensor);
            tensor
        })
        .collect()
}

fn fill(tensor: &mut OwnedTensor) {
    let (dtype, name) = (tensor.layout.dtype, tensor.name);
    let spread = if name == "logits" { 8.0 } else { 3.0 };
    let size = dtype.size();
    for (index, raw) in tensor.storage.as_mut_slice().chunks_exact_mut(size).enumerate() {
        let index = index as u64;
        let bits = match name {
            "selected" => index * 17,
            "p" => rounding::encode(dtype, 0.05),
            "w" => rounding::encode(dtype, 1.0 + value(index, 0.1)),
            _ => rounding::encode(dtype, value(index, spread)),
        };
        raw.copy_from_slice(&bits.to_le_bytes()[..size]);
    }
}

/// Reads a block, as an exclusive or of words.
fn read(bytes: &[u8]) -> u64 {
    let mut sums = [0u64; 32];
    for block in bytes.chunks_exact(256) {
        for (sum, word) in sums.iter_mut().zip(block.as_chunks::<8>().0) {
            *sum ^= u64::from_le_bytes(*word);
        }
    }
    sums.iter().fold(0, |all, sum| all ^ sum)
}

/// Time to read and write as many bytes as a call does, on buffers of the same sizes: its floor, in nanoseconds.
///
/// Inputs are read, outputs filled, in-place tensors read and then filled, one after the other.
fn floor_ns(call: &Call) -> f64 {
    let mut tensors: Vec<(usize, u64, u64)> = Vec::new();
    for spec in call.tensors() {
        let layout = TensorLayout::contiguous(call.dtype_of(spec), &call.shape_of(spec).unwrap());
        tensors.push((layout.required_bytes().unwrap() as usize, spec.reads, spec.writes));
    }
    let mut blocks: Vec<Vec<u8>> = tensors.iter().map(|(bytes, ..)| vec![1u8; *bytes]).collect();
    quartile_ns(|| {
        for (block, (_, reads, writes)) in blocks.iter_mut().zip(&tensors) {
            for _ in 0..*reads {
                black_box(read(black_box(block)));
            }
            for _ in 0..*writes {
                black_box(&mut *block).fill(3);
            }
        }
    })
}

fn time_call(call: &Call) -> f64 {
    let inputs = make(call, false);
    let mut outputs = make(call, true);
    let inputs: Vec<TensorView<'_>> = inputs.iter().map(OwnedTensor::view).collect();
    let mut outputs: Vec<TensorMut<'_>> = outputs.iter_mut().map(OwnedTensor::view_mut).collect();
    let cpu = Cpu::default();
    quartile_ns(|| cpu.run(black_box(call), Mode::Unchecked, &inputs, &mut outputs).unwrap())
}

/// The operator as one would first write it in Rust, on F32 (what an optimizing compiler makes of it).
fn plain_ns(name: &str, rows: usize, width: usize) -> Option<f64> {
    let x: Vec<f32> = (0..rows * width * 2).map(|index| value(index as u64, 3.0) as f32).collect();
    let w = vec![1.0f32; width];
    let mut y = vec![0f32; rows * width];
    let time = match name {
        "rms_norm" => quartile_ns(|| {
            for row in 0..rows {
                let (x, y) = (&x[row * width..][..width], &mut y[row * width..][..width]);
                let mean = x.iter().map(|v| v * v).sum::<f32>() / width as f32;
                let inverse = 1.0 / (mean + 1e-6).sqrt();
                for ((y, x), w) in y.iter_mut().zip(x).zip(&w) {
                    *y = x * inverse * w;
                }
            }
            black_box(&mut y);
        }),
        "silu_and_mul" => quartile_ns(|| {
            for row in 0..rows {
                let (gate, up) = x[row * 2 * width..][..2 * width].split_at(width);
                for ((y, g), u) in y[row * width..][..width].iter_mut().zip(gate).zip(up) {
                    *y = g / (1.0 + (-g).exp()) * u;
                }
            }
            black_box(&mut y);
        }),
        "greedy_logprob" => quartile_ns(|| {
            for row in 0..rows {
                let x = &x[row * width..][..width];
                let (best, max) =
                    x.iter().enumerate().fold((0, f32::NEG_INFINITY), |best, (place, v)| {
                        if *v > best.1 { (place, *v) } else { best }
                    });
                let sum: f32 = x.iter().map(|v| (v - max).exp()).sum();
                black_box((best, -sum.ln()));
            }
        }),
        _ => return None,
    };
    Some(time)
}

/// Bandwidth of copying a block far larger than the second-level cache, in bytes read and written per ns.
fn copy_bandwidth(bytes: usize) -> f64 {
    let from = vec![1u8; bytes];
    let mut to = vec![0u8; bytes];
    let ns = quartile_ns(|| black_box(&mut to).copy_from_slice(black_box(&from)));
    2.0 * bytes as f64 / ns
}

fn cells() -> Vec<Call> {
    let mut calls = Vec::new();
    for dtype in [Dtype::F32, Dtype::F16, Dtype::BF16] {
        let mut add = |name: &str, dims: &[(&str, u64)], params: &[(&str, ParamValue)]| {
            calls.push(Call::new(name, dtype, dims, params).unwrap());
        };
        for name in ["rms_norm", "add_rms_norm", "rms_norm_dynamic_fp8"] {
            for rows in [1, 8, 32, 128, 1024] {
                add(name, &[("rows", rows), ("hidden", 4096)], &[]);
            }
        }
        for rows in [1, 8, 32, 128, 1024] {
            add("silu_and_mul", &[("rows", rows), ("width", 14336)], &[]);
        }
        for name in ["greedy_logprob", "selected_logprob_rank", "topk_logprobs", "min_p"] {
            for rows in [1, 8, 32] {
                let k = [("k", ParamValue::Int(20))];
                let params: &[_] = if name == "topk_logprobs" { &k } else { &[] };
                add(name, &[("rows", rows), ("vocab", 151_936)], params);
            }
        }
    }
    calls
}

fn main() {
    let csv = std::env::args().any(|argument| argument == "--csv");
    let wanted: Vec<String> =
        std::env::args().skip(1).filter(|argument| !argument.starts_with("--")).collect();
    // One thread: comparisons are per core.
    rayon::ThreadPoolBuilder::new().num_threads(1).build_global().unwrap();
    let copy = copy_bandwidth(64 << 20);
    if csv {
        println!("# {} copy {copy:.2} GB/s", dispatch_name());
    } else {
        println!("path {}; copying 64 MiB: {copy:.1} GB/s read and written\n", dispatch_name());
        println!("| operator | shape | dtype | us | GB/s | floor us | x floor | plain loop us |");
        println!("|---|---|---|---|---|---|---|---|");
    }
    for call in cells() {
        let name = call.operator.name;
        if !wanted.is_empty() && !wanted.iter().any(|part| name.contains(part.as_str())) {
            continue;
        }
        let ns = time_call(&call);
        let traffic = call.traffic().unwrap();
        let rate = (traffic.read_bytes + traffic.written_bytes) as f64 / ns;
        let rows = call.dims["rows"];
        let width = *call.dims.iter().find(|(name, _)| *name != "rows").unwrap().1;
        if csv {
            println!("{name},{rows},{width},{},{ns:.0},{rate:.2}", call.dtype);
            continue;
        }
        let plain = (call.dtype == Dtype::F32)
            .then(|| plain_ns(name, rows as usize, width as usize))
            .flatten();
        let plain = plain.map_or_else(|| "-".to_owned(), |ns| format!("{:.1}", ns / 1e3));
        let floor = floor_ns(&call);
        println!(
            "| {name} | {rows} x {width} | {} | {:.1} | {rate:.1} | {:.1} | {:.2} | {plain} |",
            call.dtype,
            ns / 1e3,
            floor / 1e3,
            ns / floor
        );
    }
}

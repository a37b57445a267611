//! Times: graphs of calls that rotate over sets of tensors, each tuning beside the others.
#![allow(unsafe_code, reason = "places tensors in one arena")]

use proofhouse_contract::{
    Call, CallPlan, Dtype, Layout, ParamValue, Role, TensorPlan, find_operator, inputs::Stream,
    rounding::encode,
};
use proofhouse_cuda::{
    Build, ChunkShape, DeviceBuffer, DeviceTensor, GateShape, OwnedStream, RowShape, Runtime,
    Tuning,
};
use serde_json::{Value, json};

use crate::graph::{self, Graph};

/// Bytes that all sets of a measurement lie in.
const ARENA: usize = 6 << 30;
/// Bytes of distinct values.
const PATTERN: usize = 64 << 20;
/// Calls in a graph where the sets are fewer.
const CALLS: usize = 40;

/// A measurement's call and the tunings that it is made with.
struct Cell {
    call: Call,
    tunings: Vec<Tuning>,
}

fn call(operator: &str, dtype: Dtype, rows: u64, width: u64, add: bool) -> Call {
    let spec = find_operator(operator).unwrap();
    let params = [("add-residual", ParamValue::Bool(true))];
    let dims = [("rows", rows), (spec.dims[1].name, width)];
    Call::new(operator, dtype, &dims, if add { &params } else { &[] }).unwrap()
}

fn row_tunings(rows: u64, hidden: u64, dtype: Dtype) -> Vec<Tuning> {
    let vectors_of_row = hidden.div_ceil(16 / dtype.size() as u64) as u32;
    let mut tunings = Vec::new();
    if vectors_of_row <= 32 {
        for threads_of_block in [64, 128, 256, 512] {
            let threads = vectors_of_row.next_power_of_two();
            for looped in [None, Some(2048 / threads_of_block)] {
                tunings.push(RowShape {
                    threads,
                    vectors: 1,
                    rows: threads_of_block / threads,
                    looped,
                    streaming: false,
                });
            }
        }
        return tunings.into_iter().map(Tuning::Rows).collect();
    }
    for vectors in [1, 2, 4] {
        let threads = vectors_of_row.div_ceil(vectors).next_multiple_of(32);
        if threads > 1024 {
            continue;
        }
        let plain = RowShape { threads, vectors, rows: 1, looped: None, streaming: false };
        tunings.push(plain);
        if threads == 32 {
            tunings.push(RowShape { rows: 4, ..plain });
        }
        if rows >= 1024 && threads > 32 {
            for parts in [4, 2, 1] {
                let looped = Some((2048 / threads / parts).max(1));
                tunings.push(RowShape { looped, ..plain });
            }
            if rows >= 8192 {
                tunings.push(RowShape { streaming: true, ..plain });
                tunings.push(RowShape {
                    looped: Some((1024 / threads).max(1)),
                    streaming: true,
                    ..plain
                });
            }
        }
    }
    tunings.dedup();
    tunings.into_iter().map(Tuning::Rows).collect()
}

fn gate_tunings(rows: u64) -> Vec<Tuning> {
    let mut tunings = Vec::new();
    let threads: &[u32] = if rows >= 128 { &[64, 128, 256, 512] } else { &[32, 64, 128, 256] };
    let vectors: &[u32] = if rows >= 128 { &[1, 2, 4] } else { &[1, 2] };
    for &threads in threads {
        for &vectors in vectors {
            for streaming in [false, true] {
                if !streaming || rows >= 1024 {
                    tunings.push(Tuning::Gate(GateShape { threads, vectors, rows: 1, streaming }));
                }
            }
        }
    }
    tunings
}

fn chunk_tunings() -> Vec<Tuning> {
    let mut tunings = Vec::new();
    for values in [8, 16, 32] {
        for warps in [1, 2, 4, 8, 16] {
            tunings.push(Tuning::Chunks(ChunkShape { values, warps }));
        }
    }
    tunings
}

fn cells() -> Vec<Cell> {
    let mut cells = Vec::new();
    let norms = [
        ("rms_norm", false),
        ("add_rms_norm", false),
        ("rms_norm_dynamic_fp8", false),
        ("rms_norm_dynamic_fp8", true),
    ];
    for (operator, add) in norms {
        let mut shapes: Vec<_> = [1, 8, 32, 128, 1024, 8192].map(|rows| (rows, 4096)).to_vec();
        if !add {
            shapes.extend([
                (1, 5120),
                (1, 8192),
                (8192, 8192),
                (8192, 2048),
                (65_536, 128),
                (32, 128),
            ]);
        }
        for (rows, hidden) in shapes {
            let tunings = row_tunings(rows, hidden, Dtype::BF16);
            cells.push(Cell { call: call(operator, Dtype::BF16, rows, hidden, add), tunings });
        }
    }
    for rows in [1, 8, 32, 128, 1024, 8192] {
        let tunings = gate_tunings(rows);
        cells.push(Cell { call: call("silu_and_mul", Dtype::BF16, rows, 14_336, false), tunings });
    }
    for operator in ["greedy_logprob", "selected_logprob_rank"] {
        for (dtype, all) in [(Dtype::F32, &[1, 8, 32, 128][..]), (Dtype::BF16, &[1, 128])] {
            for &rows in all {
                let tunings = chunk_tunings();
                cells.push(Cell { call: call(operator, dtype, rows, 151_936, false), tunings });
            }
        }
    }
    cells
}

/// Every kernel that is timed, for compiling ahead.
pub fn builds() -> Vec<Build> {
    let mut builds = Vec::new();
    for Cell { call, tunings } in cells() {
        for tuning in tunings.into_iter().map(Some).chain([None]) {
            builds.push(Build { call: call.clone(), tuning, aligned: true });
        }
    }
    builds
}

/// Memory whose front holds values of a dtype, repeated.
struct Arena {
    buffer: DeviceBuffer,
    filled: Option<(Dtype, bool)>,
}

impl Arena {
    /// Fills the arena with finite values of a dtype, four times as wide for logits.
    fn fill(&mut self, dtype: Dtype, logits: bool, stream: &OwnedStream) {
        if self.filled == Some((dtype, logits)) {
            return;
        }
        let values = Stream::new(1, "times");
        let spread = if logits { 4.0 } else { 1.0 };
        let size = dtype.size();
        let mut host = vec![0u8; PATTERN];
        let part = PATTERN / 16;
        std::thread::scope(|scope| {
            for (number, piece) in host.chunks_mut(part).enumerate() {
                scope.spawn(move || {
                    let first = (number * part / size) as u64;
                    for (index, raw) in (first..).zip(piece.chunks_exact_mut(size)) {
                        let bits = encode(dtype, spread * values.normal(index));
                        raw.copy_from_slice(&bits.to_le_bytes()[..size]);
                    }
                });
            }
        });
        self.buffer.upload(&host, stream.handle()).unwrap();
        let address = self.buffer.address();
        for at in (PATTERN..self.buffer.len()).step_by(PATTERN) {
            graph::copy(address + at as u64, address, PATTERN, stream.handle());
        }
        stream.synchronize().unwrap();
        self.filled = Some((dtype, logits));
    }

    /// Sets of a call's tensors, one behind the other, as many as reach `bytes`, or one for each call.
    fn sets(&self, call: &Call, bytes: u64) -> Vec<Vec<DeviceTensor<'_>>> {
        let plan = call.plan(Layout::Contiguous).unwrap();
        let (mut sets, mut at) = (Vec::new(), self.buffer.address());
        let end = at + self.buffer.len() as u64;
        while sets.len() < CALLS && (sets.is_empty() || at - self.buffer.address() < bytes) {
            let mut set = Vec::new();
            for tensor in &plan.tensors {
                // SAFETY: the region lies in the arena, which outlives the set.
                set.push(unsafe {
                    DeviceTensor::from_raw(at, tensor.bytes, tensor.layout.clone())
                });
                at = (at + tensor.bytes).next_multiple_of(256);
            }
            assert!(at <= end, "{call:?} does not fit the arena");
            sets.push(set);
        }
        sets
    }
}

fn plan_of(call: &Call, set: &[DeviceTensor<'_>]) -> CallPlan {
    let tensors = call
        .tensors()
        .zip(set)
        .map(|(spec, tensor)| TensorPlan {
            name: spec.name,
            role: spec.role,
            layout: tensor.layout().clone(),
            address: tensor.address(),
            bytes: tensor.bytes(),
        })
        .collect();
    CallPlan { call: call.clone(), tensors }
}

/// Microseconds of one call, over sets that a graph goes through in turn.
fn time(
    runtime: &Runtime,
    stream: &OwnedStream,
    call: &Call,
    tuning: Option<Tuning>,
    sets: &[Vec<DeviceTensor<'_>>],
) -> f64 {
    let plan = plan_of(call, &sets[0]);
    let prepared = match tuning {
        Some(tuning) => runtime.prepare_tuned(&plan, tuning),
        None => runtime.prepare(&plan),
    }
    .unwrap_or_else(|error| panic!("{error}"));
    let launches: Vec<_> = sets.iter().map(|set| prepared.bind(set).unwrap()).collect();
    let calls = CALLS.max(launches.len()).next_multiple_of(launches.len());
    let graph = Graph::capture(stream, |handle| {
        for at in 0..calls {
            launches[at % launches.len()].enqueue(handle).unwrap();
        }
    });
    let replays = if sets.len() < 8 { 9 } else { 15 };
    graph.median(stream, replays) / calls as f64
}

/// Bytes per second, read and written, of a large copy.
fn copy_ceiling(arena: &Arena, stream: &OwnedStream) -> f64 {
    let bytes = 1usize << 30;
    let address = arena.buffer.address();
    let graph = Graph::capture(stream, |handle| {
        for at in 0..4 {
            graph::copy(
                address + ((at % 2) * 2 + 1) * bytes as u64,
                address + (at % 2) * 2 * bytes as u64,
                bytes,
                handle,
            );
        }
    });
    2.0 * 4.0 * bytes as f64 / (graph.median(stream, 9) * 1e-6)
}

fn name(tuning: Tuning) -> String {
    match tuning {
        Tuning::Rows(RowShape { threads, vectors, rows, looped, streaming }) => {
            let looped = looped.map_or(String::new(), |blocks| format!(" loop{blocks}"));
            let streaming = if streaming { " cs" } else { "" };
            format!("t{threads}k{vectors}r{rows}{looped}{streaming}")
        }
        Tuning::Gate(GateShape { threads, vectors, rows, streaming }) => {
            format!("t{threads}k{vectors}r{rows}{}", if streaming { " cs" } else { "" })
        }
        Tuning::Chunks(ChunkShape { values, warps }) => format!("v{values}w{warps}"),
    }
}

/// Times every cell with every tuning.
pub fn run(runtime: &Runtime) -> Value {
    let stream = runtime.create_stream().unwrap();
    let mut arena = Arena { buffer: runtime.allocate(ARENA).unwrap(), filled: None };
    arena.fill(Dtype::BF16, false, &stream);
    let ceiling = copy_ceiling(&arena, &stream);
    println!("copy {:.3} TB/s, read and written", ceiling * 1e-12);
    let l2 = runtime.device().l2_bytes;
    let mut records = Vec::new();
    for Cell { call, tunings } in cells() {
        let logits = call.operator.dims[1].name == "vocab";
        arena.fill(call.dtype, logits, &stream);
        let traffic = call.traffic().unwrap();
        let bytes = traffic.read_bytes + traffic.written_bytes;
        let in_place = call.tensors().any(|spec| spec.role == Role::InOut);
        let sets = arena.sets(&call, 5 * l2);
        let mut times: Vec<(String, f64)> = tunings
            .iter()
            .map(|tuning| (name(*tuning), time(runtime, &stream, &call, Some(*tuning), &sets)))
            .collect();
        let chosen = time(runtime, &stream, &call, None, &sets);
        let default = name(runtime.tuning(&call).unwrap());
        times.sort_by(|left, right| left.1.total_cmp(&right.1));
        let floor = bytes as f64 / ceiling * 1e6;
        let (rows, width) =
            (call.dim("rows").unwrap(), call.dim(call.operator.dims[1].name).unwrap());
        let add = if call.params.is_empty() { "" } else { "+add" };
        let best: Vec<_> =
            times.iter().take(4).map(|(name, us)| format!("{name} {us:.2}")).collect();
        let worst = times.last().map_or(0.0, |(_, us)| *us);
        println!(
            "{}{add} {} {rows}x{width}: {chosen:.2} us [{default}] {:.0}% | {} .. {worst:.2}",
            call.operator.name,
            call.dtype,
            100.0 * floor / chosen,
            best.join(", "),
        );
        records.push(json!({
            "operator": call.operator.name, "add": !add.is_empty(), "dtype": call.dtype.name(),
            "rows": rows, "width": width, "sets": sets.len(), "in_place": in_place,
            "floor_us": floor, "default": default, "default_us": chosen,
            "tunings": times.iter().map(|(name, us)| json!({"tuning": name, "us": us})).collect::<Vec<_>>(),
        }));
        if call.operator.name == "rms_norm" || in_place {
            // Values that were normalized again and again are refreshed.
            arena.filled = None;
        }
    }
    json!({"copy_bytes_per_s": ceiling, "cells": records})
}

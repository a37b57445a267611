//! Times: graphs of calls that rotate over sets of tensors, each tuning beside the others.
#![allow(unsafe_code, reason = "places tensors in one arena")]

use proofhouse_contract::{
    Call, CallPlan, Dtype, Layout, ParamValue, Role, TensorPlan, find_operator, inputs::Stream,
    rounding::encode,
};
use proofhouse_cuda::{
    Build, ChunkShape, DeviceBuffer, DeviceTensor, GateShape, Overlap, OwnedStream, RowShape,
    Runtime, Streaming, Target, Tuning, default_tuning,
};
use serde_json::{Value, json};

use crate::chains::with_overlap;
use crate::graph::{self, Graph};

/// Bytes that all sets of a measurement lie in.
const ARENA: usize = 6 << 30;
/// Bytes of distinct values.
const PATTERN: usize = 64 << 20;
/// Calls in a graph where the sets are fewer, by the calls' size.
const fn least_calls(bytes: u64) -> usize {
    if bytes < 4 << 20 { 1000 } else { 40 }
}
/// Rows up to which a call is timed hot, too, and with every overlap.
const FEW_ROWS: u64 = 32;
const OVERLAPS: [Overlap; 3] = [Overlap::Off, Overlap::Ordered, Overlap::Early];

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
    let few = rows <= FEW_ROWS;
    let plain = RowShape {
        threads: 32,
        vectors: 1,
        rows: 1,
        looped: None,
        gains_ahead: true,
        streaming: Streaming::Off,
        overlap: Overlap::Ordered,
    };
    let mut shapes = Vec::new();
    if vectors_of_row <= 32 {
        let threads = vectors_of_row.next_power_of_two();
        for threads_of_block in [64, 128, 256] {
            let shape = RowShape { threads, rows: threads_of_block / threads, ..plain };
            shapes.push(shape);
            if !few {
                shapes.push(RowShape { looped: Some(2048 / threads_of_block), ..shape });
                shapes.push(RowShape { streaming: Streaming::Stores, ..shape });
            }
        }
        return shapes.into_iter().map(Tuning::Rows).collect();
    }
    for vectors in [1, 2, 4, 8, 16] {
        let threads = vectors_of_row.div_ceil(vectors).next_multiple_of(32);
        if threads > 1024 || threads * vectors >= 2 * vectors_of_row || few && vectors > 4 {
            continue;
        }
        let rows_of_block = if threads == 32 { 4 } else { 1 };
        let shape = RowShape { threads, vectors, rows: rows_of_block, ..plain };
        for gains_ahead in [true, false] {
            let shape = RowShape { gains_ahead, ..shape };
            if vectors > 4 && gains_ahead || vectors == 1 && !gains_ahead {
                continue;
            }
            if few && !gains_ahead {
                continue;
            }
            shapes.push(shape);
            if rows >= 1024 && threads > 32 && vectors == 2 && !gains_ahead {
                shapes.push(RowShape { looped: Some((1024 / threads).max(1)), ..shape });
            }
            if rows >= 8192 {
                shapes.push(RowShape { streaming: Streaming::Stores, ..shape });
                shapes.push(RowShape { streaming: Streaming::All, ..shape });
            }
        }
    }
    shapes.into_iter().map(Tuning::Rows).collect()
}

fn gate_tunings(rows: u64) -> Vec<Tuning> {
    let mut tunings = Vec::new();
    let threads: &[u32] = if rows >= 1024 { &[64, 128, 256] } else { &[32, 64, 128, 256] };
    for &threads in threads {
        for vectors in if rows >= 128 { vec![1, 2] } else { vec![1] } {
            for streaming in [Streaming::Off, Streaming::Stores, Streaming::All] {
                if streaming == Streaming::Off || rows >= 1024 {
                    let overlap = Overlap::Ordered;
                    let shape = GateShape { threads, vectors, rows: 1, streaming, overlap };
                    tunings.push(Tuning::Gate(shape));
                }
            }
        }
    }
    tunings
}

fn chunk_tunings() -> Vec<Tuning> {
    let shape =
        |values, warps| Tuning::Chunks(ChunkShape { values, warps, overlap: Overlap::Ordered });
    vec![shape(32, 1), shape(32, 2), shape(32, 4), shape(32, 8), shape(16, 4), shape(16, 8)]
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
            shapes.extend([(1, 8192), (8192, 8192), (8192, 2048), (65_536, 128), (32, 128)]);
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

/// All tunings that a cell is timed with.
fn tunings_of(cell: &Cell, default: Tuning, target: Target) -> Vec<Tuning> {
    let few = cell.call.dim("rows").unwrap() <= FEW_ROWS;
    let mut all = Vec::new();
    for tuning in &cell.tunings {
        let more = few || with_overlap(*tuning, default.overlap()) == default;
        let overlaps: &[Overlap] = match more {
            _ if !target.arch.has_dependent_launch() => &[Overlap::Off],
            true => &OVERLAPS,
            false => &[Overlap::Ordered],
        };
        all.extend(overlaps.iter().map(|overlap| with_overlap(*tuning, *overlap)));
    }
    all
}

/// Every kernel that is timed, for compiling ahead.
pub fn builds(target: Target) -> Vec<Build> {
    let mut builds = Vec::new();
    for cell in cells() {
        let default = default_tuning(&cell.call, target).unwrap();
        let tunings = tunings_of(&cell, default, target);
        let overlaps = OVERLAPS.map(|overlap| with_overlap(default, overlap));
        for tuning in tunings.into_iter().chain(overlaps) {
            if tuning.overlap() == Overlap::Off || target.arch.has_dependent_launch() {
                let call = cell.call.clone();
                builds.push(Build { call, tuning: Some(tuning), aligned: true });
            }
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

    /// Sets of a call's tensors, one behind the other, as many as reach `bytes`.
    fn sets(&self, call: &Call, bytes: u64) -> Vec<Vec<DeviceTensor<'_>>> {
        let plan = call.plan(Layout::Contiguous).unwrap();
        let (mut sets, mut at) = (Vec::new(), self.buffer.address());
        let end = at + self.buffer.len() as u64;
        while sets.is_empty() || at - self.buffer.address() < bytes {
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

/// A call's plan with these operands.
pub fn plan_of(call: &Call, set: &[DeviceTensor<'_>]) -> CallPlan {
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
    tuning: Tuning,
    sets: &[Vec<DeviceTensor<'_>>],
) -> f64 {
    let prepared = runtime
        .prepare_tuned(&plan_of(call, &sets[0]), tuning)
        .unwrap_or_else(|error| panic!("{error}"));
    let launches: Vec<_> = sets.iter().map(|set| prepared.bind(set).unwrap()).collect();
    let traffic = call.traffic().unwrap();
    let least = least_calls(traffic.read_bytes + traffic.written_bytes);
    let calls = least.max(launches.len()).next_multiple_of(launches.len());
    let graph = Graph::capture(stream, |handle| {
        for at in 0..calls {
            launches[at % launches.len()].enqueue(handle).unwrap();
        }
    });
    let replays = if calls > 2000 { 5 } else { 9 };
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
    let stream = |streaming| match streaming {
        Streaming::Off => "",
        Streaming::Stores => " cs",
        Streaming::All => " csls",
    };
    let overlap = match tuning.overlap() {
        Overlap::Off => " off",
        Overlap::Ordered => "",
        Overlap::Early => " early",
    };
    let shape = match tuning {
        Tuning::Rows(RowShape {
            threads, vectors, rows, looped, gains_ahead, streaming, ..
        }) => {
            let looped = looped.map_or(String::new(), |blocks| format!(" loop{blocks}"));
            let ahead = if gains_ahead { "a" } else { "" };
            format!("t{threads}k{vectors}r{rows}{ahead}{looped}{}", stream(streaming))
        }
        Tuning::Gate(GateShape { threads, vectors, rows, streaming, .. }) => {
            format!("t{threads}k{vectors}r{rows}{}", stream(streaming))
        }
        Tuning::Chunks(ChunkShape { values, warps, .. }) => format!("v{values}w{warps}"),
    };
    shape + overlap
}

/// Times and their tunings, the best first.
fn sweep(
    runtime: &Runtime,
    stream: &OwnedStream,
    call: &Call,
    tunings: &[Tuning],
    sets: &[Vec<DeviceTensor<'_>>],
) -> Vec<(String, f64)> {
    let mut times: Vec<_> = tunings
        .iter()
        .map(|tuning| (name(*tuning), time(runtime, stream, call, *tuning, sets)))
        .collect();
    times.sort_by(|left, right| left.1.total_cmp(&right.1));
    times
}

fn listed(times: &[(String, f64)], most: usize) -> String {
    let listed: Vec<_> =
        times.iter().take(most).map(|(name, us)| format!("{name} {us:.2}")).collect();
    listed.join(", ")
}

fn as_json(times: &[(String, f64)]) -> Value {
    times.iter().map(|(name, us)| json!({"tuning": name, "us": us})).collect()
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
    let target = runtime.device().target();
    for cell in cells() {
        let call = &cell.call;
        let logits = call.operator.dims[1].name == "vocab";
        arena.fill(call.dtype, logits, &stream);
        let traffic = call.traffic().unwrap();
        let bytes = traffic.read_bytes + traffic.written_bytes;
        let (rows, width) =
            (call.dim("rows").unwrap(), call.dim(call.operator.dims[1].name).unwrap());
        let default = runtime.tuning(call).unwrap();
        let tunings = tunings_of(&cell, default, target);
        let cold_sets = arena.sets(call, 5 * l2);
        let floor = bytes as f64 / ceiling * 1e6;
        let add = if call.params.is_empty() { "" } else { "+add" };
        let title = format!("{}{add} {} {rows}x{width}", call.operator.name, call.dtype);
        let of_default = |times: &[(String, f64)]| {
            let wanted = name(default);
            times.iter().find(|(name, _)| *name == wanted).map(|(_, us)| *us)
        };
        let mut record = json!({
            "operator": call.operator.name, "add": !add.is_empty(), "dtype": call.dtype.name(),
            "rows": rows, "width": width, "floor_us": floor, "default": name(default),
        });
        if rows <= FEW_ROWS {
            let hot = sweep(runtime, &stream, call, &tunings, &arena.sets(call, 1));
            println!(
                "{title} hot: {:.2} us [{}] | {}",
                of_default(&hot).unwrap_or(f64::NAN),
                name(default),
                listed(&hot, 7)
            );
            record["hot"] = as_json(&hot);
        }
        let cold_tunings = if rows <= FEW_ROWS && bytes < 4 << 20 {
            // Graphs of thousands of calls: the default alone, with every overlap.
            OVERLAPS
                .into_iter()
                .filter(|overlap| *overlap == Overlap::Off || target.arch.has_dependent_launch())
                .map(|overlap| with_overlap(default, overlap))
                .collect()
        } else {
            tunings
        };
        let cold = sweep(runtime, &stream, call, &cold_tunings, &cold_sets);
        let us = of_default(&cold).unwrap_or(f64::NAN);
        println!(
            "{title} cold: {us:.2} us [{}] {:.0}% | {} .. {:.2}",
            name(default),
            100.0 * floor / us,
            listed(&cold, 7),
            cold.last().map_or(f64::NAN, |(_, us)| *us),
        );
        record["cold"] = as_json(&cold);
        record["cold_sets"] = json!(cold_sets.len());
        records.push(record);
        if call.operator.name == "rms_norm" || call.tensors().any(|spec| spec.role == Role::InOut) {
            // Values that were normalized again and again are refreshed.
            arena.filled = None;
        }
    }
    json!({"copy_bytes_per_s": ceiling, "cells": records})
}

//! Launches that overlap must leave the bits of launches that wait for each other.

use proofhouse_contract::{Call, Case, CaseTensors, Dtype, find_operator};
use proofhouse_cuda::{DeviceBuffer, Overlap, OwnedStream, Runtime, Tuning};
use serde_json::{Value, json};

use crate::graph::Graph;

/// Launches of a chain.
const LINKS: usize = 48;

/// The same tuning, beginning at another time.
pub const fn with_overlap(tuning: Tuning, overlap: Overlap) -> Tuning {
    match tuning {
        Tuning::Rows(mut shape) => {
            shape.overlap = overlap;
            Tuning::Rows(shape)
        }
        Tuning::Gate(mut shape) => {
            shape.overlap = overlap;
            Tuning::Gate(shape)
        }
        Tuning::Chunks(mut shape) => {
            shape.overlap = overlap;
            Tuning::Chunks(shape)
        }
    }
}

/// The bytes of all tensors after a chain, and how many launches of its graph could begin early.
fn chain(
    runtime: &Runtime,
    stream: &OwnedStream,
    call: &Call,
    overlap: Overlap,
    captured: bool,
) -> (Vec<Vec<u8>>, usize) {
    let case = Case { seed: 5, ..Case::new(call.clone()) };
    let before = CaseTensors::generate(&case, 0xa5, 64).unwrap();
    let mut buffers: Vec<DeviceBuffer> = Vec::new();
    for tensor in &before.tensors {
        let mut buffer = runtime.allocate(tensor.storage.as_slice().len()).unwrap();
        buffer.upload(tensor.storage.as_slice(), stream.handle()).unwrap();
        buffers.push(buffer);
    }
    let operands: Vec<_> = before
        .tensors
        .iter()
        .zip(&buffers)
        .map(|(tensor, buffer)| buffer.tensor(tensor.layout.clone()))
        .collect();
    let plan = crate::times::plan_of(call, &operands);
    let tuning = with_overlap(runtime.tuning(call).unwrap(), overlap);
    let prepared = runtime.prepare_tuned(&plan, tuning).unwrap_or_else(|error| panic!("{error}"));
    let launch = prepared.bind(&operands).unwrap();
    let mut edges = 0;
    if captured {
        let graph = Graph::capture(stream, |handle| {
            for _ in 0..LINKS {
                launch.enqueue(handle).unwrap();
            }
        });
        edges = graph.programmatic_edges;
        graph.replay(stream);
    } else {
        for _ in 0..LINKS {
            launch.enqueue(stream.handle()).unwrap();
            if overlap == Overlap::Off {
                stream.synchronize().unwrap();
            }
        }
        stream.synchronize().unwrap();
    }
    let after = before
        .tensors
        .iter()
        .zip(&buffers)
        .map(|(tensor, buffer)| {
            let mut bytes = vec![0; tensor.storage.as_slice().len()];
            buffer.download(&mut bytes, stream.handle()).unwrap();
            bytes
        })
        .collect();
    (after, edges)
}

/// Runs chains eagerly and as graphs; returns the number of those that differ.
pub fn run(runtime: &Runtime) -> (usize, Value) {
    let stream = runtime.create_stream().unwrap();
    let overlaps: &[Overlap] = if runtime.device().arch.has_dependent_launch() {
        &[Overlap::Ordered, Overlap::Early]
    } else {
        &[]
    };
    let mut failures = Vec::new();
    let mut edges_of = Vec::new();
    for (operator, width) in [
        ("add_rms_norm", 4096),
        ("add_rms_norm", 100),
        ("rms_norm_dynamic_fp8", 4096),
        ("greedy_logprob", 32_000),
        ("selected_logprob_rank", 32_000),
    ] {
        for rows in [1, 33, 1024] {
            let spec = find_operator(operator).unwrap();
            let rows = if width > 10_000 { rows.min(33) } else { rows };
            let dims = [("rows", rows), (spec.dims[1].name, width)];
            let call = Call::new(operator, Dtype::BF16, &dims, &[]).unwrap();
            let (expected, _) = chain(runtime, &stream, &call, Overlap::Off, false);
            for &overlap in overlaps {
                for captured in [false, true] {
                    let (found, edges) = chain(runtime, &stream, &call, overlap, captured);
                    if found != expected {
                        failures.push(format!(
                            "{operator} {rows}x{width} {overlap:?} captured={captured}: bits depend on the overlap"
                        ));
                    }
                    if captured {
                        edges_of.push(edges);
                        if edges != LINKS - 1 {
                            failures.push(format!(
                                "{operator} {rows}x{width} {overlap:?}: {edges} programmatic edges of {}",
                                LINKS - 1
                            ));
                        }
                    }
                }
            }
        }
    }
    println!(
        "chains: {} failures; programmatic edges {edges_of:?} of {}",
        failures.len(),
        LINKS - 1
    );
    for failure in failures.iter().take(8) {
        println!("FAIL {failure}");
    }
    (failures.len(), json!({"failures": failures, "programmatic_edges": edges_of}))
}

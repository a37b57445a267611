//! Agreement with the contract: many cases, red zones, repeats, other tunings, and the conformance suite.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use proofhouse_contract::conformance::{self, Backend, Failure};
use proofhouse_contract::{
    Agreement, Call, CallPlan, Case, CaseTensors, ContractError, Dtype, ErrorKind, Layout, Mode,
    OwnedTensor, ParamValue, TensorMut, TensorView, ValueClass, check, find_operator,
};
use proofhouse_cuda::{
    Arch, Build, ChunkShape, CudaError, DeviceBuffer, GateShape, OPERATORS, Overlap, OwnedStream,
    RowShape, Runtime, Streaming, Target, Tuning,
};
use serde_json::{Value, json};

const DTYPES: [Dtype; 3] = [Dtype::F32, Dtype::F16, Dtype::BF16];
const RED_ZONE: usize = 64;
const POISONS: [u8; 2] = [0xa5, 0x5a];

fn calls_of(operator: &str, dtype: Dtype, rows: u64, width: u64) -> Vec<Call> {
    let spec = find_operator(operator).unwrap();
    let dims = [("rows", rows), (spec.dims[1].name, width)];
    let mut calls = vec![Call::new(operator, dtype, &dims, &[]).unwrap()];
    if spec.param("add-residual").is_some() {
        let params = [("add-residual", ParamValue::Bool(true))];
        calls.push(Call::new(operator, dtype, &dims, &params).unwrap());
    }
    calls
}

fn is_vocabulary(operator: &str) -> bool {
    find_operator(operator).unwrap().dims[1].name == "vocab"
}

/// Rows and widths beyond those of the conformance suite.
fn shapes(operator: &str, dtype: Dtype) -> Vec<(u64, u64)> {
    let mut shapes = Vec::new();
    if is_vocabulary(operator) {
        for vocab in [1, 2, 31, 1000, 1023, 1024, 1025, 32_000, 151_936] {
            let most = if vocab > 100_000 { 3 } else { 9 };
            shapes.extend([(0, vocab), (1, vocab), (most, vocab)]);
        }
        shapes.push((70, 32_000));
        return shapes;
    }
    let widths = [
        1, 7, 8, 63, 64, 65, 127, 128, 129, 256, 512, 768, 1000, 1024, 2048, 4096, 5120, 8192,
        14_336,
    ];
    for width in widths {
        shapes.extend([(0, width), (1, width), (3, width), (33, width)]);
    }
    let longest = if dtype == Dtype::F32 { 16_384 } else { 32_768 };
    shapes.extend([
        (2, longest),
        (2, longest - 1),
        (1500, 64),
        (1500, 65),
        (1100, 768),
        (1024, 4096),
    ]);
    shapes
}

/// Every case that is compared.
fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for operator in OPERATORS {
        let spec = find_operator(operator).unwrap();
        for dtype in DTYPES {
            let mut add = |rows, width, layout, values| {
                for call in calls_of(operator, dtype, rows, width) {
                    cases.push(Case { layout, values, seed: 11, ..Case::new(call) });
                }
            };
            for (rows, width) in shapes(operator, dtype) {
                add(rows, width, Layout::Contiguous, ValueClass::Normal);
            }
            let widths: &[u64] =
                if is_vocabulary(operator) { &[7, 1000, 5000] } else { &[7, 64, 128, 1000, 4096] };
            for width in widths {
                for layout in Layout::CASES {
                    add(5, *width, layout, ValueClass::Normal);
                }
                for values in spec.values {
                    add(6, *width, Layout::Contiguous, *values);
                }
            }
        }
    }
    cases
}

/// Every kernel that the cases and the conformance suite need, for compiling ahead.
pub fn builds(target: Target) -> Vec<Build> {
    let mut calls: Vec<_> = cases().into_iter().map(|case| (case.call, None)).collect();
    for operator in OPERATORS {
        let spec = find_operator(operator).unwrap();
        for case in conformance::compact_cases(spec) {
            // Of a batch, each row alone.
            let mut single = case.call.clone();
            single.dims.insert("rows".to_owned(), 1);
            calls.extend([(case.call, None), (single, None)]);
        }
        for dtype in DTYPES {
            for call in calls_of(operator, dtype, 3, 64) {
                calls.push((call, None));
            }
        }
    }
    calls.extend(tuned_calls(target.arch));
    let mut builds = Vec::new();
    for (call, tuning) in calls {
        let width = call.dim(call.operator.dims[1].name).unwrap();
        let whole = (width * call.dtype.size() as u64).is_multiple_of(16);
        if whole {
            builds.push(Build { call: call.clone(), tuning, aligned: true });
        }
        if tuning.is_none() {
            builds.push(Build { call, tuning, aligned: false });
        }
    }
    builds
}

/// Calls, each with a tuning that must give the bits of the default one.
fn tuned_calls(arch: Arch) -> Vec<(Call, Option<Tuning>)> {
    let mut tuned = Vec::new();
    for operator in OPERATORS {
        for dtype in DTYPES {
            let (rows, width) = if is_vocabulary(operator) { (5, 40_000) } else { (300, 4096) };
            for call in calls_of(operator, dtype, rows, width) {
                for tuning in other_tunings(operator, dtype, arch) {
                    tuned.push((call.clone(), Some(tuning)));
                }
            }
        }
    }
    tuned
}

fn other_tunings(operator: &str, dtype: Dtype, arch: Arch) -> Vec<Tuning> {
    // All three ways to begin, where the device has them.
    let overlap = |at: u32| match at % 3 {
        _ if !arch.has_dependent_launch() => Overlap::Off,
        0 => Overlap::Off,
        1 => Overlap::Ordered,
        _ => Overlap::Early,
    };
    if is_vocabulary(operator) {
        return [1, 3, 8, 16]
            .map(|warps| Tuning::Chunks(ChunkShape { values: 32, warps, overlap: overlap(warps) }))
            .to_vec();
    }
    if operator == "silu_and_mul" {
        let shape = |threads, vectors, rows, streaming| {
            let overlap = overlap(rows);
            Tuning::Gate(GateShape { threads, vectors, rows, streaming, overlap })
        };
        return vec![
            shape(64, 4, 2, Streaming::All),
            shape(256, 1, 1, Streaming::Stores),
            shape(32, 8, 3, Streaming::Off),
        ];
    }
    let held = if dtype == Dtype::F32 { 1024 } else { 512 };
    let shape = |vectors: u32, looped, streaming| {
        let threads = held / vectors;
        Tuning::Rows(RowShape {
            threads,
            vectors,
            rows: if threads == 32 { 4 } else { 1 },
            looped,
            gains_ahead: vectors <= 2,
            streaming,
            overlap: overlap(vectors),
        })
    };
    vec![
        shape(1, None, Streaming::Stores),
        shape(2, None, Streaming::All),
        shape(4, None, Streaming::Off),
        shape(8, None, Streaming::All),
        shape(16, None, Streaming::Stores),
        shape(1, Some(1), Streaming::Off),
        shape(2, Some(1), Streaming::All),
        shape(4, Some(1), Streaming::Stores),
    ]
}

/// Runs a call on copies of its tensors and returns them as they are afterwards.
fn execute(
    runtime: &Runtime,
    stream: &OwnedStream,
    call: &Call,
    mode: Mode,
    tuning: Option<Tuning>,
    before: &CaseTensors,
) -> Result<CaseTensors, CudaError> {
    let stream_handle = stream.handle();
    let mut buffers: Vec<DeviceBuffer> = Vec::new();
    for tensor in &before.tensors {
        let mut buffer = runtime.allocate(tensor.storage.as_slice().len())?;
        buffer.upload(tensor.storage.as_slice(), stream_handle)?;
        buffers.push(buffer);
    }
    let operands: Vec<_> = before
        .tensors
        .iter()
        .zip(&buffers)
        .map(|(tensor, buffer)| buffer.tensor(tensor.layout.clone()))
        .collect();
    let plan = CallPlan {
        call: call.clone(),
        tensors: call
            .tensors()
            .zip(&operands)
            .map(|(spec, operand)| proofhouse_contract::TensorPlan {
                name: spec.name,
                role: spec.role,
                layout: operand.layout().clone(),
                address: operand.address(),
                bytes: operand.bytes(),
            })
            .collect(),
    };
    let prepared = match tuning {
        Some(tuning) => runtime.prepare_tuned(&plan, tuning)?,
        None => runtime.prepare(&plan)?,
    };
    match mode {
        Mode::Checked => prepared.check(stream_handle, &operands)?,
        Mode::Unchecked => {
            // Twice, so that a launch that leaves its workspace spoiled is seen.
            prepared.launch(stream_handle, &operands)?;
            if call
                .operator
                .tensors
                .iter()
                .all(|spec| !matches!(spec.role, proofhouse_contract::Role::InOut))
            {
                prepared.launch(stream_handle, &operands)?;
            }
            stream.synchronize()?;
        }
    }
    let mut after = before.clone();
    for (tensor, buffer) in after.tensors.iter_mut().zip(&buffers) {
        buffer.download(tensor.storage.as_mut_slice(), stream_handle)?;
    }
    Ok(after)
}

fn packed(case: &Case, tensors: &CaseTensors) -> Vec<(String, Vec<u8>)> {
    case.call
        .outputs()
        .filter_map(|spec| tensors.get(spec.name))
        .map(|tensor| (tensor.name.to_owned(), OwnedTensor::packed_bytes(tensor)))
        .collect()
}

/// What is wrong with one case, or the largest error in steps.
fn examine(runtime: &Runtime, stream: &OwnedStream, case: &Case) -> Result<u64, String> {
    let text = |error: CudaError| format!("{case}: {error}");
    let mode = conformance::mode_of(case);
    let mut outputs = Vec::new();
    let mut worst = 0;
    for (run, poison) in POISONS.into_iter().enumerate() {
        let before =
            CaseTensors::generate(case, poison, RED_ZONE).map_err(|e| format!("{case}: {e}"))?;
        let mode = if run == 0 { mode } else { Mode::Unchecked };
        let after = execute(runtime, stream, &case.call, mode, None, &before).map_err(text)?;
        for (old, new) in before.tensors.iter().zip(&after.tensors) {
            let written = case.call.outputs().any(|spec| spec.name == new.name);
            if !written && old.storage.as_slice() != new.storage.as_slice() {
                return Err(format!("{case}: {} was changed", new.name));
            }
            if let Some(byte) = new.first_stray_byte(poison) {
                return Err(format!("{case}: {} was written outside, at byte {byte}", new.name));
            }
        }
        if run == 0 {
            let call = &case.call;
            let (inputs, initial) = (before.views(call, false), before.views(call, true));
            let comparisons = check(call, mode, &inputs, &initial, &after.views(call, true))
                .map_err(|e| format!("{case}: {e}"))?;
            for found in comparisons {
                worst = worst.max(found.max_ulps);
                if found.agreement() == Agreement::Differ {
                    return Err(format!(
                        "{case}: `{}` {} of {} out of tolerance, {} of the wrong class, first {:?}",
                        found.tensor,
                        found.out_of_tolerance,
                        found.elements,
                        found.class_mismatches,
                        found.first_bad.first()
                    ));
                }
            }
        }
        outputs.push(packed(case, &after));
    }
    if outputs[0] != outputs[1] {
        return Err(format!("{case}: two runs differ in bits"));
    }
    Ok(worst)
}

/// Whether another tuning gives the bits of the default one.
fn examine_tuning(
    runtime: &Runtime,
    stream: &OwnedStream,
    call: &Call,
    tuning: Tuning,
) -> Result<u64, String> {
    let case = Case { seed: 3, ..Case::new(call.clone()) };
    let text = |error: CudaError| format!("{case} {tuning:?}: {error}");
    let before = CaseTensors::generate(&case, POISONS[0], RED_ZONE).map_err(|e| e.to_string())?;
    let run =
        |tuning| execute(runtime, stream, call, Mode::Unchecked, tuning, &before).map_err(text);
    let (plain, other) = (run(None)?, run(Some(tuning))?);
    if packed(&case, &plain) == packed(&case, &other) {
        return Ok(0);
    }
    Err(format!("{case} {tuning:?}: bits depend on the tuning"))
}

/// Compares every case; returns the number of failures.
pub fn run(runtime: &Runtime) -> (usize, Value) {
    let (cases, tuned) = (cases(), tuned_calls(runtime.device().arch));
    let all = cases.len() + tuned.len();
    let next = AtomicUsize::new(0);
    let failures = Mutex::new(Vec::new());
    let worst = Mutex::new(std::collections::BTreeMap::<String, u64>::new());
    let threads = std::thread::available_parallelism().map_or(4, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                let stream = runtime.create_stream().unwrap();
                loop {
                    let at = next.fetch_add(1, Ordering::Relaxed);
                    if at >= all {
                        break;
                    }
                    let (call, result) = match cases.get(at) {
                        Some(case) => (&case.call, examine(runtime, &stream, case)),
                        None => {
                            let (call, tuning) = &tuned[at - cases.len()];
                            (call, examine_tuning(runtime, &stream, call, tuning.unwrap()))
                        }
                    };
                    match result {
                        Ok(ulps) => {
                            let key = format!("{} {}", call.operator.name, call.dtype);
                            let mut worst = worst.lock().unwrap();
                            let known = worst.entry(key).or_default();
                            *known = ulps.max(*known);
                        }
                        Err(failure) => failures.lock().unwrap().push(failure),
                    }
                }
            });
        }
    });
    let (failures, worst) = (failures.into_inner().unwrap(), worst.into_inner().unwrap());
    println!("correctness: {} of {all} cases agree; largest steps {worst:?}", all - failures.len());
    for failure in failures.iter().take(12) {
        println!("FAIL {failure}");
    }
    (failures.len(), json!({"cases": all, "failures": failures, "max_ulps": worst}))
}

/// The device as a backend of the conformance suite.
struct Device<'a> {
    runtime: &'a Runtime,
    stream: OwnedStream,
}

fn contract_error(error: CudaError) -> ContractError {
    match error {
        CudaError::Contract(error) => error,
        other => ContractError::new("", "device", ErrorKind::Unsupported).found(other),
    }
}

impl Backend for Device<'_> {
    fn name(&self) -> &str {
        "cuda"
    }

    fn supports(&self, call: &Call) -> bool {
        OPERATORS.contains(&call.operator.name)
    }

    fn refuse(&mut self, plan: &CallPlan) -> Result<(), ContractError> {
        self.runtime.prepare(plan).map(|_| ()).map_err(contract_error)
    }

    fn run(
        &mut self,
        call: &Call,
        mode: Mode,
        inputs: &[TensorView<'_>],
        outputs: &mut [TensorMut<'_>],
    ) -> Result<(), ContractError> {
        // Refused with the host's addresses first: copies could not overlap or be null.
        CallPlan::of_operands(call, inputs, outputs)?.validate()?;
        let (mut read, mut written) = (inputs.iter(), outputs.iter());
        let mut tensors = Vec::new();
        for spec in call.tensors() {
            let (layout, bytes) = if spec.role.is_written() {
                let tensor = written.next().unwrap();
                (&tensor.layout, &*tensor.bytes)
            } else {
                let tensor = read.next().unwrap();
                (&tensor.layout, tensor.bytes)
            };
            let mut storage = proofhouse_contract::AlignedBytes::new(bytes.len(), 0);
            storage.as_mut_slice().copy_from_slice(bytes);
            tensors.push(OwnedTensor { name: spec.name, layout: layout.clone(), storage });
        }
        let before = CaseTensors { tensors };
        let after = execute(self.runtime, &self.stream, call, mode, None, &before)
            .map_err(contract_error)?;
        let names: Vec<_> = call.outputs().map(|spec| spec.name).collect();
        for (name, output) in names.into_iter().zip(outputs) {
            output.bytes.copy_from_slice(after.get(name).unwrap().storage.as_slice());
        }
        Ok(())
    }
}

/// A suite of the contract.
type Suite = fn(&mut dyn Backend) -> Result<usize, Failure>;

/// Runs the contract's own suite, its parts side by side.
pub fn conformance(runtime: &Runtime) -> (usize, Value) {
    let suites: [(&str, Suite); 5] = [
        ("correctness", conformance::correctness),
        ("refusals", conformance::refusals),
        ("repeatability", conformance::repeatability),
        ("batch invariance", conformance::batch_invariance),
        ("zero rows", conformance::zero_rows),
    ];
    let results: Vec<_> = std::thread::scope(|scope| {
        let running: Vec<_> = suites
            .iter()
            .map(|(name, suite)| {
                scope.spawn(move || {
                    let stream = runtime.create_stream().unwrap();
                    (*name, suite(&mut Device { runtime, stream }))
                })
            })
            .collect();
        running.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    let mut failures = 0;
    let mut report = serde_json::Map::new();
    for (name, result) in results {
        let text = match result {
            Ok(cases) => format!("{cases} cases"),
            Err(failure) => {
                failures += 1;
                format!("FAIL {failure}")
            }
        };
        println!("conformance, {name}: {text}");
        report.insert(name.to_owned(), json!(text));
    }
    (failures, Value::Object(report))
}

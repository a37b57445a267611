//! The entries per operator do what `run` does, and results do not depend on threads or paths' tails.
#![allow(clippy::unwrap_used)]

use proofhouse_contract::{
    Call, Case, CaseTensors, ContractError, Dtype, ErrorKind, Layout, Mode, ParamValue, TensorMut,
    TensorView, ValueClass,
};
use proofhouse_cpu::{Cpu, DynamicFp8, Path, TopkLogprobs};

fn case(operator: &str, dtype: Dtype, dims: &[(&str, u64)], params: &[(&str, ParamValue)]) -> Case {
    Case { seed: 5, ..Case::new(Call::new(operator, dtype, dims, params).unwrap()) }
}

/// Runs a case by `run` and returns the bytes of every tensor afterwards.
fn by_run(cpu: Cpu, case: &Case) -> Vec<Vec<u8>> {
    through(case, |inputs, outputs| cpu.run(&case.call, Mode::Checked, inputs, outputs))
}

fn through(
    case: &Case,
    run: impl FnOnce(&[TensorView<'_>], &mut [TensorMut<'_>]) -> Result<(), ContractError>,
) -> Vec<Vec<u8>> {
    let mut tensors = CaseTensors::generate(case, 0xa5, 64).unwrap();
    let (inputs, mut outputs) = tensors.split(&case.call);
    run(&inputs, &mut outputs).unwrap();
    tensors.tensors.iter().map(|tensor| tensor.storage.as_slice().to_vec()).collect()
}

/// Runs a case by its operator's own entry.
fn by_entry(cpu: Cpu, case: &Case) -> Vec<Vec<u8>> {
    let mode = Mode::Checked;
    through(case, |inputs, outputs| match (case.call.operator.name, inputs, outputs) {
        ("rms_norm", [x, w], [y]) => cpu.rms_norm(x, w, y, 1e-6),
        ("add_rms_norm", [w], [x, residual]) => cpu.add_rms_norm(x, residual, w, 1e-6),
        ("rms_norm_dynamic_fp8", [x, w], [q, scale]) => {
            cpu.rms_norm_dynamic_fp8(DynamicFp8 { x, w, residual: None, q, scale }, 1e-6)
        }
        ("rms_norm_dynamic_fp8", [x, w], [residual, q, scale]) => {
            cpu.rms_norm_dynamic_fp8(DynamicFp8 { x, w, residual: Some(residual), q, scale }, 1e-6)
        }
        ("silu_and_mul", [x], [y]) => cpu.silu_and_mul(x, y),
        ("greedy_logprob", [logits], [token, logprob, rank]) => {
            cpu.greedy_logprob(mode, logits, token, logprob, rank)
        }
        ("selected_logprob_rank", [logits, selected], [logprob, rank]) => {
            cpu.selected_logprob_rank(mode, logits, selected, logprob, rank)
        }
        ("topk_logprobs", [logits, selected], [ids, logprobs, rank]) => {
            let k = case.call.int("k").unwrap() as usize;
            cpu.topk_logprobs(mode, TopkLogprobs { logits, selected, ids, logprobs, rank }, k)
        }
        ("min_p", [p], [logits]) => cpu.min_p(mode, logits, p),
        (name, ..) => panic!("{name} has no entry"),
    })
}

fn all_operators(rows: u64, width: u64, dtype: Dtype) -> Vec<Case> {
    let mut cases = Vec::new();
    for name in Cpu::OPERATORS {
        let operator = proofhouse_contract::find_operator(name).unwrap();
        let dims = [("rows", rows), (operator.dims[1].name, width)];
        cases.push(case(name, dtype, &dims, &[]));
        if operator.param("add-residual").is_some() {
            cases.push(case(name, dtype, &dims, &[("add-residual", ParamValue::Bool(true))]));
        }
    }
    cases
}

#[test]
fn an_entry_gives_the_bits_that_run_gives() {
    for dtype in [Dtype::F32, Dtype::F16, Dtype::BF16] {
        for case in all_operators(3, 200, dtype) {
            assert_eq!(by_entry(Cpu::default(), &case), by_run(Cpu::default(), &case), "{case}");
        }
    }
}

#[test]
fn results_do_not_depend_on_the_number_of_threads() {
    let pool = |threads| rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
    let (one, four) = (pool(1), pool(4));
    for dtype in [Dtype::F32, Dtype::BF16] {
        // Many rows are parted by rows, a single long row of logits within itself.
        for case in
            all_operators(70, 12_001, dtype).into_iter().chain(all_operators(1, 700_001, dtype))
        {
            let alone = one.install(|| by_run(Cpu::default(), &case));
            let together = four.install(|| by_run(Cpu::default(), &case));
            assert!(alone == together, "{case}");
        }
    }
}

#[test]
fn the_first_bad_row_is_named_whatever_the_threads() {
    let pool = rayon::ThreadPoolBuilder::new().num_threads(4).build().unwrap();
    let call =
        Call::new("greedy_logprob", Dtype::F32, &[("rows", 64), ("vocab", 20_000)], &[]).unwrap();
    let mut tensors = CaseTensors::generate(&Case::new(call.clone()), 0, 0).unwrap();
    let nan = u64::from(f32::NAN.to_bits());
    let logits = tensors.tensors.iter_mut().find(|tensor| tensor.name == "logits").unwrap();
    for (row, column) in [(61, 3), (40, 19_999), (17, 5)] {
        logits.view_mut().set_bits(row, column, nan);
    }
    let (inputs, mut outputs) = tensors.split(&call);
    let error = pool
        .install(|| Cpu::default().run(&call, Mode::Checked, &inputs, &mut outputs))
        .unwrap_err();
    assert_eq!((error.kind, error.row), (ErrorKind::NotFinite, Some(17)));
    assert!(error.to_string().contains("column 5"), "{error}");
}

#[test]
fn windows_of_one_packed_matrix_are_accepted_and_an_overlap_is_refused() {
    // Too intricate for the fast acceptance: the contract itself decides.
    let mut call =
        Call::new("add_rms_norm", Dtype::F32, &[("rows", 2), ("hidden", 8)], &[]).unwrap();
    let plan_at = |call: &Call, address: u64| {
        let mut plan = call.plan(Layout::Packed { side: 4 }).unwrap();
        plan.tensors[1].address = plan.tensors[0].address + address;
        plan.tensors[1].layout.offset = plan.tensors[0].layout.offset;
        Cpu::default().refuse(&plan)
    };
    assert_eq!(plan_at(&call, 32), Ok(()));
    assert_eq!(plan_at(&call, 28).unwrap_err().kind, ErrorKind::Overlap);
    call.dims.insert("rows".to_owned(), 0);
    assert_eq!(plan_at(&call, 28), Ok(()));
}

#[test]
fn heavy_values_agree_between_paths_in_every_integer_output() {
    for values in
        [ValueClass::HeavyTies, ValueClass::MaskedRows, ValueClass::OneHot, ValueClass::Infinite]
    {
        for dtype in [Dtype::F32, Dtype::F16] {
            let dims = [("rows", 5), ("vocab", 30_011)];
            let call =
                Call::new("topk_logprobs", dtype, &dims, &[("k", ParamValue::Int(128))]).unwrap();
            let case = Case { values, seed: 3, ..Case::new(call) };
            let integers = |path: Path| {
                let all = by_run(Cpu::new(path), &case);
                let names: Vec<_> = case.call.tensors().map(|spec| spec.name).collect();
                let place = |name: &str| names.iter().position(|known| *known == name).unwrap();
                (all[place("ids")].clone(), all[place("rank")].clone())
            };
            let best = integers(Path::best());
            for path in Path::supported() {
                assert!(integers(path) == best, "{path} {case}");
            }
        }
    }
}

#[test]
fn rows_longer_than_every_block_and_chunk_agree_with_the_oracle() {
    use proofhouse_contract::compare::Agreement;
    for path in Path::supported() {
        for dtype in [Dtype::F32, Dtype::F16, Dtype::BF16] {
            for values in [ValueClass::Normal, ValueClass::Uniform] {
                for case in all_operators(2, 40_003, dtype) {
                    let case = Case { values, ..case };
                    let before = CaseTensors::generate(&case, 0xa5, 64).unwrap();
                    let mut after = before.clone();
                    let (inputs, mut outputs) = after.split(&case.call);
                    Cpu::new(path).run(&case.call, Mode::Checked, &inputs, &mut outputs).unwrap();
                    let (inputs, initial) =
                        (before.views(&case.call, false), before.views(&case.call, true));
                    let candidate = after.views(&case.call, true);
                    let mode = Mode::Checked;
                    for found in
                        proofhouse_contract::check(&case.call, mode, &inputs, &initial, &candidate)
                            .unwrap()
                    {
                        assert_eq!(found.agreement(), Agreement::Agree, "{path} {case}: {found:?}");
                    }
                }
            }
        }
    }
}

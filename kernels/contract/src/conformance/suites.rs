//! The suites themselves.

use super::Backend;
use super::cases::{calls, compact_cases, few_cases, mode_of};
use super::failure::{Failure, Problem};
use crate::call::{Call, Mode};
use crate::case::Case;
use crate::compare::{Agreement, check};
use crate::error::{ContractError, ErrorKind};
use crate::inputs::{self, CaseTensors};
use crate::layout::Layout;
use crate::refusal::Refusal;
use crate::spec::{Extent, OperatorSpec};
use crate::tensor::{AlignedBytes, OwnedTensor};

/// Bytes of poison behind every tensor.
const RED_ZONE: usize = 64;
/// The poisons of the two correctness runs.
const POISONS: [u8; 2] = [0xa5, 0x5a];

fn failure(backend: &dyn Backend, case: &Case, problem: Problem) -> Failure {
    Failure { backend: backend.name().to_owned(), case: Some(Box::new(case.clone())), problem }
}

/// Applies `body` to every case of every operator that `choose` gives and the backend supports.
fn for_each(
    backend: &mut dyn Backend,
    choose: impl Fn(&'static OperatorSpec) -> Vec<Case>,
    mut body: impl FnMut(&mut dyn Backend, &Case) -> Result<(), Problem>,
) -> Result<usize, Failure> {
    let mut checked = 0;
    for case in crate::catalog().iter().flat_map(choose) {
        if !backend.supports(&case.call) {
            continue;
        }
        checked += 1;
        body(backend, &case).map_err(|problem| failure(backend, &case, problem))?;
    }
    if checked == 0 {
        let backend = backend.name().to_owned();
        return Err(Failure { backend, case: None, problem: Problem::NothingChecked });
    }
    Ok(checked)
}

/// Runs a case on memory poisoned with `poison` and returns the tensors before and after.
fn run_case(
    backend: &mut dyn Backend,
    case: &Case,
    mode: Mode,
    poison: u8,
) -> Result<(CaseTensors, CaseTensors), ContractError> {
    let before = CaseTensors::generate(case, poison, RED_ZONE)?;
    let mut after = before.clone();
    let (inputs, mut outputs) = after.split(&case.call);
    backend.run(&case.call, mode, &inputs, &mut outputs)?;
    Ok((before, after))
}

/// Judges a finished run: agreement, untouched inputs, no stray writes.
fn judge_run(
    case: &Case,
    mode: Mode,
    poison: u8,
    before: &CaseTensors,
    after: &CaseTensors,
) -> Result<(), Problem> {
    let call = &case.call;
    for (old, new) in before.tensors.iter().zip(&after.tensors) {
        let written = call.outputs().any(|spec| spec.name == new.name);
        if !written && old.storage.as_slice() != new.storage.as_slice() {
            return Err(Problem::InputChanged { tensor: new.name });
        }
        if let Some(byte) = new.first_stray_byte(poison) {
            return Err(Problem::StrayWrite { tensor: new.name, byte });
        }
    }
    let (inputs, initial) = (before.views(call, false), before.views(call, true));
    let comparisons = check(call, mode, &inputs, &initial, &after.views(call, true))?;
    match comparisons.into_iter().find(|comparison| comparison.agreement() == Agreement::Differ) {
        Some(comparison) => Err(Problem::Disagrees(Box::new(comparison))),
        None => Ok(()),
    }
}

/// Every compact case agrees with the oracle, on memory with two poisons, without touching anything else.
///
/// # Errors
/// The first [`Failure`].
pub fn correctness(backend: &mut dyn Backend) -> Result<usize, Failure> {
    for_each(backend, compact_cases, |backend, case| {
        let mode = mode_of(case);
        let mut results = Vec::new();
        for poison in POISONS {
            let (before, after) = run_case(backend, case, mode, poison)?;
            judge_run(case, mode, poison, &before, &after)?;
            results.push(after);
        }
        same_outputs(case, &results[0], &results[1])
            .map_err(|tensor| Problem::KeptPoison { tensor })?;
        if mode == Mode::Unchecked {
            must_be_refused_checked(backend, case)?;
        }
        Ok(())
    })
}

fn must_be_refused_checked(backend: &mut dyn Backend, case: &Case) -> Result<(), Problem> {
    let refusal = || "nan in checked mode".to_owned();
    match run_case(backend, case, Mode::Checked, POISONS[0]) {
        Ok(_) => Err(Problem::Accepted { refusal: refusal() }),
        Err(error) if error.kind == ErrorKind::NotFinite && error.row.is_some() => Ok(()),
        Err(error) => Err(Problem::WrongError { refusal: refusal(), error: Box::new(error) }),
    }
}

/// The first written tensor whose elements differ in bits.
fn same_outputs(case: &Case, left: &CaseTensors, right: &CaseTensors) -> Result<(), &'static str> {
    for spec in case.call.outputs() {
        let packed = |tensors: &CaseTensors| tensors.get(spec.name).map(OwnedTensor::packed_bytes);
        if packed(left) != packed(right) {
            return Err(spec.name);
        }
    }
    Ok(())
}

/// Every refusal of the contract is refused with its own error, before launch and, where the operands can be
/// built, when run; bad device values are refused in checked mode and handled as the oracle does in unchecked
/// mode.
///
/// # Errors
/// The first [`Failure`].
pub fn refusals(backend: &mut dyn Backend) -> Result<usize, Failure> {
    for_each(backend, few_cases, |backend, case| {
        for refusal in case.call.operator.refusals(&case.call) {
            if refusal.is_on_device() {
                refuses_on_device(backend, case, &refusal)?;
            } else {
                refuses_before_launch(backend, case, &refusal)?;
            }
        }
        Ok(())
    })
}

fn expect_refusal(
    refusal: &Refusal,
    call: &Call,
    result: Result<(), ContractError>,
) -> Result<(), Problem> {
    let name = || refusal.name.to_string();
    match result {
        Ok(()) => Err(Problem::Accepted { refusal: name() }),
        Err(error) if refusal.accepts(&error, call) => Ok(()),
        Err(error) => Err(Problem::WrongError { refusal: name(), error: Box::new(error) }),
    }
}

fn refuses_before_launch(
    backend: &mut dyn Backend,
    case: &Case,
    refusal: &Refusal,
) -> Result<(), Problem> {
    // More storage than this is never needed to show that a call is refused.
    const ENOUGH: u64 = 1 << 16;
    let mut plan = case.call.plan(Layout::Contiguous)?;
    refusal.apply(&mut plan);
    expect_refusal(refusal, &case.call, backend.refuse(&plan))?;
    if !refusal.is_expressible_with_slices() {
        return Ok(());
    }
    let mut tensors = CaseTensors {
        tensors: plan
            .tensors
            .into_iter()
            .map(|planned| OwnedTensor {
                name: planned.name,
                storage: AlignedBytes::new(planned.bytes.min(ENOUGH) as usize, 0),
                layout: planned.layout,
            })
            .collect(),
    };
    let (inputs, mut outputs) = tensors.split(&plan.call);
    let result = backend.run(&plan.call, Mode::Checked, &inputs, &mut outputs);
    expect_refusal(refusal, &case.call, result)
}

fn refuses_on_device(
    backend: &mut dyn Backend,
    case: &Case,
    refusal: &Refusal,
) -> Result<(), Problem> {
    let call = &case.call;
    let mut before = CaseTensors::generate(case, POISONS[0], RED_ZONE)?;
    for tensor in &mut before.tensors {
        refusal.apply_to_memory(call, tensor)?;
    }
    let mut run = |mode| {
        let mut after = before.clone();
        let (inputs, mut outputs) = after.split(call);
        backend.run(call, mode, &inputs, &mut outputs).map(|()| after)
    };
    expect_refusal(refusal, call, run(Mode::Checked).map(|_| ()))?;
    let after = run(Mode::Unchecked)?;
    judge_run(case, Mode::Unchecked, POISONS[0], &before, &after)
}

/// Three runs of the same inputs give the same bits, and new contents at the same addresses give new results.
///
/// # Errors
/// The first [`Failure`].
pub fn repeatability(backend: &mut dyn Backend) -> Result<usize, Failure> {
    for_each(backend, few_cases, |backend, case| {
        let mode = mode_of(case);
        let mut run = |case: &Case| run_case(backend, case, mode, POISONS[0]);
        let (_, first) = run(case)?;
        for _ in 0..2 {
            let (_, again) = run(case)?;
            same_outputs(case, &first, &again)
                .map_err(|tensor| Problem::NotRepeatable { tensor })?;
        }
        renewed_contents(backend, case, mode, first)
    })
}

/// Refills the tensors of a finished call in place with another seed and judges a second call on them.
fn renewed_contents(
    backend: &mut dyn Backend,
    case: &Case,
    mode: Mode,
    mut tensors: CaseTensors,
) -> Result<(), Problem> {
    let next = Case { seed: case.seed + 1, ..case.clone() };
    for tensor in &mut tensors.tensors {
        inputs::fill(&next, tensor.name, &mut tensor.view_mut())?;
    }
    let before = tensors.clone();
    let (inputs, mut outputs) = tensors.split(&next.call);
    backend.run(&next.call, mode, &inputs, &mut outputs)?;
    judge_run(&next, mode, POISONS[0], &before, &tensors)
}

/// Each row alone gives the bits that it gives in the batch.
///
/// # Errors
/// The first [`Failure`].
pub fn batch_invariance(backend: &mut dyn Backend) -> Result<usize, Failure> {
    for_each(backend, few_cases, |backend, case| {
        let mode = mode_of(case);
        let (before, after) = run_case(backend, case, mode, POISONS[0])?;
        let mut single = case.clone();
        single.call.dims.insert("rows".to_owned(), 1);
        for row in 0..case.call.dim("rows")? {
            let mut alone = CaseTensors::generate(&single, POISONS[0], RED_ZONE)?;
            for (target, source) in alone.tensors.iter_mut().zip(&before.tensors) {
                copy_row(case.call.operator, source, row, target);
            }
            let (inputs, mut outputs) = alone.split(&single.call);
            backend.run(&single.call, mode, &inputs, &mut outputs)?;
            for spec in case.call.outputs() {
                let (Some(batch), Some(alone)) = (after.get(spec.name), alone.get(spec.name))
                else {
                    continue;
                };
                if row_bytes(case.call.operator, batch, row) != alone.packed_bytes() {
                    return Err(Problem::BatchDependent { tensor: spec.name, row });
                }
            }
        }
        Ok(())
    })
}

/// Bytes of what belongs to one row of the call; the whole tensor when it is shared by all rows.
fn row_bytes(spec: &OperatorSpec, tensor: &OwnedTensor, row: u64) -> Vec<u8> {
    let shape = spec.tensor(tensor.name).map_or(&[][..], |tensor| tensor.shape);
    let size = tensor.layout.dtype.size();
    match shape {
        [Extent::Dim("rows")] => {
            let start = row as usize * size;
            tensor.packed_bytes()[start..start + size].to_vec()
        }
        [Extent::Dim("rows"), ..] => tensor.view().row_bytes(row).to_vec(),
        _ => tensor.packed_bytes(),
    }
}

/// Fills a tensor of a call with one row from the same tensor of a batch.
fn copy_row(spec: &OperatorSpec, source: &OwnedTensor, row: u64, target: &mut OwnedTensor) {
    let bytes = row_bytes(spec, source, row);
    let mut view = target.view_mut();
    view.row_bytes_mut(0).copy_from_slice(&bytes);
}

/// A call with no rows succeeds and writes nothing.
///
/// # Errors
/// The first [`Failure`].
pub fn zero_rows(backend: &mut dyn Backend) -> Result<usize, Failure> {
    let empty = |spec: &'static OperatorSpec| {
        let dtypes = spec.dtypes.iter();
        dtypes.flat_map(|dtype| calls(spec, *dtype, 0, 64)).map(Case::new).collect()
    };
    for_each(backend, empty, |backend, case| {
        let (before, after) = run_case(backend, case, Mode::Checked, POISONS[0])?;
        judge_run(case, Mode::Checked, POISONS[0], &before, &after)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conformance::Oracle;
    use crate::dtype::Dtype;

    #[test]
    fn a_changed_input_is_found() {
        let call = Call::new("rms_norm", Dtype::F32, &[("rows", 2), ("hidden", 4)], &[]).unwrap();
        let case = Case::new(call);
        let (before, mut after) = run_case(&mut Oracle, &case, Mode::Checked, 0xa5).unwrap();
        assert_eq!(judge_run(&case, Mode::Checked, 0xa5, &before, &after), Ok(()));
        after.tensors[1].storage.as_mut_slice()[0] ^= 1;
        let problem = judge_run(&case, Mode::Checked, 0xa5, &before, &after);
        assert_eq!(problem, Err(Problem::InputChanged { tensor: "w" }));
    }
}

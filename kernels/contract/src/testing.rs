//! Shorthand for the operators' hand-computed tests.

use crate::{
    AlignedBytes, Call, ContractError, Dtype, Mode, OwnedTensor, ParamValue, TensorLayout,
    TensorMut, TensorView, run_oracle,
};

/// Builds contiguous operands with the given contents (row order; outputs zero) and runs the oracle.
pub(crate) fn try_run(
    operator: &str,
    dtype: Dtype,
    dims: &[(&str, u64)],
    params: &[(&str, ParamValue)],
    contents: &[(&str, &[f64])],
    mode: Mode,
) -> Result<(Call, Vec<OwnedTensor>), ContractError> {
    let call = Call::new(operator, dtype, dims, params)?;
    let mut tensors = Vec::new();
    for spec in call.tensors() {
        let layout = TensorLayout::contiguous(call.dtype_of(spec), &call.shape_of(spec)?);
        let bytes = layout.required_bytes().unwrap() as usize;
        let mut tensor =
            OwnedTensor { name: spec.name, layout, storage: AlignedBytes::new(bytes, 0) };
        if let Some((_, values)) = contents.iter().find(|(name, _)| *name == spec.name) {
            let width = tensor.layout.width() as usize;
            for (row, values) in values.chunks(width).enumerate() {
                tensor.view_mut().write_row(row as u64, values);
            }
        }
        tensors.push(tensor);
    }
    let (mut written, read): (Vec<_>, Vec<_>) =
        tensors.into_iter().partition(|tensor| call.outputs().any(|spec| spec.name == tensor.name));
    let inputs: Vec<TensorView<'_>> = read.iter().map(OwnedTensor::view).collect();
    let mut outputs: Vec<TensorMut<'_>> = written.iter_mut().map(OwnedTensor::view_mut).collect();
    run_oracle(&call, mode, &inputs, &mut outputs)?;
    Ok((call, written))
}

/// As [`try_run`], in checked mode and expected to succeed.
pub(crate) fn run(
    operator: &str,
    dtype: Dtype,
    dims: &[(&str, u64)],
    params: &[(&str, ParamValue)],
    contents: &[(&str, &[f64])],
) -> (Call, Vec<OwnedTensor>) {
    try_run(operator, dtype, dims, params, contents, Mode::Checked).unwrap()
}

/// All elements of a tensor, decoded.
pub(crate) fn floats(tensors: &[OwnedTensor], name: &str) -> Vec<f64> {
    let tensor = tensors.iter().find(|tensor| tensor.name == name).unwrap();
    let view = tensor.view();
    let mut row = Vec::new();
    (0..tensor.layout.rows())
        .flat_map(|index| {
            view.read_row(index, &mut row);
            row.clone()
        })
        .collect()
}

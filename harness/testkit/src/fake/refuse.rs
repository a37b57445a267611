//! The refusals of rms_norm's contract.

use proofhouse_schema::dtype::Dtype;
use proofhouse_schema::protocol::{Prepare, TensorRef, TypedError};

/// The error that an invalid case must get.
pub(crate) fn invalid(case: &Prepare) -> Option<TypedError> {
    let error = |kind: &str, argument: &str| {
        Some(TypedError {
            kind: kind.to_owned(),
            operator: case.operator.to_string(),
            argument: argument.to_owned(),
            found: "what the checker planted".to_owned(),
            accepted: "what the contract says".to_owned(),
        })
    };
    let dim = |name: &str| case.dims.get(name).copied().unwrap_or(0);
    let (rows, hidden) = (dim("rows"), dim("hidden"));
    if case.dtype != Dtype::F32 {
        return error("unsupported", "dtype");
    }
    if hidden == 0 {
        return error("zero_dimension", "hidden");
    }
    if rows.checked_mul(hidden).and_then(|n| n.checked_mul(4)).is_none() {
        return error("overflow", "x");
    }
    match case.params.get("eps").and_then(|eps| eps.as_f64()) {
        Some(eps) if eps.is_finite() && eps <= 0.0 => return error("out_of_range", "eps"),
        Some(eps) if eps.is_finite() => {}
        _ => return error("not_finite", "eps"),
    }
    for tensor in &case.tensors {
        let shape = if tensor.name == "w" { vec![hidden] } else { vec![rows, hidden] };
        if let Some(kind) = defect(tensor, &shape) {
            return error(kind, &tensor.name);
        }
    }
    let y = case.tensors.iter().find(|tensor| tensor.name == "y")?;
    let others = case.tensors.iter().filter(|tensor| tensor.name != "y");
    let overlapped = others.into_iter().any(|other| overlap(y, other));
    if overlapped { error("overlap", "y") } else { None }
}

fn defect(tensor: &TensorRef, shape: &[u64]) -> Option<&'static str> {
    if tensor.dtype != Dtype::F32 {
        return Some("dtype_mismatch");
    }
    if tensor.shape != shape {
        return Some("length_mismatch");
    }
    let width = shape[shape.len() - 1];
    if shape.len() == 2 && shape[0] > 1 && tensor.strides[0] < width {
        return Some("bad_stride");
    }
    if tensor.file.is_empty() {
        return Some("null_pointer");
    }
    if !tensor.offset.is_multiple_of(4) {
        return Some("misaligned");
    }
    let rows = if shape.len() == 2 { shape[0] } else { 1 };
    let stride = if shape.len() == 2 { tensor.strides[0] } else { width };
    let needed = if rows == 0 { 0 } else { ((rows - 1) * stride + width) * 4 };
    (tensor.span < needed).then_some("storage_too_short")
}

fn overlap(a: &TensorRef, b: &TensorRef) -> bool {
    a.file == b.file && a.offset < b.offset + b.span && b.offset < a.offset + a.span
}

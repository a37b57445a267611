//! Descriptors of a request: what can be passed on to a provider, and what cannot even be mapped.
//!
//! Only what would be unsafe is refused here: memory outside the file, a stride that no row view has, and a writable
//! region that shares bytes with another one. Everything else is the provider's to refuse.

use std::ops::Range;

use proofhouse_schema::catalog::Role;
use proofhouse_schema::protocol::{Prepare, TensorRef, TypedError};

use crate::decline::Decline;

/// A refusal of an argument of the case.
#[must_use]
pub fn refusal(
    case: &Prepare,
    argument: &str,
    kind: &str,
    found: String,
    accepted: String,
) -> Decline {
    Decline::Refused(TypedError {
        kind: kind.to_owned(),
        operator: case.operator.to_string(),
        argument: argument.to_owned(),
        found,
        accepted,
    })
}

/// Whether a provider writes into the tensor.
#[must_use]
pub fn is_written(tensor: &TensorRef) -> bool {
    matches!(tensor.role, Role::Out | Role::InOut)
}

/// Whether the descriptor stands for a null pointer: it names no file.
#[must_use]
pub fn is_null(tensor: &TensorRef) -> bool {
    tensor.file.is_empty()
}

/// Refuses a null pointer that the provider let pass.
///
/// # Errors
/// The refusal.
pub fn refuse_null(case: &Prepare) -> Result<(), Decline> {
    match case.tensors.iter().find(|tensor| is_null(tensor)) {
        None => Ok(()),
        Some(tensor) => Err(refusal(
            case,
            &tensor.name,
            "null_pointer",
            "no file".to_owned(),
            "a tensor in a file".to_owned(),
        )),
    }
}

/// The byte range of a tensor in its file of `length` bytes.
///
/// # Errors
/// The refusal.
pub fn byte_range(
    case: &Prepare,
    tensor: &TensorRef,
    length: usize,
) -> Result<Range<usize>, Decline> {
    let end = tensor.offset.checked_add(tensor.span).filter(|end| *end <= length as u64);
    match end {
        // Both are at most `length`, a usize.
        Some(end) => Ok(tensor.offset as usize..end as usize),
        None => Err(refusal(
            case,
            &tensor.name,
            "storage_too_short",
            format!("bytes {} + {} of a file of {length}", tensor.offset, tensor.span),
            "a span inside the file".to_owned(),
        )),
    }
}

/// The distance between neighboring rows in elements, where the strides are those of rows.
///
/// # Errors
/// The refusal.
pub fn row_stride(case: &Prepare, tensor: &TensorRef) -> Result<u64, Decline> {
    let bad = |accepted: &str| {
        let found = format!("strides {:?} of shape {:?}", tensor.strides, tensor.shape);
        Err(refusal(case, &tensor.name, "bad_stride", found, accepted.to_owned()))
    };
    if tensor.strides.len() != tensor.shape.len() {
        return bad("one stride per axis");
    }
    let Some((last, outer)) = tensor.strides.split_last() else { return Ok(1) };
    if *last != 1 && tensor.shape.last().is_some_and(|width| *width > 1) {
        return bad("an inner stride of 1");
    }
    let Some(row_stride) = outer.last().copied() else {
        return Ok(tensor.shape.last().copied().unwrap_or(1));
    };
    let mut expected = row_stride;
    for axis in (0..outer.len() - 1).rev() {
        expected = expected.saturating_mul(tensor.shape[axis + 1]);
        if outer[axis] != expected && tensor.shape[axis] > 1 {
            return bad("outer axes without gaps of their own");
        }
    }
    Ok(row_stride)
}

/// Refuses a writable region that shares bytes with another tensor's.
///
/// # Errors
/// The refusal.
pub fn refuse_overlap(case: &Prepare, regions: &[(usize, Range<usize>)]) -> Result<(), Decline> {
    for (index, (file, region)) in regions.iter().enumerate() {
        if !is_written(&case.tensors[index]) {
            continue;
        }
        let shared = regions.iter().enumerate().find(|(other, (other_file, other_region))| {
            *other != index
                && file == other_file
                && !region.is_empty()
                && region.start < other_region.end
                && other_region.start < region.end
        });
        if let Some((other, _)) = shared {
            return Err(refusal(
                case,
                &case.tensors[index].name,
                "overlap",
                format!("it shares bytes with `{}`", case.tensors[other].name),
                "a region of its own for every tensor that is written".to_owned(),
            ));
        }
    }
    Ok(())
}

/// The byte range of each row from element 0; rows without gaps between them are one. The case was accepted by the
/// provider, so that its shapes fit its memory.
#[must_use]
pub fn rows(tensor: &TensorRef) -> Vec<Range<usize>> {
    let size = tensor.dtype.size() as usize;
    let width = tensor.shape.last().copied().unwrap_or(1) as usize;
    let outer = tensor.shape.len().saturating_sub(1);
    let count: u64 = if width == 0 { 0 } else { tensor.shape[..outer].iter().product() };
    let stride = match outer {
        0 => width,
        _ => tensor.strides[outer - 1] as usize,
    };
    if stride == width {
        let all = 0..count as usize * width * size;
        return if all.is_empty() { Vec::new() } else { vec![all] };
    }
    let row = |row: usize| row * stride * size..(row * stride + width) * size;
    (0..count as usize).map(row).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proofhouse_schema::dtype::Dtype;
    use proofhouse_schema::ids::OperatorName;

    fn tensor(name: &str, role: Role, shape: &[u64], strides: &[u64]) -> TensorRef {
        TensorRef {
            name: name.to_owned(),
            role,
            dtype: Dtype::F32,
            shape: shape.to_vec(),
            strides: strides.to_vec(),
            file: "/f".to_owned(),
            offset: 0,
            span: 16,
            guard: 0,
        }
    }

    fn case(tensors: Vec<TensorRef>) -> Prepare {
        Prepare {
            case: "c".to_owned(),
            operator: OperatorName::new("copy").unwrap(),
            dtype: Dtype::F32,
            dims: Default::default(),
            params: Default::default(),
            tensors,
        }
    }

    fn kind(result: Result<impl std::fmt::Debug, Decline>) -> (String, String) {
        match result.unwrap_err() {
            Decline::Refused(error) => (error.kind, error.argument),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_span_outside_its_file_is_refused_even_when_it_overflows() {
        let mut x = tensor("x", Role::In, &[4], &[1]);
        let case = case(vec![]);
        assert_eq!(byte_range(&case, &x, 16).unwrap(), 0..16);
        assert_eq!(kind(byte_range(&case, &x, 15)).0, "storage_too_short");
        x.offset = u64::MAX;
        assert_eq!(kind(byte_range(&case, &x, 16)), ("storage_too_short".into(), "x".into()));
    }

    #[test]
    fn a_tensor_without_a_file_is_a_null_pointer() {
        let mut x = tensor("x", Role::In, &[4], &[1]);
        assert!(refuse_null(&case(vec![x.clone()])).is_ok());
        x.file.clear();
        assert_eq!(kind(refuse_null(&case(vec![x]))), ("null_pointer".into(), "x".into()));
    }

    #[test]
    fn row_strides_come_from_the_axis_before_the_last() {
        let case = case(vec![]);
        let stride = |shape: &[u64], strides: &[u64]| {
            row_stride(&case, &tensor("x", Role::In, shape, strides))
        };
        assert_eq!(stride(&[3, 4], &[6, 1]).unwrap(), 6);
        assert_eq!(stride(&[2, 3, 4], &[18, 6, 1]).unwrap(), 6);
        assert_eq!(stride(&[4], &[1]).unwrap(), 4);
        assert_eq!(stride(&[3, 1], &[6, 9]).unwrap(), 6);
        assert_eq!(kind(stride(&[3, 4], &[1, 3])).0, "bad_stride");
        assert_eq!(kind(stride(&[2, 3, 4], &[19, 6, 1])).0, "bad_stride");
        assert_eq!(kind(stride(&[3, 4], &[1])).0, "bad_stride");
        assert_eq!(
            stride(&[3, 4], &[2, 1]).unwrap(),
            2,
            "narrow rows are the provider's to refuse"
        );
    }

    #[test]
    fn only_written_regions_must_be_alone() {
        let two =
            |role| case(vec![tensor("x", Role::In, &[4], &[1]), tensor("y", role, &[4], &[1])]);
        let shared = [(0, 0..16), (0, 15..31)];
        assert_eq!(kind(refuse_overlap(&two(Role::Out), &shared)), ("overlap".into(), "y".into()));
        assert!(refuse_overlap(&two(Role::In), &shared).is_ok());
        assert!(refuse_overlap(&two(Role::Out), &[(0, 0..16), (0, 16..32)]).is_ok());
        assert!(refuse_overlap(&two(Role::Out), &[(0, 0..16), (1, 0..16)]).is_ok());
    }

    #[test]
    fn rows_skip_the_gaps_between_them_and_are_one_where_there_are_none() {
        let mut tensor = TensorRef {
            name: "y".to_owned(),
            role: Role::Out,
            dtype: Dtype::F16,
            shape: vec![2, 3],
            strides: vec![5, 1],
            file: String::new(),
            offset: 0,
            span: 16,
            guard: 0,
        };
        assert_eq!(rows(&tensor), [0..6, 10..16]);
        tensor.strides = vec![3, 1];
        assert_eq!(rows(&tensor), std::slice::from_ref(&(0..12)));
        (tensor.shape, tensor.strides) = (vec![4], vec![1]);
        assert_eq!(rows(&tensor), std::slice::from_ref(&(0..8)));
        (tensor.shape, tensor.strides) = (vec![0, 3], vec![3, 1]);
        assert!(rows(&tensor).is_empty());
    }
}

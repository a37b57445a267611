//! From descriptors to the contract's terms.

use proofhouse_contract::{Call, Dtype, ParamValue, TensorLayout};
use proofhouse_cuda::{CudaError, DeviceTensor, OPERATORS};

use crate::failure::Failure;
use crate::ffi::ForeignTensor;
use crate::layout::{DtypeC, MOST_AXES, TensorC};
use crate::status::Status;

/// A call as it was read from C: nothing is known to be right but that it could be read.
#[derive(Debug)]
pub(crate) struct Asked {
    pub(crate) operator: String,
    pub(crate) dtype: u32,
    pub(crate) dims: Vec<(String, u64)>,
    pub(crate) params: Vec<(String, ParamValue)>,
    pub(crate) tensors: Vec<ForeignTensor>,
}

impl Asked {
    /// The call, valid by its contract and of an operator that has a kernel.
    pub(crate) fn call(&self) -> Result<Call, Failure> {
        refuse_duplicates("dims", self.dims.iter().map(|(name, _)| name))?;
        refuse_duplicates("params", self.params.iter().map(|(name, _)| name))?;
        let dims: Vec<_> = self.dims.iter().map(|(name, size)| (name.as_str(), *size)).collect();
        let params: Vec<_> =
            self.params.iter().map(|(name, value)| (name.as_str(), *value)).collect();
        let call = Call::new(&self.operator, dtype(self.dtype, "dtype")?, &dims, &params)?;
        let operator = call.operator.name;
        if !OPERATORS.contains(&operator) {
            return Err(CudaError::NoKernel { operator, accepted: OPERATORS.join(", ") }.into());
        }
        call.validate()?;
        Ok(call)
    }
}

fn refuse_duplicates<'a>(
    argument: &str,
    names: impl Iterator<Item = &'a String>,
) -> Result<(), Failure> {
    let mut seen = Vec::new();
    for name in names {
        if seen.contains(&name) {
            let found = format_args!("{name} twice");
            return Err(Failure::new(Status::Duplicate, argument, found, "every name once"));
        }
        seen.push(name);
    }
    Ok(())
}

/// The element type of a number.
fn dtype(number: u32, argument: &str) -> Result<Dtype, Failure> {
    const NUMBERS: [(DtypeC, Dtype); 7] = [
        (DtypeC::F32, Dtype::F32),
        (DtypeC::F16, Dtype::F16),
        (DtypeC::Bf16, Dtype::BF16),
        (DtypeC::F8E4m3, Dtype::F8E4M3),
        (DtypeC::I32, Dtype::I32),
        (DtypeC::I64, Dtype::I64),
        (DtypeC::U8, Dtype::U8),
    ];
    let found = NUMBERS.iter().find(|(known, _)| *known as u32 == number);
    found.map(|(_, dtype)| *dtype).ok_or_else(|| {
        let accepted = "a proofhouse_dtype, 1 to 7";
        Failure::new(Status::UnknownValue, argument, format_args!("of dtype {number}"), accepted)
    })
}

/// The operands that a call's descriptors describe; those behind the contract's tensors are its to refuse.
pub(crate) fn operands(
    call: &Call,
    tensors: &[ForeignTensor],
) -> Result<Vec<DeviceTensor<'static>>, Failure> {
    let names = call.tensors().map(|spec| spec.name).chain(std::iter::repeat("operands"));
    let operand = |(tensor, name): (&ForeignTensor, &str)| {
        Ok(tensor.operand(layout(tensor.descriptor(), name)?))
    };
    tensors.iter().zip(names).map(operand).collect()
}

/// Where a tensor's elements lie, as rows with one distance between neighbors.
fn layout(tensor: &TensorC, name: &str) -> Result<TensorLayout, Failure> {
    let refused =
        |status, found: String, accepted: &str| Err(Failure::new(status, name, found, accepted));
    let dtype = dtype(tensor.dtype, name)?;
    let rank = tensor.rank as usize;
    if !(1..=MOST_AXES).contains(&rank) {
        let accepted = format!("1 to {MOST_AXES} axes");
        return refused(Status::BadRank, format!("of {rank} axes"), &accepted);
    }
    if tensor.address.checked_add(tensor.span_bytes).is_none() {
        let found = format!("{} bytes at {:#x}", tensor.span_bytes, tensor.address);
        return refused(Status::Overflow, found, "a span within the address space");
    }
    let (shape, strides) = (&tensor.shape[..rank], &tensor.strides[..rank]);
    if let Some(axis) = strides.iter().position(|stride| *stride < 0) {
        let found = format!("of stride {} along axis {axis}", strides[axis]);
        return refused(Status::NegativeStride, found, "strides of 0 and more");
    }
    let last = rank - 1;
    let width = shape[last];
    if width > 1 && strides[last] != 1 {
        let found = format!("of stride {} along its last axis", strides[last]);
        return refused(Status::BadStride, found, "1: elements of a row side by side");
    }
    let Some(row_stride) = row_stride(&shape[..last], &strides[..last], width) else {
        let found = format!("of strides {strides:?} for shape {shape:?}");
        return refused(Status::BadStride, found, "one distance between all neighboring rows");
    };
    Ok(TensorLayout { dtype, shape: shape.to_vec(), row_stride, offset: 0 })
}

/// The one distance between neighboring rows; none where there is no such distance.
fn row_stride(shape: &[u64], strides: &[i64], width: u64) -> Option<u64> {
    let (mut distance, mut inside) = (None, 1u64);
    for (extent, stride) in shape.iter().zip(strides).rev().filter(|(extent, _)| **extent > 1) {
        let stride = stride.unsigned_abs();
        match distance {
            None => distance = Some(stride),
            Some(distance) if inside.checked_mul(distance) == Some(stride) => {}
            Some(_) => return None,
        }
        // More rows than can be counted have no elements either that lie in a span.
        inside = inside.checked_mul(*extent)?;
    }
    Some(distance.unwrap_or(width))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tensor(shape: &[u64], strides: &[i64]) -> TensorC {
        let mut tensor = TensorC {
            size: size_of::<TensorC>() as u32,
            dtype: DtypeC::F32 as u32,
            address: 4096,
            span_bytes: 4096,
            rank: shape.len() as u32,
            reserved: 0,
            shape: [0; MOST_AXES],
            strides: [0; MOST_AXES],
        };
        tensor.shape[..shape.len()].copy_from_slice(shape);
        tensor.strides[..strides.len()].copy_from_slice(strides);
        tensor
    }

    fn stride(shape: &[u64], strides: &[i64]) -> Result<u64, Status> {
        let layout = layout(&tensor(shape, strides), "x").map_err(|failure| failure.status)?;
        assert_eq!(layout.shape, shape);
        Ok(layout.row_stride)
    }

    #[test]
    fn axes_in_front_become_rows_where_one_distance_is_between_them() {
        assert_eq!(stride(&[4, 8], &[8, 1]), Ok(8));
        assert_eq!(stride(&[4, 8], &[12, 1]), Ok(12));
        assert_eq!(stride(&[2, 3, 8], &[36, 12, 1]), Ok(12));
        assert_eq!(stride(&[2, 3, 8], &[40, 12, 1]), Err(Status::BadStride));
        assert_eq!(stride(&[8], &[1]), Ok(8));
    }

    #[test]
    fn strides_of_axes_of_one_element_or_none_do_not_matter() {
        assert_eq!(stride(&[1, 8], &[999, 1]), Ok(8));
        assert_eq!(stride(&[0, 8], &[3, 1]), Ok(8));
        assert_eq!(stride(&[2, 1, 8], &[12, 999, 1]), Ok(12));
        assert_eq!(stride(&[4, 1], &[1, 77]), Ok(1));
    }

    #[test]
    fn strides_that_rows_cannot_have_are_refused() {
        assert_eq!(stride(&[4, 8], &[1, 4]), Err(Status::BadStride));
        assert_eq!(stride(&[4, 8], &[-8, 1]), Err(Status::NegativeStride));
        assert_eq!(stride(&[8], &[-1]), Err(Status::NegativeStride));
        assert_eq!(stride(&[u64::MAX, 2, u64::MAX, 8], &[1, 1, 1, 1]), Err(Status::BadStride));
    }

    #[test]
    fn ranks_types_and_spans_that_do_not_exist_are_refused() {
        assert_eq!(stride(&[], &[]), Err(Status::BadRank));
        let refused = |tensor: TensorC| layout(&tensor, "x").unwrap_err();
        let failure = refused(TensorC { rank: 5, ..tensor(&[8], &[1]) });
        assert_eq!((failure.status, failure.argument.as_str()), (Status::BadRank, "x"));
        let failure = refused(TensorC { dtype: 8, ..tensor(&[8], &[1]) });
        assert_eq!(failure.status, Status::UnknownValue);
        let failure = refused(TensorC { address: u64::MAX - 8, ..tensor(&[8], &[1]) });
        assert_eq!(failure.status, Status::Overflow);
    }
}

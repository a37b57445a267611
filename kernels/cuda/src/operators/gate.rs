//! The gated activations' structures.
#![allow(unsafe_code, reason = "says that the structure is its kernel's own")]

use proofhouse_contract::{CallPlan, ContractError};

use super::{place, sizes};
use crate::launch::Arguments;

/// `Arguments` of `silu_and_mul.cu`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct SiluAndMulArguments {
    x: u64,
    y: u64,
    x_stride: i64,
    y_stride: i64,
    half: i64,
    rows: i32,
    width: i32,
}

// SAFETY: the fields are those of the source, in order and kind.
unsafe impl Arguments for SiluAndMulArguments {}

impl SiluAndMulArguments {
    pub(super) fn gather(plan: &CallPlan) -> Result<Self, ContractError> {
        let (rows, width) = sizes(&plan.call)?;
        let ((x, x_stride), (y, y_stride)) = (place(plan, "x")?, place(plan, "y")?);
        let half = (width * plan.call.dtype.size() as u64) as i64;
        Ok(Self { x, y, x_stride, y_stride, half, rows: rows as i32, width: width as i32 })
    }
}

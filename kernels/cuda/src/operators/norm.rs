//! The normalizations' structures.
#![allow(unsafe_code, reason = "says that each structure is its kernel's own")]

use proofhouse_contract::{CallPlan, ContractError};

use super::{place, sizes};
use crate::launch::Arguments;

/// What the statistics of a row are made with.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
struct Statistics {
    rows: i32,
    hidden: i32,
    inverse_hidden: f32,
    eps: f32,
}

impl Statistics {
    fn gather(plan: &CallPlan) -> Result<Self, ContractError> {
        let (rows, hidden) = sizes(&plan.call)?;
        // An epsilon that F32 does not hold becomes the smallest that it does, so that a row of zeros stays zero.
        let eps = (plan.call.float("eps")? as f32).clamp(f32::MIN_POSITIVE, f32::MAX);
        Ok(Self {
            rows: rows as i32,
            hidden: hidden as i32,
            inverse_hidden: 1.0 / hidden as f32,
            eps,
        })
    }
}

/// `Arguments` of `rms_norm.cu`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct RmsNormArguments {
    x: u64,
    w: u64,
    y: u64,
    x_stride: i64,
    y_stride: i64,
    statistics: Statistics,
}

// SAFETY: the fields are those of the source, in order and kind; the nested structure has the source's last four.
unsafe impl Arguments for RmsNormArguments {}

impl RmsNormArguments {
    pub(super) fn gather(plan: &CallPlan) -> Result<Self, ContractError> {
        let ((x, x_stride), (w, _), (y, y_stride)) =
            (place(plan, "x")?, place(plan, "w")?, place(plan, "y")?);
        Ok(Self { x, w, y, x_stride, y_stride, statistics: Statistics::gather(plan)? })
    }
}

/// `Arguments` of `add_rms_norm.cu`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct AddRmsNormArguments {
    x: u64,
    residual: u64,
    w: u64,
    x_stride: i64,
    residual_stride: i64,
    statistics: Statistics,
}

// SAFETY: as `RmsNormArguments`.
unsafe impl Arguments for AddRmsNormArguments {}

impl AddRmsNormArguments {
    pub(super) fn gather(plan: &CallPlan) -> Result<Self, ContractError> {
        let ((x, x_stride), (residual, residual_stride), (w, _)) =
            (place(plan, "x")?, place(plan, "residual")?, place(plan, "w")?);
        let statistics = Statistics::gather(plan)?;
        Ok(Self { x, residual, w, x_stride, residual_stride, statistics })
    }
}

/// `Arguments` of `rms_norm_dynamic_fp8.cu`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct RmsNormDynamicFp8Arguments {
    x: u64,
    w: u64,
    residual: u64,
    q: u64,
    scale: u64,
    x_stride: i64,
    residual_stride: i64,
    q_stride: i64,
    statistics: Statistics,
}

// SAFETY: as `RmsNormArguments`.
unsafe impl Arguments for RmsNormDynamicFp8Arguments {}

impl RmsNormDynamicFp8Arguments {
    pub(super) fn gather(plan: &CallPlan) -> Result<Self, ContractError> {
        let (residual, residual_stride) =
            if plan.call.flag("add-residual")? { place(plan, "residual")? } else { (0, 0) };
        let ((x, x_stride), (w, _)) = (place(plan, "x")?, place(plan, "w")?);
        let ((q, q_stride), (scale, _)) = (place(plan, "q")?, place(plan, "scale")?);
        let statistics = Statistics::gather(plan)?;
        Ok(Self { x, w, residual, q, scale, x_stride, residual_stride, q_stride, statistics })
    }
}

//! Invalid variants of a valid call, as data, and the error that each must get.

use std::borrow::Cow;

use crate::call::Call;
use crate::dtype::Dtype;
use crate::error::{ContractError, ErrorKind};
use crate::plan::CallPlan;
use crate::spec::ParamValue;
use crate::tensor::{OwnedTensor, TensorLayout};

/// Where [`Mutation::ParamAboveDim`] leaves its dimension at most.
const SMALL_DIM: u64 = 16;

/// One invalid variant of a valid call.
#[derive(Clone, Debug, PartialEq)]
pub struct Refusal {
    /// Name, unique within the operator, kebab-case.
    pub name: Cow<'static, str>,
    /// What is made invalid.
    pub mutation: Mutation,
    /// The kind of error that must come back.
    pub kind: ErrorKind,
    /// The argument that the error must name.
    pub argument: &'static str,
}

/// How a valid call is made invalid; plain data, so that any process can apply it.
#[derive(Clone, Debug, PartialEq)]
pub enum Mutation {
    /// Sets a dimension, and the shapes that follow from it.
    Dim {
        /// The dimension.
        name: &'static str,
        /// Its new size.
        size: u64,
    },
    /// Sets the activation dtype of the call and its tensors.
    CallDtype(Dtype),
    /// Sets a parameter, and the shapes that follow from it where it is still in a sensible range.
    Param {
        /// The parameter.
        name: &'static str,
        /// Its new value.
        value: ParamValue,
    },
    /// Sets an integer parameter to one more than a dimension, after making that dimension small enough for
    /// the parameter's own range to hold it.
    ParamAboveDim {
        /// The parameter.
        name: &'static str,
        /// The dimension.
        dim: &'static str,
    },
    /// Sets the dtype of one tensor.
    TensorDtype {
        /// The tensor.
        tensor: &'static str,
        /// Its new dtype.
        dtype: Dtype,
    },
    /// Makes the last axis of a tensor one longer.
    LongerAxis {
        /// The tensor.
        tensor: &'static str,
    },
    /// Sets the row stride one below the width.
    NarrowStride {
        /// The tensor.
        tensor: &'static str,
    },
    /// Takes the last byte of the storage away.
    ShortStorage {
        /// The tensor.
        tensor: &'static str,
    },
    /// Moves the storage by one byte.
    Misalign {
        /// The tensor.
        tensor: &'static str,
    },
    /// Sets the address to null.
    Null {
        /// The tensor.
        tensor: &'static str,
    },
    /// Puts a tensor's first element where another's first element is.
    Alias {
        /// The tensor that moves.
        tensor: &'static str,
        /// The tensor it moves onto.
        onto: &'static str,
    },
    /// Writes a bad value into an input's memory: found only while running, in checked mode.
    Value {
        /// The tensor.
        tensor: &'static str,
        /// Row of the element.
        row: u64,
        /// Column of the element.
        column: u64,
        /// The bad value.
        value: DeviceValue,
    },
}

/// A bad value for [`Mutation::Value`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum DeviceValue {
    /// This integer.
    Int(i64),
    /// This number.
    Float(f64),
    /// The size of a dimension: the first id that is out of range.
    Dim(&'static str),
}

impl Refusal {
    /// Whether the fault is in memory and so found only while running, in checked mode.
    #[must_use]
    pub const fn is_on_device(&self) -> bool {
        matches!(self.mutation, Mutation::Value { .. })
    }

    /// The row that the error must name, for faults found while running.
    #[must_use]
    pub fn row(&self, call: &Call) -> Option<u64> {
        let Mutation::Value { tensor, row, column, .. } = &self.mutation else {
            return None;
        };
        // A vector with one value per row is one row of memory.
        let vector = call.operator.tensor(tensor).is_some_and(|spec| spec.shape.len() == 1);
        Some(if vector { *column } else { *row })
    }

    /// Whether the operands of the mutated call can be built from safe, separate buffers.
    #[must_use]
    pub const fn is_expressible_with_slices(&self) -> bool {
        !matches!(
            self.mutation,
            Mutation::Misalign { .. } | Mutation::Null { .. } | Mutation::Alias { .. }
        )
    }

    /// Whether the tensor at fault is part of the call.
    #[must_use]
    pub fn applies_to(&self, call: &Call) -> bool {
        match &self.mutation {
            Mutation::Value { tensor, .. } => call.tensors().any(|spec| spec.name == *tensor),
            _ => true,
        }
    }

    /// Whether an error is the one this refusal must get.
    #[must_use]
    pub fn accepts(&self, error: &ContractError, call: &Call) -> bool {
        error.kind == self.kind
            && error.argument == self.argument
            && error.operator == call.operator.name
            && error.row == self.row(call)
    }

    /// Makes a planned call invalid; faults in memory leave the plan alone, see [`Refusal::apply_to_memory`].
    pub fn apply(&self, plan: &mut CallPlan) {
        match &self.mutation {
            Mutation::Dim { name, size } => {
                plan.call.dims.insert((*name).to_owned(), *size);
                reshape(plan);
            }
            Mutation::CallDtype(dtype) => {
                plan.call.dtype = *dtype;
                reshape(plan);
            }
            Mutation::Param { name, value } => {
                plan.call.params.insert((*name).to_owned(), *value);
                reshape(plan);
            }
            Mutation::ParamAboveDim { name, dim } => {
                let size = plan.call.dims.get(*dim).copied().unwrap_or(0).min(SMALL_DIM);
                plan.call.dims.insert((*dim).to_owned(), size);
                plan.call.params.insert((*name).to_owned(), ParamValue::Int(size as i64 + 1));
                reshape(plan);
            }
            Mutation::Value { .. } => {}
            Mutation::Alias { tensor, onto } => {
                let target = plan.tensor(onto).map(crate::plan::TensorPlan::first_element);
                if let (Some(target), Some(moved)) = (target, find(plan, tensor)) {
                    let lead = moved.first_element() - moved.address;
                    moved.address = target - lead;
                }
            }
            Mutation::TensorDtype { tensor, .. }
            | Mutation::LongerAxis { tensor }
            | Mutation::NarrowStride { tensor }
            | Mutation::ShortStorage { tensor }
            | Mutation::Misalign { tensor }
            | Mutation::Null { tensor } => {
                if let Some(target) = find(plan, tensor) {
                    self.damage(target);
                }
            }
        }
    }

    fn damage(&self, target: &mut crate::plan::TensorPlan) {
        match &self.mutation {
            Mutation::TensorDtype { dtype, .. } => target.layout.dtype = *dtype,
            Mutation::LongerAxis { .. } => {
                if let Some(last) = target.layout.shape.last_mut() {
                    *last += 1;
                }
            }
            Mutation::NarrowStride { .. } => {
                target.layout.row_stride = target.layout.width().saturating_sub(1);
            }
            Mutation::ShortStorage { .. } => {
                target.bytes =
                    target.layout.required_bytes().unwrap_or(target.bytes).saturating_sub(1);
            }
            Mutation::Misalign { .. } => target.address += 1,
            Mutation::Null { .. } => target.address = 0,
            _ => {}
        }
    }

    /// Writes the bad value into memory; does nothing for faults in the plan or another tensor.
    ///
    /// # Errors
    /// `Missing` when the value names a dimension that the call does not give.
    pub fn apply_to_memory(
        &self,
        call: &Call,
        target: &mut OwnedTensor,
    ) -> Result<(), ContractError> {
        let Mutation::Value { tensor, row, column, value } = &self.mutation else {
            return Ok(());
        };
        if target.name != *tensor {
            return Ok(());
        }
        let dtype = target.layout.dtype;
        let bits = match value {
            DeviceValue::Int(value) => *value as u64,
            DeviceValue::Dim(name) => call.dim(name)?,
            DeviceValue::Float(value) => crate::rounding::encode(dtype, *value),
        };
        target.view_mut().set_bits(*row, *column, bits);
        Ok(())
    }
}

fn find<'a>(plan: &'a mut CallPlan, name: &str) -> Option<&'a mut crate::plan::TensorPlan> {
    plan.tensors.iter_mut().find(|tensor| tensor.name == name)
}

/// Recomputes the tensors' geometry from the call, as far as the call still makes sense.
fn reshape(plan: &mut CallPlan) {
    for spec in plan.call.tensors() {
        let Ok(shape) = plan.call.shape_of(spec) else {
            continue;
        };
        let dtype = plan.call.dtype_of(spec);
        if let Some(target) = plan.tensors.iter_mut().find(|tensor| tensor.name == spec.name) {
            target.layout = TensorLayout::contiguous(dtype, &shape);
            target.bytes = target.layout.required_bytes().unwrap_or(target.bytes);
        }
    }
}

/// The refusals that follow from an operator's spec alone.
pub(crate) fn common(call: &Call) -> Vec<Refusal> {
    let mut refusals = vec![Refusal {
        name: "dtype-unsupported".into(),
        mutation: Mutation::CallDtype(Dtype::F8E4M3),
        kind: ErrorKind::Unsupported,
        argument: "dtype",
    }];
    for dim in call.operator.dims {
        if dim.min > 0 {
            refusals.push(Refusal {
                name: format!("{}-zero", dim.name).into(),
                mutation: Mutation::Dim { name: dim.name, size: 0 },
                kind: ErrorKind::ZeroDimension,
                argument: dim.name,
            });
        }
    }
    if let Some(first) = call.tensors().next() {
        refusals.push(Refusal {
            name: "rows-overflow".into(),
            mutation: Mutation::Dim { name: "rows", size: 1 << 62 },
            kind: ErrorKind::Overflow,
            argument: first.name,
        });
    }
    for tensor in call.tensors() {
        refusals.extend(common_to_tensor(call, tensor));
    }
    refusals
}

fn common_to_tensor(call: &Call, tensor: &'static crate::spec::TensorSpec) -> Vec<Refusal> {
    let name = tensor.name;
    let dtype = call.dtype_of(tensor);
    let other = if dtype == Dtype::I64 { Dtype::I32 } else { Dtype::U8 };
    let refusal = |fault: &str, mutation, kind| Refusal {
        name: format!("{name}-{fault}").into(),
        mutation,
        kind,
        argument: name,
    };
    let mut refusals = vec![
        refusal(
            "dtype",
            Mutation::TensorDtype { tensor: name, dtype: other },
            ErrorKind::DtypeMismatch,
        ),
        refusal("length", Mutation::LongerAxis { tensor: name }, ErrorKind::LengthMismatch),
        refusal("stride", Mutation::NarrowStride { tensor: name }, ErrorKind::BadStride),
        refusal("storage", Mutation::ShortStorage { tensor: name }, ErrorKind::StorageTooShort),
        refusal("null", Mutation::Null { tensor: name }, ErrorKind::NullPointer),
    ];
    if dtype.size() > 1 {
        refusals.push(refusal(
            "misaligned",
            Mutation::Misalign { tensor: name },
            ErrorKind::Misaligned,
        ));
    }
    if tensor.role.is_written() {
        for onto in call.tensors().filter(|other| other.name != name) {
            let position = |wanted: &str| call.tensors().position(|spec| spec.name == wanted);
            let earlier = onto.role.is_written() && position(onto.name) < position(name);
            refusals.push(Refusal {
                name: format!("{name}-overlaps-{}", onto.name).into(),
                mutation: Mutation::Alias { tensor: name, onto: onto.name },
                kind: ErrorKind::Overlap,
                argument: if earlier { onto.name } else { name },
            });
        }
    }
    refusals
}

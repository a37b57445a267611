//! A call and the memory it would touch, as plain data, and the checks before launch.

use crate::call::Call;
use crate::error::{ContractError, ErrorKind};
use crate::spec::{Role, TensorSpec};
use crate::tensor::{TensorLayout, TensorMut, TensorView};

/// One tensor of a planned call: geometry and memory region.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TensorPlan {
    /// The tensor's name in its operator.
    pub name: &'static str,
    /// Read, written or both.
    pub role: Role,
    /// Where the elements lie in the storage.
    pub layout: TensorLayout,
    /// Address of the first byte of the storage.
    pub address: u64,
    /// Length of the storage, in bytes.
    pub bytes: u64,
}

impl TensorPlan {
    /// Address of the first element; wraps like pointer arithmetic does.
    #[must_use]
    pub const fn first_element(&self) -> u64 {
        self.address.wrapping_add(self.layout.offset.wrapping_mul(self.layout.dtype.size() as u64))
    }
}

/// A call and the regions it would touch, as plain data: what every backend refuses or accepts before launch.
#[derive(Clone, Debug, PartialEq)]
pub struct CallPlan {
    /// The call.
    pub call: Call,
    /// Its tensors, in calling order.
    pub tensors: Vec<TensorPlan>,
}

impl CallPlan {
    /// Describes operands that are already in memory: `inputs` are the read-only tensors and `outputs` the
    /// written ones, each in calling order.
    ///
    /// # Errors
    /// As [`Call::validate`]; then `Missing` or `Unknown` when the number of operands is not the contract's.
    pub fn of_operands(
        call: &Call,
        inputs: &[TensorView<'_>],
        outputs: &[TensorMut<'_>],
    ) -> Result<Self, ContractError> {
        call.validate()?;
        let mut inputs = inputs.iter();
        let mut outputs = outputs.iter();
        let mut tensors = Vec::new();
        for spec in call.tensors() {
            let operand = if spec.role.is_written() {
                outputs.next().map(|tensor| (&tensor.layout, &*tensor.bytes))
            } else {
                inputs.next().map(|tensor| (&tensor.layout, tensor.bytes))
            };
            let (layout, bytes) = operand
                .ok_or_else(|| call.error(spec.name, ErrorKind::Missing).accepted(spec.meaning))?;
            tensors.push(TensorPlan {
                name: spec.name,
                role: spec.role,
                layout: layout.clone(),
                address: bytes.as_ptr() as usize as u64,
                bytes: bytes.len() as u64,
            });
        }
        let surplus = inputs.count() + outputs.count();
        if surplus > 0 {
            return Err(call
                .error("operands", ErrorKind::Unknown)
                .found(format_args!("{surplus} more than the contract has"))
                .accepted(format_args!("{} tensors", tensors.len())));
        }
        Ok(Self { call: call.clone(), tensors })
    }

    /// The tensor of that name.
    #[must_use]
    pub fn tensor(&self, name: &str) -> Option<&TensorPlan> {
        self.tensors.iter().find(|tensor| tensor.name == name)
    }

    /// Checks everything that can be checked before launch.
    ///
    /// # Errors
    /// The first fault: first what [`Call::validate`] finds, then, tensor by tensor in calling order, presence,
    /// dtype, shape, stride, storage, null and alignment, and last overlap (which names the mutable region; of
    /// two, the earlier).
    pub fn validate(&self) -> Result<(), ContractError> {
        self.call.validate()?;
        for spec in self.call.tensors() {
            let plan = self.tensor(spec.name).ok_or_else(|| {
                self.call.error(spec.name, ErrorKind::Missing).accepted(spec.meaning)
            })?;
            self.validate_geometry(spec, plan)?;
            self.validate_region(plan)?;
        }
        self.validate_overlap()
    }

    fn validate_geometry(&self, spec: &TensorSpec, plan: &TensorPlan) -> Result<(), ContractError> {
        let error = |kind| self.call.error(spec.name, kind);
        let dtype = self.call.dtype_of(spec);
        if plan.layout.dtype != dtype {
            return Err(error(ErrorKind::DtypeMismatch).found(plan.layout.dtype).accepted(dtype));
        }
        let shape = self.call.shape_of(spec)?;
        if plan.layout.shape != shape {
            return Err(error(ErrorKind::LengthMismatch)
                .found(format_args!("{:?}", plan.layout.shape))
                .accepted(format_args!("{shape:?}")));
        }
        let (stride, width) = (plan.layout.row_stride, plan.layout.width());
        if stride < width || (!spec.strided && stride != width && plan.layout.rows() > 1) {
            let relation = if spec.strided { "at least" } else { "exactly" };
            return Err(error(ErrorKind::BadStride)
                .found(format_args!("a row stride of {stride}"))
                .accepted(format_args!("{relation} {width}, the row's width")));
        }
        Ok(())
    }

    fn validate_region(&self, plan: &TensorPlan) -> Result<(), ContractError> {
        let error = |kind| self.call.error(plan.name, kind);
        let required =
            plan.layout.required_bytes().filter(|bytes| i64::try_from(*bytes).is_ok()).ok_or_else(
                || error(ErrorKind::Overflow).found(format_args!("{:?}", plan.layout)),
            )?;
        if plan.bytes < required {
            return Err(error(ErrorKind::StorageTooShort)
                .found(format_args!("{} bytes", plan.bytes))
                .accepted(format_args!("at least {required} bytes")));
        }
        if required == 0 {
            return Ok(());
        }
        if plan.address == 0 {
            return Err(error(ErrorKind::NullPointer)
                .found("address 0")
                .accepted("a valid address"));
        }
        let size = plan.layout.dtype.size() as u64;
        if !plan.first_element().is_multiple_of(size) {
            return Err(error(ErrorKind::Misaligned)
                .found(format_args!("address {:#x}", plan.first_element()))
                .accepted(format_args!("a multiple of {size}")));
        }
        Ok(())
    }

    fn validate_overlap(&self) -> Result<(), ContractError> {
        for (place, written) in self.tensors.iter().enumerate() {
            if !written.role.is_written() {
                continue;
            }
            for (other_place, other) in self.tensors.iter().enumerate() {
                if place != other_place && overlap(written, other) {
                    return Err(self
                        .call
                        .error(written.name, ErrorKind::Overlap)
                        .found(format_args!("bytes shared with `{}`", other.name))
                        .accepted("a region of its own"));
                }
            }
        }
        Ok(())
    }
}

/// Whether two tensors share an element's bytes, windows of one packed matrix told apart by their columns.
fn overlap(left: &TensorPlan, right: &TensorPlan) -> bool {
    let extent = |plan: &TensorPlan| {
        let size = plan.layout.dtype.size() as u64;
        let bytes = plan.layout.required_bytes().unwrap_or(u64::MAX);
        let start = plan.first_element();
        (start, start.saturating_add(bytes.saturating_sub(plan.layout.offset * size)))
    };
    if left.layout.elements() == 0 || right.layout.elements() == 0 {
        return false;
    }
    let ((left_start, left_end), (right_start, right_end)) = (extent(left), extent(right));
    if left_end <= right_start || right_end <= left_start {
        return false;
    }
    // The stride of a single row is bounded by nothing before.
    let row_bytes = |plan: &TensorPlan| {
        let bytes = plan.layout.row_stride.saturating_mul(plan.layout.dtype.size() as u64);
        bytes.min(i64::MAX as u64)
    };
    let stride = row_bytes(left);
    if stride != row_bytes(right) {
        return true;
    }
    let width_bytes = |plan: &TensorPlan| plan.layout.width() * plan.layout.dtype.size() as u64;
    let shift = right_start.wrapping_sub(left_start) as i64;
    let shift = shift.rem_euclid(stride as i64) as u64;
    !(shift >= width_bytes(left) && shift + width_bytes(right) <= stride)
}

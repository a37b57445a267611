//! A call of an operator: its sizes and parameters, and all the validation that needs no memory.

use std::collections::BTreeMap;
use std::fmt;

use crate::dtype::Dtype;
use crate::error::{ContractError, ErrorKind};
use crate::layout::Layout;
use crate::plan::{CallPlan, TensorPlan};
use crate::spec::{DtypeRule, Extent, OperatorSpec, ParamValue, Role, TensorSpec};
use crate::tensor::TensorLayout;

/// Whether values that live on the device (ids, probabilities, logits) are checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Mode {
    /// The first bad value is an error that names argument and row; the outputs are then unspecified.
    Checked,
    /// A bad value is skipped and marked as the operator says; nothing is read or written out of bounds.
    Unchecked,
}

/// An operator with its sizes, dtype and parameters: all that is known before there is any memory.
#[derive(Clone, Debug, PartialEq)]
pub struct Call {
    /// The operator.
    pub operator: &'static OperatorSpec,
    /// The activation dtype.
    pub dtype: Dtype,
    /// Sizes by name.
    pub dims: BTreeMap<String, u64>,
    /// Parameters by name; absent ones have their defaults.
    pub params: BTreeMap<String, ParamValue>,
}

/// Bytes that an ideal implementation moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Traffic {
    /// Bytes read from memory.
    pub read_bytes: u64,
    /// Bytes written to memory.
    pub written_bytes: u64,
}

impl Call {
    /// Names a call; nothing but the operator's name is checked here, see [`Call::validate`].
    ///
    /// # Errors
    /// `Unknown` when no operator has that name.
    pub fn new(
        operator: &str,
        dtype: Dtype,
        dims: &[(&str, u64)],
        params: &[(&str, ParamValue)],
    ) -> Result<Self, ContractError> {
        let owned = |name: &&str| (*name).to_owned();
        Ok(Self {
            operator: crate::find_operator(operator)?,
            dtype,
            dims: dims.iter().map(|(name, size)| (owned(name), *size)).collect(),
            params: params.iter().map(|(name, value)| (owned(name), *value)).collect(),
        })
    }

    pub(crate) fn error(
        &self,
        argument: impl Into<std::borrow::Cow<'static, str>>,
        kind: ErrorKind,
    ) -> ContractError {
        ContractError::new(self.operator.name, argument, kind)
    }

    /// The size of a dimension.
    ///
    /// # Errors
    /// `Missing` when the call does not give it.
    pub fn dim(&self, name: &'static str) -> Result<u64, ContractError> {
        self.dims
            .get(name)
            .copied()
            .ok_or_else(|| self.error(name, ErrorKind::Missing).accepted("a size"))
    }

    /// The value of a parameter, or its default.
    ///
    /// # Errors
    /// `Unknown` when the operator has no such parameter.
    pub fn param(&self, name: &'static str) -> Result<ParamValue, ContractError> {
        let spec = self.operator.param(name).ok_or_else(|| self.error(name, ErrorKind::Unknown))?;
        Ok(self.params.get(name).copied().unwrap_or(spec.default))
    }

    /// The value of a real parameter.
    ///
    /// # Errors
    /// `Unknown`, or `DtypeMismatch` when it is not a real number.
    pub fn float(&self, name: &'static str) -> Result<f64, ContractError> {
        match self.param(name)? {
            ParamValue::Float(value) => Ok(value),
            other => Err(self.wrong_type(name, other, "float")),
        }
    }

    /// The value of an integer parameter.
    ///
    /// # Errors
    /// `Unknown`, or `DtypeMismatch` when it is not an integer.
    pub fn int(&self, name: &'static str) -> Result<i64, ContractError> {
        match self.param(name)? {
            ParamValue::Int(value) => Ok(value),
            other => Err(self.wrong_type(name, other, "int")),
        }
    }

    /// The value of a switch.
    ///
    /// # Errors
    /// `Unknown`, or `DtypeMismatch` when it is not a switch.
    pub fn flag(&self, name: &'static str) -> Result<bool, ContractError> {
        match self.param(name)? {
            ParamValue::Bool(value) => Ok(value),
            other => Err(self.wrong_type(name, other, "bool")),
        }
    }

    fn wrong_type(&self, name: &'static str, found: ParamValue, accepted: &str) -> ContractError {
        self.error(name, ErrorKind::DtypeMismatch)
            .found(format_args!("{} {found}", found.kind()))
            .accepted(accepted)
    }

    /// The tensors that are part of this call, in calling order.
    pub fn tensors(&self) -> impl Iterator<Item = &'static TensorSpec> + '_ {
        self.operator.tensors.iter().filter(|tensor| {
            tensor.present_when.is_none_or(|switch| self.flag(switch).unwrap_or(false))
        })
    }

    /// The tensors that are only read, in calling order.
    pub fn inputs(&self) -> impl Iterator<Item = &'static TensorSpec> + '_ {
        self.tensors().filter(|tensor| tensor.role == Role::In)
    }

    /// The tensors that are written, in calling order.
    pub fn outputs(&self) -> impl Iterator<Item = &'static TensorSpec> + '_ {
        self.tensors().filter(|tensor| tensor.role.is_written())
    }

    /// The element type of a tensor in this call.
    #[must_use]
    pub const fn dtype_of(&self, tensor: &TensorSpec) -> Dtype {
        match tensor.dtype {
            DtypeRule::Activation => self.dtype,
            DtypeRule::Fixed(dtype) => dtype,
        }
    }

    /// The shape of a tensor in this call.
    ///
    /// # Errors
    /// `Missing` or `DtypeMismatch` from the sizes it is built of; `Overflow`.
    pub fn shape_of(&self, tensor: &TensorSpec) -> Result<Vec<u64>, ContractError> {
        let overflow = || self.overflow(tensor.name);
        tensor
            .shape
            .iter()
            .map(|extent| match *extent {
                Extent::Dim(name) => self.dim(name),
                Extent::Twice(name) => self.dim(name)?.checked_mul(2).ok_or_else(overflow),
                Extent::Const(length) => Ok(length),
                Extent::ParamPlusOne(name) => u64::try_from(self.int(name)?)
                    .ok()
                    .and_then(|value| value.checked_add(1))
                    .ok_or_else(overflow),
            })
            .collect()
    }

    fn overflow(&self, tensor: &'static str) -> ContractError {
        self.error(tensor, ErrorKind::Overflow)
            .found(format_args!("dimensions {}", Sizes(&self.dims)))
            .accepted("a tensor of at most 2^63 - 1 bytes")
    }

    /// Bytes that an ideal implementation reads and writes: every tensor as often as its spec says.
    ///
    /// # Errors
    /// As [`Call::validate`], and `Overflow` when the sum over all tensors does not fit.
    pub fn traffic(&self) -> Result<Traffic, ContractError> {
        self.validate()?;
        let mut traffic = Traffic { read_bytes: 0, written_bytes: 0 };
        for tensor in self.tensors() {
            let layout = TensorLayout::contiguous(self.dtype_of(tensor), &self.shape_of(tensor)?);
            let bytes = layout.elements() * layout.dtype.size() as u64;
            let add = |sum: u64, times: u64| bytes.checked_mul(times)?.checked_add(sum);
            let sums = add(traffic.read_bytes, tensor.reads)
                .zip(add(traffic.written_bytes, tensor.writes))
                .ok_or_else(|| self.overflow(tensor.name))?;
            (traffic.read_bytes, traffic.written_bytes) = sums;
        }
        Ok(traffic)
    }

    /// Checks dtype, dimensions and parameters: everything that needs no memory.
    ///
    /// # Errors
    /// The first fault, in this order: dtype, dimensions, parameters, constraints between them, overflow.
    pub fn validate(&self) -> Result<(), ContractError> {
        if !self.operator.dtypes.contains(&self.dtype) {
            let names: Vec<_> = self.operator.dtypes.iter().map(|dtype| dtype.name()).collect();
            return Err(self
                .error("dtype", ErrorKind::Unsupported)
                .found(self.dtype)
                .accepted(names.join(", ")));
        }
        self.validate_dims()?;
        self.validate_params()?;
        self.validate_params_beside_dims()?;
        for tensor in self.tensors() {
            let shape = self.shape_of(tensor)?;
            TensorLayout::contiguous(self.dtype_of(tensor), &shape)
                .required_bytes()
                .filter(|bytes| i64::try_from(*bytes).is_ok())
                .ok_or_else(|| self.overflow(tensor.name))?;
        }
        Ok(())
    }

    fn validate_dims(&self) -> Result<(), ContractError> {
        for dim in self.operator.dims {
            if self.dim(dim.name)? < dim.min {
                return Err(self
                    .error(dim.name, ErrorKind::ZeroDimension)
                    .found(0)
                    .accepted(format_args!("at least {}", dim.min)));
            }
        }
        let known = |name: &String| self.operator.dims.iter().any(|dim| dim.name == name);
        match self.dims.keys().find(|name| !known(name)) {
            None => Ok(()),
            Some(name) => {
                let names: Vec<_> = self.operator.dims.iter().map(|dim| dim.name).collect();
                Err(self
                    .error(name.clone(), ErrorKind::Unknown)
                    .found("a dimension of that name")
                    .accepted(names.join(", ")))
            }
        }
    }

    fn validate_params(&self) -> Result<(), ContractError> {
        for (name, value) in &self.params {
            let Some(spec) = self.operator.param(name) else {
                let names: Vec<_> = self.operator.params.iter().map(|param| param.name).collect();
                return Err(self
                    .error(name.clone(), ErrorKind::Unknown)
                    .found("a parameter of that name")
                    .accepted(if names.is_empty() {
                        "no parameters".to_owned()
                    } else {
                        names.join(", ")
                    }));
            };
            spec.domain.admits(*value).map_err(|kind| {
                self.error(spec.name, kind)
                    .found(format_args!("{} {value}", value.kind()))
                    .accepted(format_args!("{} {}", spec.default.kind(), spec.domain))
            })?;
        }
        Ok(())
    }

    /// Parameters that a dimension bounds; defaults are held to it, too.
    fn validate_params_beside_dims(&self) -> Result<(), ContractError> {
        for spec in self.operator.params {
            let Some(dim) = spec.domain.most_dim() else { continue };
            let (value, size) = (self.int(spec.name)?, self.dim(dim)?);
            if !u64::try_from(value).is_ok_and(|value| value <= size) {
                return Err(self
                    .error(spec.name, ErrorKind::OutOfRange)
                    .found(value)
                    .accepted(format_args!("at most {dim}, {size}")));
            }
        }
        Ok(())
    }

    /// Describes the call's tensors in memory of their own, at made-up addresses.
    ///
    /// # Errors
    /// As [`Call::validate`], and `Overflow` when the layout's gaps make a tensor too large.
    pub fn plan(&self, layout: Layout) -> Result<CallPlan, ContractError> {
        self.validate()?;
        let mut address = 1 << 16;
        let mut tensors = Vec::new();
        for spec in self.tensors() {
            let placed = layout.place(self.dtype_of(spec), &self.shape_of(spec)?, spec.strided);
            let bytes = placed
                .required_bytes()
                .filter(|bytes| *bytes < 1 << 60)
                .ok_or_else(|| self.overflow(spec.name))?;
            tensors.push(TensorPlan {
                name: spec.name,
                role: spec.role,
                layout: placed,
                address,
                bytes,
            });
            address = (address + bytes).next_multiple_of(1 << 12) + (1 << 12);
        }
        Ok(CallPlan { call: self.clone(), tensors })
    }
}

/// Sizes as `rows=2 hidden=4`.
struct Sizes<'a>(&'a BTreeMap<String, u64>);

impl fmt::Display for Sizes<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (place, (name, size)) in self.0.iter().enumerate() {
            let gap = if place == 0 { "" } else { " " };
            write!(f, "{gap}{name}={size}")?;
        }
        Ok(())
    }
}

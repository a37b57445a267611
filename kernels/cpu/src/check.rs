//! Acceptance of a call: a fast yes without allocation, and the contract's own words for every no.

use proofhouse_contract::spec::Extent;
use proofhouse_contract::{
    Call, CallPlan, ContractError, Dtype, OperatorSpec, ParamValue, TensorLayout, TensorMut,
    TensorPlan, TensorSpec, TensorView,
};

/// Names and values of a call that is not yet a [`Call`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct Signature<'a> {
    /// The operator.
    pub operator: &'static OperatorSpec,
    /// The activation dtype.
    pub dtype: Dtype,
    /// Sizes by name.
    pub dims: &'a [(&'static str, u64)],
    /// Parameters by name.
    pub params: &'a [(&'static str, ParamValue)],
}

/// Where sizes and parameters come from.
pub(crate) trait Arguments {
    fn operator(&self) -> &'static OperatorSpec;
    fn dtype(&self) -> Dtype;
    fn dim(&self, name: &str) -> Option<u64>;
    fn param(&self, name: &str) -> Option<ParamValue>;
    /// Whether a dimension or parameter is named that the operator does not have.
    fn has_strangers(&self) -> bool;
    /// The same as a call of the contract.
    fn call(&self) -> Result<Call, ContractError>;
}

impl Arguments for Signature<'_> {
    fn operator(&self) -> &'static OperatorSpec {
        self.operator
    }

    fn dtype(&self) -> Dtype {
        self.dtype
    }

    fn dim(&self, name: &str) -> Option<u64> {
        self.dims.iter().find(|(known, _)| *known == name).map(|(_, size)| *size)
    }

    fn param(&self, name: &str) -> Option<ParamValue> {
        self.params.iter().find(|(known, _)| *known == name).map(|(_, value)| *value)
    }

    fn has_strangers(&self) -> bool {
        false
    }

    fn call(&self) -> Result<Call, ContractError> {
        Call::new(self.operator.name, self.dtype, self.dims, self.params)
    }
}

impl Arguments for Call {
    fn operator(&self) -> &'static OperatorSpec {
        self.operator
    }

    fn dtype(&self) -> Dtype {
        self.dtype
    }

    fn dim(&self, name: &str) -> Option<u64> {
        self.dims.get(name).copied()
    }

    fn param(&self, name: &str) -> Option<ParamValue> {
        self.params.get(name).copied()
    }

    fn has_strangers(&self) -> bool {
        self.dims.len() != self.operator.dims.len()
            || self.params.keys().any(|name| self.operator.param(name).is_none())
    }

    fn call(&self) -> Result<Call, ContractError> {
        Ok(self.clone())
    }
}

/// A tensor's geometry and region, whoever may write it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Operand<'a> {
    layout: &'a TensorLayout,
    address: usize,
    bytes: usize,
}

impl<'a> From<&'a TensorView<'_>> for Operand<'a> {
    fn from(view: &'a TensorView<'_>) -> Self {
        Self {
            layout: &view.layout,
            address: view.bytes.as_ptr() as usize,
            bytes: view.bytes.len(),
        }
    }
}

impl<'a> From<&'a TensorMut<'_>> for Operand<'a> {
    fn from(tensor: &'a TensorMut<'_>) -> Self {
        Self {
            layout: &tensor.layout,
            address: tensor.bytes.as_ptr() as usize,
            bytes: tensor.bytes.len(),
        }
    }
}

impl<'a> From<&'a TensorPlan> for Operand<'a> {
    fn from(plan: &'a TensorPlan) -> Self {
        Self { layout: &plan.layout, address: plan.address as usize, bytes: plan.bytes as usize }
    }
}

impl Operand<'_> {
    /// Addresses of the first element and behind the last; `None` when the storage is null or too short.
    fn extent(&self) -> Option<(usize, usize)> {
        let end = usize::try_from(self.layout.required_bytes()?).ok()?;
        let start =
            usize::try_from(self.layout.offset).ok()?.checked_mul(self.layout.dtype.size())?;
        (end <= self.bytes && self.address != 0)
            .then(|| (self.address + start.min(end), self.address + end))
    }
}

/// Most operands that an operator here has.
const MOST: usize = 8;

/// Accepts a call or says why not: what [`CallPlan::validate`] says.
///
/// `inputs` are the read-only tensors and `outputs` the written ones, each in calling order.
pub(crate) fn accept<'a>(
    arguments: &impl Arguments,
    inputs: impl Iterator<Item = Operand<'a>> + Clone,
    outputs: impl Iterator<Item = Operand<'a>> + Clone,
) -> Result<(), ContractError> {
    if is_plainly_valid(arguments, inputs.clone(), outputs.clone()) {
        return Ok(());
    }
    let call = arguments.call()?;
    call.validate()?;
    plan(&call, inputs, outputs)?.validate()
}

/// Whether a call is valid beyond doubt; `false` is no refusal, only a reason to look closely.
fn is_plainly_valid<'a>(
    arguments: &impl Arguments,
    mut inputs: impl Iterator<Item = Operand<'a>>,
    mut outputs: impl Iterator<Item = Operand<'a>>,
) -> bool {
    let operator = arguments.operator();
    if !has_valid_values(arguments) {
        return false;
    }
    let mut extents = [(0usize, 0usize, false); MOST];
    let mut count = 0;
    for spec in operator.tensors.iter().filter(|spec| is_present(arguments, spec)) {
        let written = spec.role.is_written();
        let operand = if written { outputs.next() } else { inputs.next() };
        let Some(operand) =
            operand.filter(|operand| has_its_shape(arguments, spec, operand.layout))
        else {
            return false;
        };
        let Some((start, end)) = operand.extent() else {
            return false;
        };
        if !start.is_multiple_of(operand.layout.dtype.size()) || count == MOST {
            return false;
        }
        extents[count] = (start, end, written);
        count += 1;
    }
    inputs.next().is_none() && outputs.next().is_none() && are_apart(&extents[..count])
}

/// Whether no written region touches another one.
fn are_apart(extents: &[(usize, usize, bool)]) -> bool {
    extents.iter().enumerate().all(|(place, (start, end, written))| {
        extents[place + 1..].iter().all(|(other_start, other_end, other_written)| {
            !(*written || *other_written) || end <= other_start || other_end <= start
        })
    })
}

fn has_valid_values(arguments: &impl Arguments) -> bool {
    let operator = arguments.operator();
    let dims =
        operator.dims.iter().all(|dim| arguments.dim(dim.name).is_some_and(|size| size >= dim.min));
    let params = operator.params.iter().all(|param| {
        let value = arguments.param(param.name).unwrap_or(param.default);
        let fits = match (param.domain.most_dim(), value) {
            (Some(dim), ParamValue::Int(value)) => u64::try_from(value)
                .is_ok_and(|value| arguments.dim(dim).is_some_and(|size| value <= size)),
            _ => true,
        };
        fits && param.domain.admits(value).is_ok()
    });
    dims && params && operator.dtypes.contains(&arguments.dtype()) && !arguments.has_strangers()
}

fn is_present(arguments: &impl Arguments, spec: &TensorSpec) -> bool {
    spec.present_when.is_none_or(|switch| {
        let default = arguments.operator().param(switch).map(|param| param.default);
        arguments.param(switch).or(default) == Some(ParamValue::Bool(true))
    })
}

fn has_its_shape(arguments: &impl Arguments, spec: &TensorSpec, layout: &TensorLayout) -> bool {
    let extent = |extent: &Extent| match *extent {
        Extent::Dim(name) => arguments.dim(name),
        Extent::Twice(name) => arguments.dim(name)?.checked_mul(2),
        Extent::Const(length) => Some(length),
        Extent::ParamPlusOne(name) => {
            let default = arguments.operator().param(name).map(|param| param.default);
            match arguments.param(name).or(default)? {
                ParamValue::Int(value) => u64::try_from(value).ok()?.checked_add(1),
                ParamValue::Float(_) | ParamValue::Bool(_) => None,
            }
        }
    };
    let width = layout.width();
    layout.dtype == spec.dtype.resolve(arguments.dtype())
        && layout.shape.len() == spec.shape.len()
        && spec
            .shape
            .iter()
            .zip(&layout.shape)
            .all(|(wanted, found)| extent(wanted) == Some(*found))
        && (layout.row_stride == width || (spec.strided && layout.row_stride > width))
}

/// The operands as the contract's validator wants them.
fn plan<'a>(
    call: &Call,
    mut inputs: impl Iterator<Item = Operand<'a>>,
    mut outputs: impl Iterator<Item = Operand<'a>>,
) -> Result<CallPlan, ContractError> {
    use proofhouse_contract::ErrorKind;
    let mut tensors = Vec::new();
    for spec in call.tensors() {
        let operand = if spec.role.is_written() { outputs.next() } else { inputs.next() };
        let operand = operand.ok_or_else(|| {
            ContractError::new(call.operator.name, spec.name, ErrorKind::Missing)
                .accepted(spec.meaning)
        })?;
        tensors.push(TensorPlan {
            name: spec.name,
            role: spec.role,
            layout: operand.layout.clone(),
            address: operand.address as u64,
            bytes: operand.bytes as u64,
        });
    }
    let surplus = inputs.count() + outputs.count();
    if surplus > 0 {
        return Err(ContractError::new(call.operator.name, "operands", ErrorKind::Unknown)
            .found(format_args!("{surplus} more than the contract has"))
            .accepted(format_args!("{} tensors", tensors.len())));
    }
    Ok(CallPlan { call: call.clone(), tensors })
}

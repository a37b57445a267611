//! What an operator is, as static data: dimensions, parameters, tensors, traffic, tolerance, refusals.

use std::fmt;

use crate::call::Call;
use crate::compare::{Comparison, Judging, Tolerance};
use crate::dtype::Dtype;
use crate::error::{ContractError, ErrorKind};
use crate::operands::Operands;
use crate::refusal::Refusal;
use crate::values::ValueClass;

/// Everything there is to know about one operator.
///
/// The public fields are data for catalogs and documents; the functions behind them are reached through
/// [`crate::run_oracle`], [`crate::check`], [`OperatorSpec::tolerance`] and [`Call`].
pub struct OperatorSpec {
    /// The one name of the operator in Rust, device sources, TOML and Python.
    pub name: &'static str,
    /// What it computes, in one or two sentences.
    pub summary: &'static str,
    /// Named sizes that shapes are built from.
    pub dims: &'static [DimSpec],
    /// Scalar parameters, known before launch.
    pub params: &'static [ParamSpec],
    /// Tensors, in calling order.
    pub tensors: &'static [TensorSpec],
    /// Element types that [`DtypeRule::Activation`] may stand for.
    pub dtypes: &'static [Dtype],
    /// Value classes that its correctness gates draw from.
    pub values: &'static [ValueClass],
    /// What a NaN among the activations means.
    pub nan: NanRule,
    /// What is promised from run to run and from batch to batch.
    pub determinism: Determinism,
    /// Refusals beyond those that follow from the spec, in groups; [`OperatorSpec::refusals`] joins them all.
    pub own_refusals: &'static [&'static [Refusal]],
    pub(crate) oracle: fn(&mut Operands<'_, '_>) -> Result<(), ContractError>,
    pub(crate) tolerance: fn(&Call, &TensorSpec) -> Tolerance,
    pub(crate) judge: Option<JudgeFn>,
}

/// Judges all outputs of an operator whose rule needs more than the expected values.
pub(crate) type JudgeFn = fn(&Judging<'_>) -> Result<Vec<Comparison>, ContractError>;

impl OperatorSpec {
    /// The tensor of that name.
    #[must_use]
    pub fn tensor(&self, name: &str) -> Option<&'static TensorSpec> {
        self.tensors.iter().find(|tensor| tensor.name == name)
    }

    /// The parameter of that name.
    #[must_use]
    pub fn param(&self, name: &str) -> Option<&'static ParamSpec> {
        self.params.iter().find(|param| param.name == name)
    }

    /// How far an output may be from the oracle's, for this call, and why.
    ///
    /// # Errors
    /// `Unknown` when the operator has no tensor of that name.
    pub fn tolerance(&self, call: &Call, tensor: &str) -> Result<Tolerance, ContractError> {
        let spec = self.tensor(tensor).ok_or_else(|| {
            ContractError::new(self.name, "tensor", ErrorKind::Unknown).found(tensor)
        })?;
        Ok((self.tolerance)(call, spec))
    }

    /// The invalid variants of a valid call and the error that each must get.
    ///
    /// The common ones come first. They are meant for a call with at least two rows and a contiguous layout.
    #[must_use]
    pub fn refusals(&self, call: &Call) -> Vec<Refusal> {
        let mut refusals = crate::refusal::common(call);
        refusals.extend(
            self.own_refusals
                .iter()
                .copied()
                .flatten()
                .filter(|refusal| refusal.applies_to(call))
                .cloned(),
        );
        refusals
    }
}

impl fmt::Debug for OperatorSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OperatorSpec").field("name", &self.name).finish_non_exhaustive()
    }
}

impl PartialEq for OperatorSpec {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

/// A named size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DimSpec {
    /// Name, unique within the operator.
    pub name: &'static str,
    /// What it counts.
    pub meaning: &'static str,
    /// Smallest accepted value: 0 where an empty call is valid, else 1.
    pub min: u64,
}

/// The value of a scalar parameter.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ParamValue {
    /// A real number.
    Float(f64),
    /// An integer.
    Int(i64),
    /// A switch.
    Bool(bool),
}

impl ParamValue {
    /// The type's name in catalogs: `float`, `int` or `bool`.
    #[must_use]
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::Float(_) => "float",
            Self::Int(_) => "int",
            Self::Bool(_) => "bool",
        }
    }
}

impl fmt::Display for ParamValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Float(value) => write!(f, "{value}"),
            Self::Int(value) => write!(f, "{value}"),
            Self::Bool(value) => write!(f, "{value}"),
        }
    }
}

/// A scalar parameter.
#[derive(Clone, Copy, Debug)]
pub struct ParamSpec {
    /// Name, unique within the operator.
    pub name: &'static str,
    /// What it does.
    pub meaning: &'static str,
    /// The value a call has when it names none; its variant is the parameter's type.
    pub default: ParamValue,
    /// The values it accepts.
    pub domain: Domain,
}

/// The values that a parameter accepts, as data: the validator, the catalog and the documents read the same.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Domain {
    /// Finite numbers above this one.
    Above(f64),
    /// Whole numbers in a range.
    Integers {
        /// The least one.
        least: i64,
        /// The largest one.
        most: i64,
        /// The dimension that it may not exceed either.
        most_dim: Option<&'static str>,
    },
    /// true or false.
    Switch,
}

impl Domain {
    /// Checks a value by itself; what a dimension allows is [`Domain::most_dim`]'s to say.
    ///
    /// # Errors
    /// `DtypeMismatch` for a value of another type, `NotFinite` or `OutOfRange`.
    pub fn admits(self, value: ParamValue) -> Result<(), ErrorKind> {
        match (self, value) {
            (Self::Above(_), ParamValue::Float(number)) if !number.is_finite() => {
                Err(ErrorKind::NotFinite)
            }
            (Self::Above(low), ParamValue::Float(number)) if number <= low => {
                Err(ErrorKind::OutOfRange)
            }
            (Self::Integers { least, most, .. }, ParamValue::Int(number))
                if !(least..=most).contains(&number) =>
            {
                Err(ErrorKind::OutOfRange)
            }
            (Self::Above(_), ParamValue::Float(_))
            | (Self::Integers { .. }, ParamValue::Int(_))
            | (Self::Switch, ParamValue::Bool(_)) => Ok(()),
            _ => Err(ErrorKind::DtypeMismatch),
        }
    }

    /// The dimension that the value may not exceed.
    #[must_use]
    pub const fn most_dim(self) -> Option<&'static str> {
        match self {
            Self::Integers { most_dim, .. } => most_dim,
            Self::Above(_) | Self::Switch => None,
        }
    }
}

impl fmt::Display for Domain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Above(low) => write!(f, "finite and above {low}"),
            Self::Integers { least, most, most_dim: None } => write!(f, "from {least} to {most}"),
            Self::Integers { least, most, most_dim: Some(dim) } => {
                write!(f, "from {least} to {most}, at most {dim}")
            }
            Self::Switch => f.write_str("true or false"),
        }
    }
}

/// Whether a tensor is read, written or both.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Role {
    /// Read only.
    In,
    /// Written only; its contents before the call do not matter.
    Out,
    /// Read, then overwritten.
    InOut,
}

impl Role {
    /// The role's name in catalogs: `in`, `out` or `in-out`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::In => "in",
            Self::Out => "out",
            Self::InOut => "in-out",
        }
    }

    /// Whether the call may write the tensor.
    #[must_use]
    pub const fn is_written(self) -> bool {
        matches!(self, Self::Out | Self::InOut)
    }
}

/// Which element type a tensor has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DtypeRule {
    /// The call's dtype.
    Activation,
    /// Always this one.
    Fixed(Dtype),
}

impl DtypeRule {
    /// The element type in a call of the given dtype.
    #[must_use]
    pub const fn resolve(self, activation: Dtype) -> Dtype {
        match self {
            Self::Activation => activation,
            Self::Fixed(dtype) => dtype,
        }
    }
}

/// One axis of a shape.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Extent {
    /// The dimension of that name.
    Dim(&'static str),
    /// Twice the dimension of that name.
    Twice(&'static str),
    /// A fixed length.
    Const(u64),
    /// The integer parameter of that name, plus one.
    ParamPlusOne(&'static str),
}

impl fmt::Display for Extent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Dim(name) => f.write_str(name),
            Self::Twice(name) => write!(f, "2*{name}"),
            Self::Const(length) => write!(f, "{length}"),
            Self::ParamPlusOne(name) => write!(f, "{name}+1"),
        }
    }
}

/// How far the largest magnitudes of [`ValueClass::Huge`] reach.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum HugeLimit {
    /// To the largest finite value of the element type.
    Finite,
    /// So far that the sum of a row's squares still fits F32; rows beyond that are outside the contract,
    /// because device arithmetic accumulates in F32.
    SquareSum,
    /// Half as far as [`HugeLimit::SquareSum`]: for tensors that are added before they are squared.
    HalvedSquareSum,
}

/// Where a tensor's contents before the call come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Source {
    /// Nothing: the call writes it.
    Nothing,
    /// The case's value class.
    Values(HugeLimit),
    /// The case's value class, spread four times as wide as activations where it is normal or uniform.
    Logits,
    /// The case's value class, and nearly the negative of the named tensor in [`ValueClass::Cancelling`].
    Counterpart(&'static str, HugeLimit),
    /// Weights: one plus a tenth of a normal value, whatever the class.
    Gains,
    /// Integers from 0 up to, not including, the dimension of that name.
    Ids(&'static str),
    /// Probabilities by row: 1/16, uniform over (0, 1), 0, then 1, repeating every four rows.
    Probabilities,
}

/// One tensor of an operator.
#[derive(Clone, Copy, Debug)]
pub struct TensorSpec {
    /// Name, unique within the operator.
    pub name: &'static str,
    /// What it holds.
    pub meaning: &'static str,
    /// Read, written or both.
    pub role: Role,
    /// Element type.
    pub dtype: DtypeRule,
    /// Axes, outermost first.
    pub shape: &'static [Extent],
    /// Whether rows may lie farther apart than their width.
    pub strided: bool,
    /// Where its contents come from.
    pub source: Source,
    /// The boolean parameter that must be true for the tensor to be part of the call.
    pub present_when: Option<&'static str>,
    /// How often an ideal implementation reads it from memory.
    pub reads: u64,
    /// How often an ideal implementation writes it to memory.
    pub writes: u64,
}

impl TensorSpec {
    /// A tensor that is read once; rows may be strided when it has more than one axis.
    pub(crate) const fn input(
        name: &'static str,
        meaning: &'static str,
        dtype: DtypeRule,
        shape: &'static [Extent],
        source: Source,
    ) -> Self {
        let strided = shape.len() > 1;
        let (role, present_when) = (Role::In, None);
        Self {
            name,
            meaning,
            role,
            dtype,
            shape,
            strided,
            source,
            present_when,
            reads: 1,
            writes: 0,
        }
    }

    /// A tensor that is written once.
    pub(crate) const fn output(
        name: &'static str,
        meaning: &'static str,
        dtype: DtypeRule,
        shape: &'static [Extent],
    ) -> Self {
        let read = Self::input(name, meaning, dtype, shape, Source::Nothing);
        Self { role: Role::Out, reads: 0, writes: 1, ..read }
    }

    /// A tensor that is read once and written once.
    pub(crate) const fn in_out(
        name: &'static str,
        meaning: &'static str,
        dtype: DtypeRule,
        shape: &'static [Extent],
        source: Source,
    ) -> Self {
        Self { role: Role::InOut, writes: 1, ..Self::input(name, meaning, dtype, shape, source) }
    }

    /// The same tensor, part of a call only when a switch is on.
    pub(crate) const fn only_with(self, switch: &'static str) -> Self {
        Self { present_when: Some(switch), ..self }
    }

    /// The same tensor, without gaps between its rows.
    pub(crate) const fn dense(self) -> Self {
        Self { strided: false, ..self }
    }
}

/// What a NaN among the activations means.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum NanRule {
    /// It spreads as arithmetic spreads it.
    Propagates,
    /// An error in checked mode; in unchecked mode it never wins a maximum and never hides a finite value.
    RefusedWhenChecked,
}

/// What is promised from run to run and from batch to batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Determinism {
    /// The same inputs give the same bits.
    pub bitwise_repeatable: bool,
    /// A row's bits do not depend on the other rows.
    pub batch_invariant: bool,
}

impl Determinism {
    /// The promise of every operator that says nothing else.
    pub const FULL: Self = Self { bitwise_repeatable: true, batch_invariant: true };
}

/// The dimension that every operator here has in front.
pub(crate) const ROWS: DimSpec = DimSpec {
    name: "rows",
    meaning: "independent rows (tokens or sequences); zero rows are a valid call that does nothing",
    min: 0,
};

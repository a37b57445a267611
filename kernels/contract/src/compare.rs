//! Judging a candidate's outputs against the oracle's.
//!
//! NaN and the two infinities must stand where the oracle has them; only then are finite values compared, each
//! element by itself. Nothing here averages: one bad element is a disagreement.

use crate::call::{Call, Mode};
use crate::dtype::Dtype;
use crate::error::{ContractError, ErrorKind};
use crate::rounding;
use crate::tensor::{AlignedBytes, OwnedTensor, TensorLayout, TensorMut, TensorView, load};

/// When an element agrees with the oracle's.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Rule {
    /// The same bits, NaN payloads and signs of zero included.
    Bits,
    /// The same value: ±0 are equal, and so are any two NaNs.
    Value,
    /// Within `ulps` steps of the type's lattice, or within `abs_floor` of the value.
    Within {
        /// Steps on the lattice of the tensor's dtype.
        ulps: u64,
        /// Absolute distance that is accepted whatever the steps.
        abs_floor: f64,
    },
    /// Inside the set of values that device arithmetic can round to; the operator computes it per element.
    Interval,
}

/// A rule and the reason for it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Tolerance {
    /// The rule.
    pub rule: Rule,
    /// Why this much and not less or more.
    pub reason: &'static str,
}

/// Outcome of comparing one tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Agreement {
    /// Every element agrees, and there was at least one.
    Agree,
    /// At least one element disagrees.
    Differ,
    /// There was no element to compare: nothing was shown.
    Vacuous,
}

/// One element that disagrees, or the one that is farthest away.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Element {
    /// Row of the element.
    pub row: u64,
    /// Column of the element.
    pub column: u64,
    /// The oracle's value; I64 beyond 2^53 is rounded.
    pub expected: f64,
    /// The candidate's value; I64 beyond 2^53 is rounded.
    pub got: f64,
    /// Lattice steps between the two; `u64::MAX` between a NaN and a number.
    pub ulps: u64,
}

/// How one output tensor compares with the oracle's.
#[derive(Clone, Debug, PartialEq)]
pub struct Comparison {
    /// The tensor's name.
    pub tensor: &'static str,
    /// Its element type.
    pub dtype: Dtype,
    /// Elements compared.
    pub elements: u64,
    /// Elements that are finite on both sides: those that an error was computed for.
    pub finite: u64,
    /// Elements whose class (NaN, +inf, -inf, finite) is not the oracle's.
    pub class_mismatches: u64,
    /// Elements of the right class that the rule does not accept.
    pub out_of_tolerance: u64,
    /// Largest distance among finite elements, in lattice steps.
    pub max_ulps: u64,
    /// Largest absolute distance among finite elements.
    pub max_abs: f64,
    /// Largest distance relative to a nonzero expected value among finite elements.
    pub max_rel: f64,
    /// The finite element with the most steps; `None` when all are the oracle's values.
    pub worst: Option<Element>,
    /// The first elements that disagree, in row order, at most [`Comparison::LISTED`].
    pub first_bad: Vec<Element>,
}

impl Comparison {
    /// How many disagreeing elements are listed.
    pub const LISTED: usize = 8;

    const fn new(tensor: &'static str, dtype: Dtype) -> Self {
        Self {
            tensor,
            dtype,
            elements: 0,
            finite: 0,
            class_mismatches: 0,
            out_of_tolerance: 0,
            max_ulps: 0,
            max_abs: 0.0,
            max_rel: 0.0,
            worst: None,
            first_bad: Vec::new(),
        }
    }

    /// The outcome.
    #[must_use]
    pub const fn agreement(&self) -> Agreement {
        if self.class_mismatches > 0 || self.out_of_tolerance > 0 {
            Agreement::Differ
        } else if self.elements == 0 {
            Agreement::Vacuous
        } else {
            Agreement::Agree
        }
    }

    /// Adds one element; `accepts` is asked only when the classes match.
    fn add(
        &mut self,
        row: u64,
        column: u64,
        expected: u64,
        got: u64,
        accepts: impl FnOnce(&Element) -> bool,
    ) {
        let (wanted, value) =
            (rounding::decode(self.dtype, expected), rounding::decode(self.dtype, got));
        let element = Element {
            row,
            column,
            expected: wanted,
            got: value,
            ulps: rounding::ulp_distance(self.dtype, expected, got),
        };
        self.elements += 1;
        let agrees = if Class::of(wanted) == Class::of(value) {
            if value.is_finite() {
                self.measure(&element);
            }
            let accepted = accepts(&element);
            self.out_of_tolerance += u64::from(!accepted);
            accepted
        } else {
            self.class_mismatches += 1;
            false
        };
        if !agrees && self.first_bad.len() < Self::LISTED {
            self.first_bad.push(element);
        }
    }

    /// Adds a row that has the oracle's bits throughout.
    fn add_agreeing_row(&mut self, bytes: &[u8]) {
        let size = self.dtype.size();
        self.elements += (bytes.len() / size) as u64;
        let finite = bytes
            .chunks_exact(size)
            .filter(|raw| rounding::decode(self.dtype, load(raw)).is_finite())
            .count();
        self.finite += finite as u64;
    }

    fn measure(&mut self, element: &Element) {
        self.finite += 1;
        let distance = (element.got - element.expected).abs();
        self.max_abs = self.max_abs.max(distance);
        if element.expected != 0.0 {
            self.max_rel = self.max_rel.max(distance / element.expected.abs());
        }
        if element.ulps > self.max_ulps {
            self.worst = Some(*element);
        }
        self.max_ulps = self.max_ulps.max(element.ulps);
    }
}

/// What a floating-point value is before its size matters.
#[derive(PartialEq, Eq)]
enum Class {
    Nan,
    PositiveInfinity,
    NegativeInfinity,
    Finite,
}

impl Class {
    fn of(value: f64) -> Self {
        if value.is_nan() {
            Self::Nan
        } else if value == f64::INFINITY {
            Self::PositiveInfinity
        } else if value == f64::NEG_INFINITY {
            Self::NegativeInfinity
        } else {
            Self::Finite
        }
    }
}

/// Everything a judge may look at.
#[derive(Clone, Copy, Debug)]
pub struct Judging<'a> {
    /// The call.
    pub call: &'a Call,
    /// The read-only tensors, in calling order.
    pub inputs: &'a [TensorView<'a>],
    /// The written tensors as they were before the call, in calling order.
    pub initial: &'a [TensorView<'a>],
    /// The oracle's outputs, in calling order.
    pub expected: &'a [OwnedTensor],
    /// The candidate's outputs, in calling order.
    pub candidate: &'a [TensorView<'a>],
}

impl<'a> Judging<'a> {
    /// The read-only tensor of that name.
    ///
    /// # Errors
    /// `Missing` when the call has none.
    pub fn input(&self, name: &'static str) -> Result<&'a TensorView<'a>, ContractError> {
        let place = self.call.inputs().position(|spec| spec.name == name);
        self.pick(self.inputs, place, name)
    }

    /// A written tensor as it was before the call.
    ///
    /// # Errors
    /// `Missing` when the call has none of that name.
    pub fn initial(&self, name: &'static str) -> Result<&'a TensorView<'a>, ContractError> {
        self.pick(self.initial, self.output_place(name), name)
    }

    /// The candidate's tensor of that name.
    ///
    /// # Errors
    /// `Missing` when the call writes none of that name.
    pub fn candidate(&self, name: &'static str) -> Result<&'a TensorView<'a>, ContractError> {
        self.pick(self.candidate, self.output_place(name), name)
    }

    /// The oracle's tensor of that name.
    ///
    /// # Errors
    /// `Missing` when the call writes none of that name.
    pub fn expected(&self, name: &'static str) -> Result<&'a OwnedTensor, ContractError> {
        self.pick(self.expected, self.output_place(name), name)
    }

    fn output_place(&self, name: &str) -> Option<usize> {
        self.call.outputs().position(|spec| spec.name == name)
    }

    fn pick<T>(
        &self,
        from: &'a [T],
        place: Option<usize>,
        name: &'static str,
    ) -> Result<&'a T, ContractError> {
        place
            .and_then(|place| from.get(place))
            .ok_or_else(|| ContractError::new(self.call.operator.name, name, ErrorKind::Missing))
    }

    /// Compares one tensor element by element.
    ///
    /// Elements with the oracle's own bits agree; `accepts(row, column, element)` decides about the others where
    /// the classes match.
    ///
    /// # Errors
    /// `Missing` when the call writes no tensor of that name.
    pub fn compare(
        &self,
        name: &'static str,
        mut accepts: impl FnMut(u64, u64, &Element) -> bool,
    ) -> Result<Comparison, ContractError> {
        let (expected, candidate) = (self.expected(name)?.view(), self.candidate(name)?);
        let dtype = expected.layout.dtype;
        let mut comparison = Comparison::new(name, dtype);
        for row in 0..expected.layout.rows() {
            let (wanted, got) = (expected.row_bytes(row), candidate.row_bytes(row));
            if wanted == got {
                comparison.add_agreeing_row(wanted);
                continue;
            }
            let pairs = wanted.chunks_exact(dtype.size()).zip(got.chunks_exact(dtype.size()));
            for (column, (wanted, got)) in (0u64..).zip(pairs) {
                comparison.add(row, column, load(wanted), load(got), |element| {
                    wanted == got || accepts(row, column, element)
                });
            }
        }
        Ok(comparison)
    }

    /// Compares one tensor by the tolerance of its contract.
    ///
    /// # Errors
    /// `Missing` when the call writes no tensor of that name; `Unsupported` when its rule is
    /// [`Rule::Interval`], which only the operator's own judge can apply.
    pub fn compare_by_rule(&self, name: &'static str) -> Result<Comparison, ContractError> {
        match self.call.operator.tolerance(self.call, name)?.rule {
            Rule::Value => self.compare(name, |_, _, element| element.ulps == 0),
            Rule::Within { ulps, abs_floor } => self.compare(name, |_, _, element| {
                element.ulps <= ulps || (element.got - element.expected).abs() <= abs_floor
            }),
            Rule::Bits => self.compare_bits(name),
            Rule::Interval => {
                Err(ContractError::new(self.call.operator.name, name, ErrorKind::Unsupported)
                    .found("an interval rule without a judge"))
            }
        }
    }

    /// Compares one tensor bit for bit.
    pub(crate) fn compare_bits(&self, name: &'static str) -> Result<Comparison, ContractError> {
        self.compare(name, |_, _, _| false)
    }
}

/// Copies a written tensor's contents into storage of its own with the same geometry.
fn copy_of(name: &'static str, view: &TensorView<'_>) -> OwnedTensor {
    let mut storage = AlignedBytes::new(view.bytes.len(), 0);
    storage.as_mut_slice().copy_from_slice(view.bytes);
    OwnedTensor { name, layout: view.layout.clone(), storage }
}

/// Runs the oracle on copies of the written tensors and returns what they should hold.
///
/// `initial` are the written tensors as they were before the call; contents matter for in-out tensors only.
///
/// # Errors
/// As [`crate::run_oracle`].
pub fn expected_outputs(
    call: &Call,
    mode: Mode,
    inputs: &[TensorView<'_>],
    initial: &[TensorView<'_>],
) -> Result<Vec<OwnedTensor>, ContractError> {
    let mut expected: Vec<OwnedTensor> =
        call.outputs().zip(initial).map(|(spec, view)| copy_of(spec.name, view)).collect();
    let mut outputs: Vec<TensorMut<'_>> = expected.iter_mut().map(OwnedTensor::view_mut).collect();
    crate::run_oracle(call, mode, inputs, &mut outputs)?;
    Ok(expected)
}

/// Judges a candidate's outputs: runs the oracle on the same inputs and compares every written tensor.
///
/// `initial` are the written tensors as they were before the call and `candidate` as they are after it, both in
/// calling order. A tensor with no elements comes back as [`Agreement::Vacuous`].
///
/// # Errors
/// As [`crate::run_oracle`], and `LengthMismatch` or `DtypeMismatch` when a candidate tensor has another
/// geometry than the contract's.
pub fn check(
    call: &Call,
    mode: Mode,
    inputs: &[TensorView<'_>],
    initial: &[TensorView<'_>],
    candidate: &[TensorView<'_>],
) -> Result<Vec<Comparison>, ContractError> {
    let expected = expected_outputs(call, mode, inputs, initial)?;
    judge(&Judging { call, inputs, initial, expected: &expected, candidate })
}

/// Compares every written tensor of outputs that the oracle's are already known for.
///
/// # Errors
/// `Missing`, `LengthMismatch`, `DtypeMismatch` or `StorageTooShort` when a candidate tensor is not what the
/// contract says.
pub fn judge(judging: &Judging<'_>) -> Result<Vec<Comparison>, ContractError> {
    for spec in judging.call.outputs() {
        same_geometry(judging, spec.name)?;
    }
    match judging.call.operator.judge {
        Some(own) => own(judging),
        None => judging.call.outputs().map(|spec| judging.compare_by_rule(spec.name)).collect(),
    }
}

fn same_geometry(judging: &Judging<'_>, name: &'static str) -> Result<(), ContractError> {
    let wanted: &TensorLayout = &judging.expected(name)?.layout;
    let candidate = judging.candidate(name)?;
    let error = |kind| ContractError::new(judging.call.operator.name, name, kind);
    if candidate.layout.dtype != wanted.dtype {
        return Err(error(ErrorKind::DtypeMismatch)
            .found(candidate.layout.dtype)
            .accepted(wanted.dtype));
    }
    if candidate.layout.shape != wanted.shape {
        return Err(error(ErrorKind::LengthMismatch)
            .found(format_args!("{:?}", candidate.layout.shape))
            .accepted(format_args!("{:?}", wanted.shape)));
    }
    let required = candidate.layout.required_bytes().unwrap_or(u64::MAX);
    if (candidate.bytes.len() as u64) < required {
        return Err(error(ErrorKind::StorageTooShort)
            .found(format_args!("{} bytes", candidate.bytes.len()))
            .accepted(format_args!("at least {required} bytes")));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bits(value: f32) -> u64 {
        u64::from(value.to_bits())
    }

    /// Compares pairs (expected, got) with a rule that accepts two steps.
    fn compared(pairs: &[(f32, f32)]) -> Comparison {
        let mut comparison = Comparison::new("y", Dtype::F32);
        for (column, (expected, got)) in (0u64..).zip(pairs) {
            comparison.add(0, column, bits(*expected), bits(*got), |element| element.ulps <= 2);
        }
        comparison
    }

    #[test]
    fn nan_and_infinities_are_no_wildcards() {
        let infinite = f32::INFINITY;
        let wrong = [
            (f32::NAN, 0.0),
            (0.0, f32::NAN),
            (infinite, 0.0),
            (infinite, -infinite),
            (infinite, f32::MAX),
            (f32::NAN, infinite),
        ];
        for pair in wrong {
            let comparison = compared(&[pair]);
            assert_eq!(comparison.class_mismatches, 1, "{pair:?}");
            assert_eq!(comparison.agreement(), Agreement::Differ);
        }
        let right = compared(&[(f32::NAN, -f32::NAN), (infinite, infinite), (0.0, -0.0)]);
        assert_eq!((right.agreement(), right.finite, right.elements), (Agreement::Agree, 1, 3));
    }

    #[test]
    fn one_bad_element_among_many_is_a_disagreement_and_is_named() {
        let mut pairs = vec![(1.0, 1.0); 1000];
        pairs[700].1 = 1.5;
        pairs[800].1 = 1.0f32.next_up();
        let comparison = compared(&pairs);
        assert_eq!(comparison.agreement(), Agreement::Differ);
        assert_eq!((comparison.out_of_tolerance, comparison.first_bad.len()), (1, 1));
        let worst = comparison.worst.unwrap();
        assert_eq!((worst.column, worst.got, worst.ulps), (700, 1.5, 1 << 22));
        assert_eq!((comparison.max_abs, comparison.max_rel), (0.5, 0.5));
    }

    #[test]
    fn the_list_of_bad_elements_is_short_and_nothing_compared_is_vacuous() {
        let comparison = compared(&[(1.0, 2.0); 20]);
        assert_eq!(
            (comparison.out_of_tolerance, comparison.first_bad.len()),
            (20, Comparison::LISTED)
        );
        assert_eq!(compared(&[]).agreement(), Agreement::Vacuous);
    }
}

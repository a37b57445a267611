//! What the normalizations have in common.

use crate::call::Call;
use crate::compare::{Comparison, Judging, Rule, Tolerance};
use crate::dtype::Dtype;
use crate::error::{ContractError, ErrorKind};
use crate::refusal::{Mutation, Refusal};
use crate::rounding;
use crate::spec::{DimSpec, Domain, DtypeRule, Extent, ParamSpec, ParamValue, Source, TensorSpec};
use crate::tensor::TensorView;
use crate::values::ValueClass;

/// Activation types of the normalizations.
pub(super) const DTYPES: &[Dtype] = &[Dtype::F32, Dtype::F16, Dtype::BF16];

/// Value classes of the normalizations: masked rows belong to logits.
pub(super) const VALUES: &[ValueClass] = &[
    ValueClass::Normal,
    ValueClass::Uniform,
    ValueClass::AllEqual,
    ValueClass::Cancelling,
    ValueClass::Huge,
    ValueClass::Subnormal,
    ValueClass::SignedZero,
    ValueClass::Infinite,
    ValueClass::Nan,
    ValueClass::OneHot,
    ValueClass::HeavyTies,
];

/// The normalized axis.
pub(super) const HIDDEN: DimSpec =
    DimSpec { name: "hidden", meaning: "length of the normalized axis", min: 1 };

/// Shape of activations.
pub(super) const ROWS_BY_HIDDEN: &[Extent] = &[Extent::Dim("rows"), Extent::Dim("hidden")];

/// The gain.
pub(super) const GAIN: TensorSpec = TensorSpec::input(
    "w",
    "gain of each column",
    DtypeRule::Activation,
    &[Extent::Dim("hidden")],
    Source::Gains,
);

/// The term under the root.
pub(super) const EPS: ParamSpec = ParamSpec {
    name: "eps",
    meaning: "added to the mean square, inside the root",
    default: ParamValue::Float(1e-6),
    domain: Domain::Above(0.0),
};

/// Refusals of a bad epsilon.
pub(super) const EPS_REFUSALS: &[Refusal] = &[
    eps_refusal(
        std::borrow::Cow::Borrowed("eps-zero"),
        ParamValue::Float(0.0),
        ErrorKind::OutOfRange,
    ),
    eps_refusal(
        std::borrow::Cow::Borrowed("eps-negative"),
        ParamValue::Float(-1e-6),
        ErrorKind::OutOfRange,
    ),
    eps_refusal(
        std::borrow::Cow::Borrowed("eps-nan"),
        ParamValue::Float(f64::NAN),
        ErrorKind::NotFinite,
    ),
    eps_refusal(
        std::borrow::Cow::Borrowed("eps-integer"),
        ParamValue::Int(1),
        ErrorKind::DtypeMismatch,
    ),
];

const fn eps_refusal(
    name: std::borrow::Cow<'static, str>,
    value: ParamValue,
    kind: ErrorKind,
) -> Refusal {
    Refusal { name, mutation: Mutation::Param { name: "eps", value }, kind, argument: "eps" }
}

/// `1 / sqrt(mean(row²) + eps)` in f64.
///
/// The squares of every value that an element type can hold fit an f64.
pub(super) fn inverse_root_mean_square(row: &[f64], eps: f64) -> f64 {
    let squares: f64 = row.iter().map(|value| value * value).sum();
    1.0 / (squares / row.len() as f64 + eps).sqrt()
}

/// `round(x + residual)` of one row, into `row`: a single rounding to the element type.
pub(super) fn add_residual(dtype: Dtype, row: &mut [f64], residual: &[f64]) {
    for (value, addend) in row.iter_mut().zip(residual) {
        *value = rounding::round_to(dtype, *value + addend);
    }
}

/// Why residuals are compared by value.
pub(super) const RESIDUAL_TOLERANCE: Tolerance = Tolerance {
    rule: Rule::Value,
    reason: "one addition and one rounding: an F32 sum rounded to F16 or BF16 is the exact sum rounded once, \
             so there is one right answer",
};

/// Steps of an F32 result that `hidden` accumulated squares may cost.
///
/// Adding n positive terms in at least sixteen partial sums errs by at most n/16 + 5 halves of a step; the root
/// halves that, and the reciprocal root, two products and the store add at most eight.
pub(super) fn statistic_ulps(hidden: u64) -> u64 {
    8 + hidden / 32
}

/// Tolerance of a normalized output with one rounding at the store.
pub(super) fn normalized_tolerance(call: &Call) -> Tolerance {
    let hidden = call.dim("hidden").unwrap_or(0);
    if call.dtype == Dtype::F32 {
        return Tolerance {
            rule: Rule::Within {
                ulps: statistic_ulps(hidden),
                abs_floor: 8.0 * Dtype::F32.min_positive(),
            },
            reason: "F32 sum of squares in at least 16 partial sums: hidden/32 steps after the root, and 8 for \
                     the root, the products and the store; a subnormal product may lose 8 smallest steps",
        };
    }
    Tolerance {
        rule: Rule::Interval,
        reason: "the stored value must be the one rounding of some real number within the F32 error (hidden/32 \
                 steps after the root and 8 more) of the exact one, so only a value next to a midpoint has two \
                 right answers",
    }
}

/// Compares a normalized output; `source` holds what was normalized, after any rounding.
///
/// # Errors
/// `Missing` when the call lacks one of the operands.
pub(super) fn judge_normalized(
    judging: &Judging<'_>,
    name: &'static str,
    source: &TensorView<'_>,
) -> Result<Comparison, ContractError> {
    let (dtype, eps) = (judging.call.dtype, judging.call.float("eps")?);
    if dtype == Dtype::F32 {
        return judging.compare_by_rule(name);
    }
    let relative = statistic_ulps(source.layout.width()) as f64 * 2f64.powi(-24);
    let floor = 8.0 * Dtype::F32.min_positive();
    let (mut gains, mut values) = (Vec::new(), Vec::new());
    judging.input("w")?.read_row(0, &mut gains);
    // The row at hand and its statistic; rows with the oracle's bits are never asked for.
    let mut loaded = None;
    judging.compare(name, |row, column, element| {
        // A NaN lies in no interval, and which of its codes is stored is nobody's business.
        if element.ulps == 0 {
            return true;
        }
        let inverse = match loaded {
            Some((known, inverse)) if known == row => inverse,
            _ => {
                source.read_row(row, &mut values);
                inverse_root_mean_square(&values, eps)
            }
        };
        loaded = Some((row, inverse));
        let exact = values[column as usize] * inverse * gains[column as usize];
        let slack = exact.abs() * relative + floor;
        let (low, high) =
            (rounding::round_to(dtype, exact - slack), rounding::round_to(dtype, exact + slack));
        low <= element.got && element.got <= high
    })
}

//! `rms_norm_dynamic_fp8`: normalization and quantization to E4M3 with one scale per row.

use crate::compare::{Comparison, Judging, Rule, Tolerance};
use crate::dtype::Dtype;
use crate::error::ContractError;
use crate::operands::Operands;
use crate::operators::norm::{self, ROWS_BY_HIDDEN};
use crate::refusal::{Mutation, Refusal};
use crate::rounding::round_to;
use crate::spec::{
    Determinism, Domain, DtypeRule, Extent, HugeLimit, NanRule, OperatorSpec, ParamSpec,
    ParamValue, ROWS, Source, TensorSpec,
};
use crate::{ErrorKind, TensorView};

pub(super) const SPEC: OperatorSpec = OperatorSpec {
    name: "rms_norm_dynamic_fp8",
    summary: "Per row: n = round(x / sqrt(mean(x²) + eps)), v = round(n * w), \
              scale = max(absmax|v| / 448, 1 / (448 * 512)) in F32, q = E4M3(F32(v / scale)) by true division. \
              absmax ignores NaN; a NaN element is stored as NaN. With add-residual, x is first replaced by \
              residual = round(x + residual), which is stored.",
    dims: &[ROWS, norm::HIDDEN],
    params: &[
        norm::EPS,
        ParamSpec {
            name: "add-residual",
            meaning: "add and store the residual in front",
            default: ParamValue::Bool(false),
            domain: Domain::Switch,
        },
    ],
    tensors: &[
        TensorSpec::input(
            "x",
            "activations",
            DtypeRule::Activation,
            ROWS_BY_HIDDEN,
            Source::Values(HugeLimit::HalvedSquareSum),
        ),
        norm::GAIN,
        TensorSpec::in_out(
            "residual",
            "residual stream, replaced by the rounded sum",
            DtypeRule::Activation,
            ROWS_BY_HIDDEN,
            Source::Counterpart("x", HugeLimit::HalvedSquareSum),
        )
        .only_with("add-residual"),
        TensorSpec::output(
            "q",
            "quantized activations",
            DtypeRule::Fixed(Dtype::F8E4M3),
            ROWS_BY_HIDDEN,
        ),
        TensorSpec::output(
            "scale",
            "scale of each row: v is close to q * scale",
            DtypeRule::Fixed(Dtype::F32),
            &[Extent::Dim("rows"), Extent::Const(1)],
        )
        .dense(),
    ],
    dtypes: norm::DTYPES,
    values: norm::VALUES,
    nan: NanRule::Propagates,
    determinism: Determinism::FULL,
    own_refusals: &[norm::EPS_REFUSALS, REFUSALS],
    oracle,
    tolerance: |_, tensor| {
        if tensor.name == "residual" { norm::RESIDUAL_TOLERANCE } else { INTERVAL }
    },
    judge: Some(judge),
};

const INTERVAL: Tolerance = Tolerance {
    rule: Rule::Interval,
    reason: "the F32 root may move n to a neighbor where x * inv lies next to a midpoint; the judge carries both \
             ends through v, absmax, scale and (with the candidate's own scale) q, so everything that is not \
             next to a midpoint is exact",
};

const REFUSALS: &[Refusal] = &[Refusal {
    name: std::borrow::Cow::Borrowed("add-residual-number"),
    mutation: Mutation::Param { name: "add-residual", value: ParamValue::Int(1) },
    kind: ErrorKind::DtypeMismatch,
    argument: "add-residual",
}];

/// Scale of a row whose elements are at most `absmax`, as stored.
fn scale_of(absmax: f64) -> f64 {
    round_to(Dtype::F32, absmax / 448.0).max(round_to(Dtype::F32, 1.0 / (448.0 * 512.0)))
}

/// The quantized element: an F32 quotient rounded to E4M3.
fn quantize(value: f64, scale: f64) -> f64 {
    round_to(Dtype::F8E4M3, round_to(Dtype::F32, value / scale))
}

/// Largest magnitude that is not NaN; 0 for none.
fn absmax(row: impl Iterator<Item = f64>) -> f64 {
    row.fold(0.0, |largest, value| largest.max(value.abs()))
}

fn oracle(operands: &mut Operands<'_, '_>) -> Result<(), ContractError> {
    let (dtype, eps) = (operands.call.dtype, operands.call.float("eps")?);
    let (x, w) = (operands.input("x")?, operands.input("w")?);
    let mut residual =
        if operands.call.flag("add-residual")? { Some(operands.output("residual")?) } else { None };
    let (q, scales) = (operands.output("q")?, operands.output("scale")?);
    let (mut gains, mut row, mut addend) = (Vec::new(), Vec::new(), Vec::new());
    w.read_row(0, &mut gains);
    for index in 0..x.layout.rows() {
        x.read_row(index, &mut row);
        if let Some(residual) = residual.as_mut() {
            residual.view().read_row(index, &mut addend);
            norm::add_residual(dtype, &mut row, &addend);
            residual.write_row(index, &row);
        }
        let inverse = norm::inverse_root_mean_square(&row, eps);
        for (value, gain) in row.iter_mut().zip(&gains) {
            *value = round_to(dtype, round_to(dtype, *value * inverse) * gain);
        }
        let scale = scale_of(absmax(row.iter().copied()));
        for value in &mut row {
            *value = round_to(Dtype::F32, *value / scale);
        }
        q.write_row(index, &row);
        scales.write_row(index, &[scale]);
    }
    Ok(())
}

/// Both ends of what `v` may be for one row, when the root errs by as much as F32 arithmetic may.
fn value_ends(dtype: Dtype, row: &[f64], gains: &[f64], eps: f64) -> Vec<(f64, f64)> {
    let slack = norm::statistic_ulps(row.len() as u64) as f64 * 2f64.powi(-24);
    let inverse = norm::inverse_root_mean_square(row, eps);
    row.iter()
        .zip(gains)
        .map(|(value, gain)| {
            let end =
                |factor: f64| round_to(dtype, round_to(dtype, value * inverse * factor) * gain);
            let (left, right) = (end(1.0 - slack), end(1.0 + slack));
            (left.min(right), left.max(right))
        })
        .collect()
}

fn judge(judging: &Judging<'_>) -> Result<Vec<Comparison>, ContractError> {
    let call = judging.call;
    let (dtype, eps) = (call.dtype, call.float("eps")?);
    let scales = judging.candidate("scale")?;
    let mut gains = Vec::new();
    judging.input("w")?.read_row(0, &mut gains);
    let mut comparisons = Vec::new();
    // What is normalized: the oracle's rounded sum where there is a residual.
    let source: TensorView<'_> = if call.flag("add-residual")? {
        comparisons.push(judging.compare_by_rule("residual")?);
        judging.expected("residual")?.view()
    } else {
        judging.input("x")?.clone()
    };
    let mut ends = Vec::new();
    let mut loaded = None;
    let mut row_values = Vec::new();
    let mut load = |row: u64, ends: &mut Vec<(f64, f64)>| {
        if loaded != Some(row) {
            source.read_row(row, &mut row_values);
            *ends = value_ends(dtype, &row_values, &gains, eps);
            loaded = Some(row);
        }
    };
    comparisons.push(judging.compare("q", |row, column, element| {
        load(row, &mut ends);
        let (low, high) = ends[column as usize];
        let scale = scales.value(row, 0);
        element.got.is_nan()
            || (quantize(low, scale) <= element.got && element.got <= quantize(high, scale))
    })?);
    comparisons.push(judging.compare("scale", |row, _, element| {
        load(row, &mut ends);
        let nearest = ends.iter().map(|(low, high)| {
            if *low <= 0.0 && *high >= 0.0 { 0.0 } else { low.abs().min(high.abs()) }
        });
        let farthest = ends.iter().map(|(low, high)| low.abs().max(high.abs()));
        scale_of(absmax(nearest)) <= element.got && element.got <= scale_of(absmax(farthest))
    })?);
    Ok(comparisons)
}

#[cfg(test)]
mod tests {
    use crate::testing::{floats, run};
    use crate::{Dtype, ParamValue};

    #[test]
    fn a_hand_computed_row_is_scaled_to_the_largest_code() {
        // mean square 5 + 11 = 16: n = (0.25, -0.75), v = (0.5, -0.75), scale = 0.75/448.
        let (_, outputs) = run(
            "rms_norm_dynamic_fp8",
            Dtype::F32,
            &[("rows", 1), ("hidden", 2)],
            &[("eps", ParamValue::Float(11.0))],
            &[("x", &[1.0, -3.0]), ("w", &[2.0, 1.0])],
        );
        assert_eq!(floats(&outputs, "scale"), [f64::from(0.75f32 / 448.0)]);
        // 0.5 / scale = 298.67, between 288 and 320: nearer to 288.
        assert_eq!(floats(&outputs, "q"), [288.0, -448.0]);
    }

    #[test]
    fn a_zero_row_gets_the_smallest_scale_and_a_residual_is_added_first() {
        let (_, outputs) = run(
            "rms_norm_dynamic_fp8",
            Dtype::F16,
            &[("rows", 2), ("hidden", 2)],
            &[("add-residual", ParamValue::Bool(true))],
            &[
                ("x", &[1.0, -2.0, 1.0, 1.0]),
                ("residual", &[-1.0, 2.0, 1.0, 1.0]),
                ("w", &[1.0, 1.0]),
            ],
        );
        assert_eq!(floats(&outputs, "residual"), [0.0, 0.0, 2.0, 2.0]);
        assert_eq!(
            floats(&outputs, "scale"),
            [f64::from(1.0f32 / (448.0 * 512.0)), f64::from(1.0f32 / 448.0)]
        );
        assert_eq!(floats(&outputs, "q"), [0.0, 0.0, 448.0, 448.0]);
    }

    #[test]
    fn a_nan_is_stored_as_nan_and_does_not_reach_the_scale() {
        // With a NaN in the row every element is NaN, so the scale is the smallest one.
        let (_, outputs) = run(
            "rms_norm_dynamic_fp8",
            Dtype::BF16,
            &[("rows", 1), ("hidden", 2)],
            &[],
            &[("x", &[f64::NAN, 1.0]), ("w", &[1.0, 1.0])],
        );
        assert!(floats(&outputs, "q").iter().all(|value| value.is_nan()));
        assert_eq!(floats(&outputs, "scale"), [f64::from(1.0f32 / (448.0 * 512.0))]);
    }
}

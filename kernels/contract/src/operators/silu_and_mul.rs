//! `silu_and_mul`: the gated activation of an MLP.

use crate::compare::{Comparison, Judging, Rule, Tolerance};
use crate::dtype::Dtype;
use crate::error::ContractError;
use crate::operands::Operands;
use crate::operators::norm;
use crate::rounding::round_to;
use crate::spec::{
    Determinism, DimSpec, DtypeRule, Extent, HugeLimit, NanRule, OperatorSpec, ROWS, Source,
    TensorSpec,
};

pub(super) const SPEC: OperatorSpec = OperatorSpec {
    name: "silu_and_mul",
    summary: "The first half of a row is the gate g, the second the value u: a = round(g * sigmoid(g)), \
              y = round(a * u).",
    dims: &[
        ROWS,
        DimSpec { name: "width", meaning: "length of an output row, half an input row", min: 1 },
    ],
    params: &[],
    tensors: &[
        TensorSpec::input(
            "x",
            "gates, then values",
            DtypeRule::Activation,
            &[Extent::Dim("rows"), Extent::Twice("width")],
            Source::Values(HugeLimit::Finite),
        ),
        TensorSpec::output(
            "y",
            "gated values",
            DtypeRule::Activation,
            &[Extent::Dim("rows"), Extent::Dim("width")],
        ),
    ],
    dtypes: norm::DTYPES,
    values: norm::VALUES,
    nan: NanRule::Propagates,
    determinism: Determinism::FULL,
    own_refusals: &[],
    oracle,
    tolerance: |_, _| Tolerance {
        rule: Rule::Interval,
        reason: "an F32 sigmoid errs by a few steps, which moves a to a neighbor only next to a midpoint; the \
                 judge carries both ends through the product, so all else is exact. Where the exponential \
                 overflows F32 (g below -87) a may vanish",
    },
    judge: Some(judge),
};

/// `g * sigmoid(g)` in f64.
fn silu(gate: f64) -> f64 {
    gate * (1.0 / (1.0 + (-gate).exp()))
}

fn oracle(operands: &mut Operands<'_, '_>) -> Result<(), ContractError> {
    let (dtype, width) = (operands.call.dtype, operands.call.dim("width")? as usize);
    let x = operands.input("x")?;
    let y = operands.output("y")?;
    let mut row = Vec::new();
    for index in 0..x.layout.rows() {
        x.read_row(index, &mut row);
        let (gates, values) = row.split_at_mut(width);
        for (gate, value) in gates.iter_mut().zip(values) {
            *gate = round_to(dtype, silu(*gate)) * *value;
        }
        y.write_row(index, gates);
    }
    Ok(())
}

/// Both ends of what `y` may be.
fn ends(dtype: Dtype, gate: f64, value: f64) -> (f64, f64) {
    const SLACK: f64 = 8.0 / (1 << 24) as f64;
    let exact = silu(gate);
    let (small, large) = if gate < -87.0 {
        // The sigmoid is subnormal in F32, or zero once its exponential overflows.
        (0.0, exact * (1.0 + SLACK) + gate * Dtype::F32.min_positive())
    } else {
        (exact * (1.0 - SLACK), exact * (1.0 + SLACK))
    };
    let product = |activated: f64| round_to(dtype, round_to(dtype, activated) * value);
    let (left, right) = (product(small), product(large));
    (left.min(right), left.max(right))
}

fn judge(judging: &Judging<'_>) -> Result<Vec<Comparison>, ContractError> {
    let (dtype, width) = (judging.call.dtype, judging.call.dim("width")?);
    let x = judging.input("x")?;
    let comparison = judging.compare("y", |row, column, element| {
        if element.ulps == 0 {
            return true;
        }
        let (low, high) = ends(dtype, x.value(row, column), x.value(row, column + width));
        low <= element.got && element.got <= high
    })?;
    Ok(vec![comparison])
}

#[cfg(test)]
mod tests {
    use super::ends;
    use crate::Dtype;
    use crate::testing::{floats, run};

    #[test]
    fn hand_computed_gates_come_out() {
        // ln 3 has the sigmoid 3/4, 0 has 1/2; F16 holds ln 3 as 1.0986328125.
        let gate = 1.098_632_812_5;
        let (_, outputs) = run(
            "silu_and_mul",
            Dtype::F16,
            &[("rows", 1), ("width", 3)],
            &[],
            &[("x", &[gate, 0.0, -100.0, 2.0, 7.0, 1.0])],
        );
        let y = floats(&outputs, "y");
        // 1.0986328125 * 0.75 = 0.82397461, in steps of 2^-11: 1687.5 and a little: 1688.
        assert_eq!(y[0], 2.0 * 1688.0 / 2048.0);
        assert_eq!(y[1..], [0.0, 0.0]);
    }

    #[test]
    fn the_gate_is_rounded_before_the_product() {
        // In BF16 silu(1) = 0.73105858 becomes 187/256; times 3 is 561/256, rounded to 2.1875.
        let (_, outputs) = run(
            "silu_and_mul",
            Dtype::BF16,
            &[("rows", 1), ("width", 1)],
            &[],
            &[("x", &[1.0, 3.0])],
        );
        assert_eq!(floats(&outputs, "y"), [2.1875]);
    }

    #[test]
    fn ends_are_one_value_away_from_midpoints_and_reach_zero_below_the_exponentials_range() {
        assert_eq!(ends(Dtype::BF16, 1.0, 3.0), (2.1875, 2.1875));
        let (low, high) = ends(Dtype::F32, -89.0, 1.0);
        assert!(low < -1e-37 && low > -2.5e-37 && high == 0.0);
    }
}

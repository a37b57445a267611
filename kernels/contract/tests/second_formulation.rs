//! Every oracle against another way to compute the same thing: other orders, compensated sums, sorting.

use proofhouse_contract::rounding::{round_to, ulp_distance};
use proofhouse_contract::{
    Call, Case, CaseTensors, Dtype, Mode, OwnedTensor, ParamValue, ValueClass, expected_outputs,
};

const DTYPES: [Dtype; 3] = [Dtype::F32, Dtype::F16, Dtype::BF16];

/// The inputs of a case and the oracle's outputs.
struct Solved {
    before: CaseTensors,
    outputs: Vec<OwnedTensor>,
    rows: usize,
}

impl Solved {
    fn new(
        operator: &str,
        dtype: Dtype,
        width: (&str, u64),
        params: &[(&str, ParamValue)],
        values: ValueClass,
    ) -> Self {
        let call =
            Call::new(operator, dtype, &[("rows", 6), width], params).expect("a catalog name");
        let case = Case { values, seed: 77, ..Case::new(call) };
        let before = CaseTensors::generate(&case, 0, 0).expect("a valid case");
        let (inputs, initial) = (before.views(&case.call, false), before.views(&case.call, true));
        let outputs =
            expected_outputs(&case.call, Mode::Unchecked, &inputs, &initial).expect("a valid case");
        Self { before, outputs, rows: 6 }
    }

    /// All rows of an input.
    fn input(&self, name: &str) -> Vec<Vec<f64>> {
        rows_of(self.before.get(name).expect("an input"))
    }

    /// All rows of an output.
    fn output(&self, name: &str) -> Vec<Vec<f64>> {
        rows_of(self.outputs.iter().find(|tensor| tensor.name == name).expect("an output"))
    }
}

fn rows_of(tensor: &OwnedTensor) -> Vec<Vec<f64>> {
    let mut row = Vec::new();
    (0..tensor.layout.rows())
        .map(|index| {
            tensor.view().read_row(index, &mut row);
            row.clone()
        })
        .collect()
}

/// A compensated sum, from the back.
fn compensated_sum(values: impl DoubleEndedIterator<Item = f64>) -> f64 {
    let (mut sum, mut carry) = (0.0f64, 0.0f64);
    for value in values.rev() {
        let next = sum + value;
        carry += if sum.abs() >= value.abs() { (sum - next) + value } else { (value - next) + sum };
        sum = next;
    }
    sum + carry
}

/// `value / rms`, with the root taken of the scaled row and no reciprocal.
fn normalized(row: &[f64], eps: f64) -> Vec<f64> {
    let largest = row.iter().fold(0.0f64, |largest, value| largest.max(value.abs())).max(1e-300);
    let scaled = compensated_sum(row.iter().map(|value| (value / largest).powi(2)));
    let root = largest * (scaled / row.len() as f64 + eps / largest / largest).sqrt();
    row.iter().map(|value| value / root).collect()
}

/// Two values agree when they are neighbors at most on their lattice: f64 noise next to a midpoint.
fn assert_near(dtype: Dtype, left: f64, right: f64, context: &str) {
    use proofhouse_contract::rounding::encode;
    let steps = ulp_distance(dtype, encode(dtype, left), encode(dtype, right));
    assert!(steps <= 1, "{context}: {left} and {right} are {steps} apart");
}

const FINITE: [ValueClass; 8] = [
    ValueClass::Normal,
    ValueClass::Uniform,
    ValueClass::AllEqual,
    ValueClass::Cancelling,
    ValueClass::Huge,
    ValueClass::Subnormal,
    ValueClass::OneHot,
    ValueClass::HeavyTies,
];

#[test]
fn rms_norm_agrees_with_a_scaled_compensated_form() {
    for dtype in DTYPES {
        for values in FINITE {
            let solved = Solved::new("rms_norm", dtype, ("hidden", 513), &[], values);
            let (x, w, y) = (solved.input("x"), &solved.input("w")[0], solved.output("y"));
            for row in 0..solved.rows {
                for (column, value) in normalized(&x[row], 1e-6).iter().enumerate() {
                    assert_near(dtype, y[row][column], value * w[column], "rms_norm");
                }
            }
        }
    }
}

#[test]
fn add_rms_norm_agrees_with_a_norm_of_the_f32_sum() {
    for dtype in DTYPES {
        for values in FINITE {
            let solved = Solved::new("add_rms_norm", dtype, ("hidden", 300), &[], values);
            let (x, addend, w) =
                (solved.input("x"), solved.input("residual"), &solved.input("w")[0]);
            let (y, residual) = (solved.output("x"), solved.output("residual"));
            for row in 0..solved.rows {
                // In F32 arithmetic, as a device adds.
                let sum: Vec<f64> = x[row]
                    .iter()
                    .zip(&addend[row])
                    .map(|(left, right)| round_to(dtype, f64::from(*left as f32 + *right as f32)))
                    .collect();
                assert_eq!(residual[row], sum);
                for (column, value) in normalized(&sum, 1e-6).iter().enumerate() {
                    assert_near(dtype, y[row][column], value * w[column], "add_rms_norm");
                }
            }
        }
    }
}

#[test]
fn rms_norm_dynamic_fp8_agrees_with_a_search_over_all_codes() {
    for dtype in DTYPES {
        for values in FINITE {
            let solved = Solved::new("rms_norm_dynamic_fp8", dtype, ("hidden", 300), &[], values);
            let (x, w) = (solved.input("x"), &solved.input("w")[0]);
            let (q, scales) = (solved.output("q"), solved.output("scale"));
            let mut differing = 0;
            for row in 0..solved.rows {
                let v: Vec<f64> = normalized(&x[row], 1e-6)
                    .iter()
                    .zip(w)
                    .map(|(value, gain)| round_to(dtype, round_to(dtype, *value) * gain))
                    .collect();
                let largest =
                    v.iter().fold(0.0f32, |largest, value| largest.max(value.abs() as f32));
                let scale = (largest / 448.0).max(1.0 / (448.0 * 512.0));
                assert_near(Dtype::F32, scales[row][0], f64::from(scale), "scale");
                for (column, value) in v.iter().enumerate() {
                    let quotient = *value as f32 / scales[row][0] as f32;
                    differing += usize::from(q[row][column] != nearest_code(f64::from(quotient)));
                }
            }
            // A midpoint of the first rounding may fall the other way in either form.
            assert!(differing <= 4, "{dtype} {values}: {differing}");
        }
    }
}

/// The E4M3 value nearest to `value`, found by trying all; ties go to the even code.
fn nearest_code(value: f64) -> f64 {
    use proofhouse_contract::rounding::e4m3_value;
    let codes = (0..=255u8).filter(|code| code & 0x7f != 0x7f);
    let best = codes.min_by(|left, right| {
        let key = |code: u8| ((e4m3_value(code) - value).abs(), code & 1);
        key(*left).partial_cmp(&key(*right)).expect("numbers")
    });
    e4m3_value(best.expect("codes"))
}

#[test]
fn silu_and_mul_agrees_with_a_hyperbolic_tangent() {
    for dtype in DTYPES {
        for values in FINITE {
            let solved = Solved::new("silu_and_mul", dtype, ("width", 150), &[], values);
            let (x, y) = (solved.input("x"), solved.output("y"));
            for row in 0..solved.rows {
                for (column, got) in y[row].iter().enumerate() {
                    let (gate, value) = (x[row][column], x[row][column + 150]);
                    // sigmoid(g) = (1 + tanh(g/2)) / 2, which cancels below about -20.
                    if gate < -8.0 {
                        continue;
                    }
                    let gated = round_to(dtype, gate * (0.5 + 0.5 * (gate / 2.0).tanh()));
                    let (wanted, got) = (round_to(dtype, gated * value), *got);
                    let close = (wanted - got).abs() <= wanted.abs() * 1e-12;
                    assert!(
                        close || wanted == got || dtype == Dtype::F32,
                        "{gate} {value}: {wanted} {got}"
                    );
                    assert_near(dtype, got, wanted, "silu_and_mul");
                }
            }
        }
    }
}

const LOGITS: [ValueClass; 8] = [
    ValueClass::Normal,
    ValueClass::AllEqual,
    ValueClass::Cancelling,
    ValueClass::Subnormal,
    ValueClass::OneHot,
    ValueClass::HeavyTies,
    ValueClass::MaskedRows,
    ValueClass::Nan,
];

/// Places of a row without its NaNs, best first: a stable sort keeps ties in order of their index.
fn ranking(row: &[f64]) -> Vec<usize> {
    let mut places: Vec<usize> = (0..row.len()).filter(|place| !row[*place].is_nan()).collect();
    places.sort_by(|left, right| row[*right].partial_cmp(&row[*left]).expect("numbers"));
    places
}

/// Log-probability by adding the exponentials from the smallest up, without subtracting the maximum first.
fn log_probability(row: &[f64], logit: f64) -> f64 {
    let places = ranking(row);
    let shift = row[places[0]] / 2.0;
    let sum = compensated_sum(places.iter().map(|place| (row[*place] - shift).exp()));
    (logit - shift) - sum.ln()
}

fn assert_log_probability(row: &[f64], logit: f64, got: f64) {
    let wanted = log_probability(row, logit);
    let same =
        wanted == got || (wanted.is_nan() && got.is_nan()) || (logit.is_nan() && got.is_nan());
    let close = (wanted - got).abs() <= 1e-7 * wanted.abs().max(1e-3);
    assert!(same || close, "{wanted} {got}");
}

/// Number of logits not below one, by looking for the end of its ties in the sorted row.
fn rank(row: &[f64], logit: f64) -> f64 {
    ranking(row).iter().take_while(|place| row[**place] >= logit).count() as f64
}

#[test]
fn greedy_logprob_agrees_with_sorting() {
    for dtype in DTYPES {
        for values in LOGITS {
            let solved = Solved::new("greedy_logprob", dtype, ("vocab", 777), &[], values);
            let logits = solved.input("logits");
            let (token, logprob, ranks) = (
                &solved.output("token")[0],
                &solved.output("logprob")[0],
                &solved.output("rank")[0],
            );
            for (index, row) in logits.iter().enumerate() {
                let best = ranking(row)[0];
                assert_eq!(token[index], best as f64);
                assert_eq!(ranks[index], rank(row, row[best]));
                assert_log_probability(row, row[best], logprob[index]);
            }
        }
    }
}

#[test]
fn selected_logprob_rank_agrees_with_sorting() {
    for dtype in DTYPES {
        for values in LOGITS {
            let solved = Solved::new("selected_logprob_rank", dtype, ("vocab", 777), &[], values);
            let (logits, selected) = (solved.input("logits"), &solved.input("selected")[0]);
            let (logprob, ranks) = (&solved.output("logprob")[0], &solved.output("rank")[0]);
            for (index, row) in logits.iter().enumerate() {
                let logit = row[selected[index] as usize];
                assert_eq!(ranks[index], if logit.is_nan() { 0.0 } else { rank(row, logit) });
                assert_log_probability(row, logit, logprob[index]);
            }
        }
    }
}

#[test]
fn topk_logprobs_agrees_with_sorting() {
    for dtype in DTYPES {
        for values in LOGITS {
            let params = [("k", ParamValue::Int(128))];
            let solved = Solved::new("topk_logprobs", dtype, ("vocab", 777), &params, values);
            let (logits, selected) = (solved.input("logits"), &solved.input("selected")[0]);
            let (ids, logprobs) = (solved.output("ids"), solved.output("logprobs"));
            for (index, row) in logits.iter().enumerate() {
                assert_eq!(ids[index][0], selected[index]);
                let best: Vec<f64> =
                    ranking(row)[..128].iter().map(|place| *place as f64).collect();
                assert_eq!(ids[index][1..], best);
                for (id, logprob) in ids[index].iter().zip(&logprobs[index]) {
                    assert_log_probability(row, row[*id as usize], *logprob);
                }
            }
        }
    }
}

fn likely(below_best: f64, p: f64) -> bool {
    if p == 1.0 { below_best >= 0.0 } else { below_best.exp() >= p }
}

#[test]
fn min_p_agrees_with_a_comparison_of_probabilities() {
    for dtype in DTYPES {
        for values in LOGITS {
            let solved = Solved::new("min_p", dtype, ("vocab", 777), &[], values);
            let (before, p, after) =
                (solved.input("logits"), &solved.input("p")[0], solved.output("logits"));
            for (index, row) in before.iter().enumerate() {
                let best = row[ranking(row)[0]];
                for (value, got) in row.iter().zip(&after[index]) {
                    // exp(x - max) >= p, the form over probabilities, is blind next to p = 1: there only the
                    // best stay. All-masked rows have no probabilities.
                    let kept = p[index] == 0.0 || value.is_nan() || likely(value - best, p[index]);
                    let wanted = if kept { *value } else { f64::NEG_INFINITY };
                    assert!(
                        wanted == *got || (wanted.is_nan() && got.is_nan()),
                        "{value} {best} {}",
                        p[index]
                    );
                }
            }
        }
    }
}

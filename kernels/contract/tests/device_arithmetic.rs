//! The tolerances are met by honest F32 arithmetic and broken by the usual shortcuts.

use proofhouse_contract::conformance::{Backend, Problem, correctness};
use proofhouse_contract::rounding::round_to;
use proofhouse_contract::{
    Agreement, Call, CallPlan, Case, CaseTensors, ContractError, Dtype, ErrorKind, Mode,
    OwnedTensor, TensorMut, TensorView, ValueClass, check, expected_outputs, run_oracle,
};

/// A liberty that implementations take.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Shortcut {
    /// None: F32 arithmetic with 16 partial sums and every rounding of the contract.
    Honest,
    /// The gate is not rounded before the product.
    UnroundedGate,
    /// Statistics come from the sum before it is rounded.
    UnroundedResidual,
    /// `n` is not rounded before the gain.
    UnroundedNorm,
    /// Quantization multiplies by the reciprocal of the scale.
    ReciprocalScale,
    /// The sum of squares is accumulated in the activation type.
    ShortAccumulator,
    /// Epsilon is added outside the root.
    EpsilonOutside,
    /// Exponentials are added without the maximum taken off first.
    NoMaximum,
    /// Ties go to the highest index.
    LastTie,
    /// Rank counts only larger logits.
    StrictRank,
    /// Masking also takes what lies on the threshold.
    MaskedThreshold,
}

struct Device(Shortcut);

fn row(view: &TensorView<'_>, index: u64) -> Vec<f32> {
    let mut values = Vec::new();
    view.read_row(index, &mut values);
    values.iter().map(|value| *value as f32).collect()
}

fn store(output: &mut TensorMut<'_>, index: u64, values: &[f32]) {
    let values: Vec<f64> = values.iter().map(|value| f64::from(*value)).collect();
    output.write_row(index, &values);
}

fn rounded(dtype: Dtype, value: f32) -> f32 {
    round_to(dtype, f64::from(value)) as f32
}

/// A sum in 16 partial sums.
fn sum(values: impl Iterator<Item = f32>) -> f32 {
    let mut lanes = [0f32; 16];
    values.enumerate().for_each(|(place, value)| lanes[place % 16] += value);
    lanes.iter().sum()
}

impl Device {
    fn is(&self, shortcut: Shortcut) -> bool {
        self.0 == shortcut
    }

    fn inverse(&self, call: &Call, values: &[f32]) -> f32 {
        let eps = call.float("eps").expect("a norm") as f32;
        let squares = if self.is(Shortcut::ShortAccumulator) {
            values.iter().fold(0f32, |total, value| rounded(call.dtype, total + value * value))
        } else {
            sum(values.iter().map(|value| value * value))
        };
        let mean = squares / values.len() as f32;
        if self.is(Shortcut::EpsilonOutside) {
            1.0 / (mean.sqrt() + eps)
        } else {
            1.0 / (mean + eps).sqrt()
        }
    }

    /// The sum to store and the values to normalize.
    fn add(&self, dtype: Dtype, x: &[f32], residual: &[f32]) -> (Vec<f32>, Vec<f32>) {
        let exact: Vec<f32> = x.iter().zip(residual).map(|(left, right)| left + right).collect();
        let stored: Vec<f32> = exact.iter().map(|value| rounded(dtype, *value)).collect();
        let normalized = if self.is(Shortcut::UnroundedResidual) { exact } else { stored.clone() };
        (stored, normalized)
    }

    fn norms(&self, call: &Call, inputs: &[TensorView<'_>], outputs: &mut [TensorMut<'_>]) {
        let in_place = call.operator.name == "add_rms_norm";
        let gains = row(inputs.last().expect("w"), 0);
        for index in 0..outputs[0].layout.rows() {
            let mut values =
                if in_place { row(&outputs[0].view(), index) } else { row(&inputs[0], index) };
            if in_place {
                let (stored, normalized) =
                    self.add(call.dtype, &values, &row(&outputs[1].view(), index));
                store(&mut outputs[1], index, &stored);
                values = normalized;
            }
            let inverse = self.inverse(call, &values);
            let result: Vec<f32> =
                values.iter().zip(&gains).map(|(value, gain)| value * inverse * gain).collect();
            store(&mut outputs[0], index, &result);
        }
    }

    fn quantized(&self, call: &Call, inputs: &[TensorView<'_>], outputs: &mut [TensorMut<'_>]) {
        let (x, gains) = (&inputs[0], row(&inputs[1], 0));
        let first = outputs.len() - 2;
        for index in 0..x.layout.rows() {
            let mut values = row(x, index);
            if first == 1 {
                let (stored, normalized) =
                    self.add(call.dtype, &values, &row(&outputs[0].view(), index));
                store(&mut outputs[0], index, &stored);
                values = normalized;
            }
            let inverse = self.inverse(call, &values);
            for (value, gain) in values.iter_mut().zip(&gains) {
                let n = *value * inverse;
                let n = if self.is(Shortcut::UnroundedNorm) { n } else { rounded(call.dtype, n) };
                *value = rounded(call.dtype, n * gain);
            }
            let largest = values.iter().fold(0f32, |largest, value| largest.max(value.abs()));
            let scale = (largest / 448.0).max(1.0 / (448.0 * 512.0));
            let reciprocal = 1.0 / scale;
            let codes: Vec<f32> = values
                .iter()
                .map(|value| {
                    if self.is(Shortcut::ReciprocalScale) {
                        value * reciprocal
                    } else {
                        value / scale
                    }
                })
                .collect();
            store(&mut outputs[first], index, &codes);
            store(&mut outputs[first + 1], index, &[scale]);
        }
    }

    fn gated(&self, call: &Call, inputs: &[TensorView<'_>], outputs: &mut [TensorMut<'_>]) {
        for index in 0..outputs[0].layout.rows() {
            let values = row(&inputs[0], index);
            let (gates, values) = values.split_at(values.len() / 2);
            let result: Vec<f32> = gates
                .iter()
                .zip(values)
                .map(|(gate, value)| {
                    let gated = gate / (1.0 + (-gate).exp());
                    let keep = self.is(Shortcut::UnroundedGate);
                    (if keep { gated } else { rounded(call.dtype, gated) }) * value
                })
                .collect();
            store(&mut outputs[0], index, &result);
        }
    }

    fn best(&self, logits: &[f32]) -> usize {
        let mut best = None;
        for (place, logit) in logits.iter().enumerate() {
            let wins = |best: usize| {
                *logit > logits[best] || (self.is(Shortcut::LastTie) && *logit == logits[best])
            };
            if !logit.is_nan() && best.is_none_or(wins) {
                best = Some(place);
            }
        }
        best.unwrap_or(0)
    }

    fn log_probability(&self, logits: &[f32], logit: f32) -> f32 {
        let numbers = logits.iter().copied().filter(|value| !value.is_nan());
        let max = numbers.clone().fold(f32::NEG_INFINITY, f32::max);
        let shift = if self.is(Shortcut::NoMaximum) { 0.0 } else { max };
        let total = sum(numbers.map(|value| (value - shift).exp()));
        if max.is_finite() { logit - shift - total.ln() } else { f32::NAN }
    }

    fn rank(&self, logits: &[f32], logit: f32) -> i64 {
        let strict = self.is(Shortcut::StrictRank);
        logits.iter().filter(|value| **value > logit || (!strict && **value == logit)).count()
            as i64
    }

    fn tokens(&self, call: &Call, inputs: &[TensorView<'_>], outputs: &mut [TensorMut<'_>]) {
        let greedy = call.operator.name == "greedy_logprob";
        let (mut given, mut logprobs, mut ranks) = (Vec::new(), Vec::new(), Vec::new());
        if !greedy {
            inputs[1].read_integers(0, &mut given);
        }
        for index in 0..inputs[0].layout.rows() {
            let logits = row(&inputs[0], index);
            if greedy {
                given.push(self.best(&logits) as i64);
            }
            let logit = logits[given[index as usize] as usize];
            logprobs.push(self.log_probability(&logits, logit));
            ranks.push(self.rank(&logits, logit));
        }
        if greedy {
            outputs[0].write_integers(0, &given);
        }
        let first = usize::from(greedy);
        store(&mut outputs[first], 0, &logprobs);
        outputs[first + 1].write_integers(0, &ranks);
    }

    fn lists(&self, call: &Call, inputs: &[TensorView<'_>], outputs: &mut [TensorMut<'_>]) {
        let k = call.int("k").expect("topk") as usize;
        let (mut given, mut ranks) = (Vec::new(), Vec::new());
        inputs[1].read_integers(0, &mut given);
        for index in 0..inputs[0].layout.rows() {
            let logits = row(&inputs[0], index);
            let mut left = logits.clone();
            let mut ids = vec![given[index as usize]];
            let mut taken = vec![false; logits.len()];
            for _ in 0..k {
                // Repeated selection; what is taken, and then NaN, can no longer win.
                let best = self.best(&left);
                let place = if left[best].is_nan() || taken[best] {
                    taken.iter().position(|taken| !taken).expect("k is at most vocab")
                } else {
                    best
                };
                taken[place] = true;
                left[place] = f32::NAN;
                ids.push(place as i64);
            }
            let of = |id: &i64| self.log_probability(&logits, logits[*id as usize]);
            let logprobs: Vec<f32> = ids.iter().map(of).collect();
            ranks.push(self.rank(&logits, logits[ids[0] as usize]));
            outputs[0].write_integers(index, &ids);
            store(&mut outputs[1], index, &logprobs);
        }
        outputs[2].write_integers(0, &ranks);
    }

    fn masked(&self, inputs: &[TensorView<'_>], outputs: &mut [TensorMut<'_>]) {
        for index in 0..outputs[0].layout.rows() {
            let p = inputs[0].value(0, index) as f32;
            if p == 0.0 {
                continue;
            }
            let logits = row(&outputs[0].view(), index);
            let max = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
            let threshold = max + p.ln();
            let masked =
                proofhouse_contract::rounding::encode(outputs[0].layout.dtype, f64::NEG_INFINITY);
            for (column, logit) in (0..).zip(&logits) {
                let below = *logit < threshold
                    || (self.is(Shortcut::MaskedThreshold) && *logit == threshold);
                if below {
                    outputs[0].set_bits(index, column, masked);
                }
            }
        }
    }
}

impl Backend for Device {
    fn name(&self) -> &str {
        "device arithmetic"
    }

    fn supports(&self, call: &Call) -> bool {
        // Repeated selection is slow; one long row of it shows nothing that short ones do not.
        call.operator.name != "topk_logprobs" || call.dims["vocab"] <= 1000
    }

    fn refuse(&mut self, plan: &CallPlan) -> Result<(), ContractError> {
        plan.validate()
    }

    fn run(
        &mut self,
        call: &Call,
        mode: Mode,
        inputs: &[TensorView<'_>],
        outputs: &mut [TensorMut<'_>],
    ) -> Result<(), ContractError> {
        let logits = inputs.iter().find(|view| view.layout.shape.last() == call.dims.get("vocab"));
        if let (Mode::Checked, Some(logits)) = (mode, logits) {
            let bad = |index: &u64| row(logits, *index).iter().any(|value| value.is_nan());
            if let Some(index) = (0..logits.layout.rows()).find(bad) {
                let name = call.operator.name;
                return Err(ContractError::new(name, "logits", ErrorKind::NotFinite).at_row(index));
            }
        }
        match call.operator.name {
            "rms_norm" | "add_rms_norm" => self.norms(call, inputs, outputs),
            "rms_norm_dynamic_fp8" => self.quantized(call, inputs, outputs),
            "silu_and_mul" => self.gated(call, inputs, outputs),
            "greedy_logprob" | "selected_logprob_rank" => self.tokens(call, inputs, outputs),
            "topk_logprobs" => self.lists(call, inputs, outputs),
            // The logits of min_p are in place, so its check of them is the oracle's.
            "min_p" if mode == Mode::Checked && outputs[0].layout.elements() > 0 => {
                let mut copy = outputs[0].bytes.to_vec();
                let layout = outputs[0].layout.clone();
                let copied = TensorMut { layout, bytes: &mut copy };
                run_oracle(call, mode, inputs, &mut [copied])?;
                self.masked(inputs, outputs);
            }
            _ => self.masked(inputs, outputs),
        }
        Ok(())
    }
}

#[test]
fn honest_f32_arithmetic_meets_every_tolerance() {
    let checked =
        correctness(&mut Device(Shortcut::Honest)).unwrap_or_else(|error| panic!("{error}"));
    assert!(checked > 500, "{checked}");
}

fn operator_that_catches(shortcut: Shortcut) -> String {
    let failure = correctness(&mut Device(shortcut)).expect_err("the shortcut must be caught");
    assert!(matches!(failure.problem, Problem::Disagrees(_)), "{failure}");
    failure.case.expect("a case").call.operator.name.to_owned()
}

#[test]
fn every_shortcut_is_caught_by_the_first_operator_that_takes_it() {
    let expected = [
        (Shortcut::ShortAccumulator, "rms_norm"),
        (Shortcut::EpsilonOutside, "rms_norm"),
        (Shortcut::UnroundedResidual, "add_rms_norm"),
        (Shortcut::UnroundedNorm, "rms_norm_dynamic_fp8"),
        (Shortcut::ReciprocalScale, "rms_norm_dynamic_fp8"),
        (Shortcut::UnroundedGate, "silu_and_mul"),
        (Shortcut::NoMaximum, "greedy_logprob"),
        (Shortcut::LastTie, "greedy_logprob"),
        (Shortcut::StrictRank, "greedy_logprob"),
        (Shortcut::MaskedThreshold, "min_p"),
    ];
    for (shortcut, operator) in expected {
        assert_eq!(operator_that_catches(shortcut), operator, "{shortcut:?}");
    }
}

#[test]
fn another_code_of_nan_is_the_same_answer_and_a_number_is_not() {
    // Processors differ in the NaN that they make; the oracle's is one of many.
    let operators = [("rms_norm", "hidden"), ("add_rms_norm", "hidden"), ("silu_and_mul", "width")];
    for dtype in [Dtype::F32, Dtype::F16, Dtype::BF16] {
        for (operator, width) in operators {
            let call = Call::new(operator, dtype, &[("rows", 3), (width, 24)], &[]).expect("valid");
            let case = Case { values: ValueClass::Nan, ..Case::new(call.clone()) };
            let tensors = CaseTensors::generate(&case, 0, 0).expect("a valid case");
            let (inputs, initial) = (tensors.views(&call, false), tensors.views(&call, true));
            let mode = Mode::Unchecked;
            let expected = expected_outputs(&call, mode, &inputs, &initial).expect("a valid case");
            let agrees = |code: u64| {
                let mut candidate = expected.clone();
                let mut replaced = 0;
                for tensor in &mut candidate {
                    let mut output = tensor.view_mut();
                    let (rows, columns) = (output.layout.rows(), output.layout.width());
                    for (row, column) in
                        (0..rows).flat_map(|row| (0..columns).map(move |c| (row, c)))
                    {
                        if output.view().value(row, column).is_nan() {
                            output.set_bits(row, column, code);
                            replaced += 1;
                        }
                    }
                }
                assert!(replaced > 0, "{operator} {dtype}: no NaN");
                let views: Vec<_> = candidate.iter().map(OwnedTensor::view).collect();
                let found = check(&call, mode, &inputs, &initial, &views).expect("a valid case");
                found.iter().all(|tensor| tensor.agreement() == Agreement::Agree)
            };
            let all_ones = u64::MAX >> (64 - 8 * dtype.size());
            assert!(agrees(all_ones) && agrees(all_ones >> 1), "{operator} {dtype}");
            assert!(!agrees(0), "{operator} {dtype}");
        }
    }
}

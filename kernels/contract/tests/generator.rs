//! The generator's bytes are part of every result's identity: they may never change.
//!
//! The F32 digests below were computed by a second implementation, written in another language from the words
//! of the `inputs` module alone; min_p's is this crate's own, its logits are those that the second implementation made.

use proofhouse_contract::inputs::{Stream, fnv1a};
use proofhouse_contract::{Call, Case, CaseTensors, Dtype, OwnedTensor, ValueClass, find_operator};

/// FNV-1a of all tensors of a case with 5 rows of 37 and seed 42, outputs zero.
fn digest(operator: &str, dtype: Dtype, values: ValueClass) -> u64 {
    let spec = find_operator(operator).expect("a catalog name");
    let size = |name| if name == "rows" { 5 } else { 37 };
    let dims: Vec<_> = spec.dims.iter().map(|dim| (dim.name, size(dim.name))).collect();
    let call = Call::new(operator, dtype, &dims, &[]).expect("a catalog name");
    let case = Case { values, seed: 42, ..Case::new(call) };
    let tensors = CaseTensors::generate(&case, 0, 0).expect("a valid case");
    let bytes: Vec<u8> = tensors.tensors.iter().flat_map(OwnedTensor::packed_bytes).collect();
    fnv1a(&bytes)
}

#[test]
fn words_and_values_are_the_documented_ones() {
    let stream = Stream::new(42, "x");
    assert_eq!(stream.word(0, 0), 0x9075_0f1b_c79f_a07f);
    assert_eq!(stream.word(1_000_000_007, 3), 0x9457_1100_a196_11e5);
    let normal = [1.428_588_867_187_5, -0.489_959_716_796_875, -0.379_791_259_765_625];
    assert_eq!([0, 1, 2].map(|index| stream.normal(index)), normal);
    let uniform = [0.128_572_344_779_968_26, -0.024_813_771_247_863_77];
    assert_eq!([0, 1].map(|index| stream.uniform(index)), uniform);
}

#[test]
fn every_class_keeps_its_bytes_in_f32() {
    let golden = [
        ("rms_norm", ValueClass::Normal, 0x52df_4414_3df1_d41b_u64),
        ("rms_norm", ValueClass::Uniform, 0xcca3_0967_8a77_ae9f),
        ("rms_norm", ValueClass::AllEqual, 0x9038_e98c_b4f9_2045),
        ("rms_norm", ValueClass::Cancelling, 0xa747_a47c_0cf7_8b40),
        ("rms_norm", ValueClass::Huge, 0x5975_2c31_dcf9_f304),
        ("rms_norm", ValueClass::Subnormal, 0x490f_4592_4ce6_eafe),
        ("rms_norm", ValueClass::SignedZero, 0xcf9f_736f_b8b3_d9d5),
        ("rms_norm", ValueClass::Infinite, 0xcb29_fb15_8a61_dd29),
        ("rms_norm", ValueClass::Nan, 0x66f2_2a79_ecc4_f9e9),
        ("rms_norm", ValueClass::OneHot, 0xd3d4_e2e6_226d_cdcd),
        ("rms_norm", ValueClass::HeavyTies, 0x1e15_221d_787a_4eb7),
        ("add_rms_norm", ValueClass::Cancelling, 0x426f_5e5c_9e87_6b52),
        ("selected_logprob_rank", ValueClass::Normal, 0xb647_424b_04bd_17e3),
        ("greedy_logprob", ValueClass::MaskedRows, 0xcaab_1ac3_e6a4_ae90),
        ("min_p", ValueClass::Normal, 0x144b_fede_a5d3_b0f8),
    ];
    for (operator, values, expected) in golden {
        let found = digest(operator, Dtype::F32, values);
        assert_eq!(found, expected, "{operator} {values}: {found:#018x}");
    }
}

#[test]
fn short_types_keep_their_bytes() {
    let golden = [
        (Dtype::F16, ValueClass::Normal, 0xf489_838a_81f6_e5c8_u64),
        (Dtype::F16, ValueClass::Huge, 0x052a_5573_ccf1_dbd2),
        (Dtype::F16, ValueClass::Subnormal, 0xac13_0244_0fd0_dad2),
        (Dtype::BF16, ValueClass::Normal, 0xa135_12fa_bf73_307d),
        (Dtype::BF16, ValueClass::Huge, 0xb8c5_3dea_373d_5f56),
        (Dtype::BF16, ValueClass::Subnormal, 0xd17c_9748_53bc_6715),
    ];
    for (dtype, values, expected) in golden {
        let found = digest("rms_norm", dtype, values);
        assert_eq!(found, expected, "{dtype} {values}: {found:#018x}");
    }
}

/// Values of one tensor of a case of 8 rows of 64.
fn values_of(operator: &str, dtype: Dtype, values: ValueClass, tensor: &str) -> Vec<Vec<f64>> {
    let spec = find_operator(operator).expect("a catalog name");
    let size = |name| if name == "rows" { 8 } else { 64 };
    let dims: Vec<_> = spec.dims.iter().map(|dim| (dim.name, size(dim.name))).collect();
    let call = Call::new(operator, dtype, &dims, &[]).expect("a catalog name");
    let tensors = CaseTensors::generate(&Case { values, seed: 1, ..Case::new(call) }, 0, 0)
        .expect("a valid case");
    let tensor = tensors.get(tensor).expect("a tensor");
    let mut row = Vec::new();
    (0..tensor.layout.rows())
        .map(|index| {
            tensor.view().read_row(index, &mut row);
            row.clone()
        })
        .collect()
}

#[test]
fn classes_hold_what_their_names_say() {
    for dtype in [Dtype::F32, Dtype::F16, Dtype::BF16] {
        let logits = |values| values_of("greedy_logprob", dtype, values, "logits");
        let all = |values, holds: fn(f64) -> bool| {
            assert!(logits(values).iter().flatten().all(|value| holds(*value)), "{dtype} {values}");
        };
        all(ValueClass::AllEqual, |value| value == 0.710_937_5);
        all(ValueClass::HeavyTies, |value| [-1.0, -0.5, 0.0, 0.5].contains(&value));
        let limit = dtype.max_finite();
        assert!(
            logits(ValueClass::Huge)
                .iter()
                .flatten()
                .all(|value| value.is_finite() && value.abs() >= limit / 2.0)
        );
        for (values, marked) in [(ValueClass::Infinite, 0), (ValueClass::Nan, 0)] {
            let rows = logits(values);
            assert_eq!(rows[marked].iter().filter(|value| !value.is_finite()).count(), 1);
            assert!(rows[1].iter().all(|value| value.is_finite()));
        }
        let masked = logits(ValueClass::MaskedRows);
        assert!(masked[3].iter().all(|value| *value == f64::NEG_INFINITY));
        assert!(masked[0].iter().any(|value| value.is_finite()));
        let smallest_normal =
            dtype.min_positive() * 2f64.powi(dtype.mantissa_bits().unwrap_or(0) as i32);
        let subnormal = logits(ValueClass::Subnormal);
        assert!(subnormal.iter().flatten().all(|value| value.abs() < smallest_normal));
        assert!(subnormal.iter().flatten().any(|value| *value != 0.0));
        let zeros = logits(ValueClass::SignedZero);
        assert!(zeros.iter().flatten().any(|value| *value == 0.0 && value.is_sign_negative()));
        let hot = logits(ValueClass::OneHot);
        assert!(hot.iter().all(|row| row.iter().filter(|value| **value == 8.0).count() == 1));
    }
}

#[test]
fn huge_rows_have_a_sum_of_squares_that_fits_f32() {
    for (operator, tensor) in
        [("rms_norm", "x"), ("add_rms_norm", "x"), ("add_rms_norm", "residual")]
    {
        for dtype in [Dtype::F32, Dtype::F16, Dtype::BF16] {
            for row in values_of(operator, dtype, ValueClass::Huge, tensor) {
                let sum: f64 = row.iter().map(|value| value * value).sum();
                assert!(sum < f64::from(f32::MAX) / 4.0);
            }
        }
    }
}

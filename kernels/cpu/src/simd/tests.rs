//! The pieces on every path of this machine, against definitions.

use proofhouse_contract::rounding;

use super::quantize::{self, Block};
use super::{Kind, Target, activation, logits, norm};
use crate::path::Path;

fn bytes(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_le_bytes()).collect()
}

fn halves(values: impl Iterator<Item = u16>) -> Vec<u8> {
    values.flat_map(u16::to_le_bytes).collect()
}

fn floats(bytes: &[u8]) -> Vec<f32> {
    bytes.chunks_exact(4).map(|raw| f32::from_le_bytes(raw.try_into().unwrap())).collect()
}

fn targets(kind: Kind) -> impl Iterator<Item = Target> {
    Path::supported().map(move |path| Target { path, kind })
}

/// A sequence of well mixed words.
fn words(count: usize) -> impl Iterator<Item = u32> {
    let mut word = 0x1234_5678_9abc_def1_u64;
    (0..count).map(move |_| {
        word = word.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (word >> 32) as u32
    })
}

/// Every E4M3 value up to 448, every midpoint, and the neighbors of each, with both signs.
fn quotients() -> Vec<f32> {
    let mut values = Vec::new();
    let lattice: Vec<f32> = (0..=0x7e).map(|code| rounding::e4m3_value(code) as f32).collect();
    for pair in lattice.windows(2) {
        for value in [pair[0], pair[0] / 2.0 + pair[1] / 2.0, pair[1]] {
            values.extend(
                [value.next_down(), value, value.next_up()].map(|value| value.clamp(0.0, 448.0)),
            );
        }
    }
    values.extend(words(5000).map(|word| (word as f32 / u32::MAX as f32) * 448.0));
    values.extend(words(5000).map(|word| (word as f32 / u32::MAX as f32) * 0.05));
    values.iter().flat_map(|value| [*value, -*value]).collect()
}

#[test]
fn every_e4m3_value_and_midpoint_is_rounded_as_the_contract_rounds() {
    let values = quotients();
    for target in targets(Kind::F32) {
        // Powers of two scale exactly; the others exercise the quotient.
        for scale in [1.0f32, 0.25, 3.0, 0.1, 1e-5, 7.3e20] {
            for piece in values.chunks(1003) {
                let x: Vec<f32> = piece.iter().map(|value| value * scale).collect();
                let gain = vec![1.0f32; x.len()];
                let mut block = Block::new();
                quantize::values(target, &bytes(&x), &bytes(&gain), &mut block, 1.0);
                let mut q = vec![0u8; x.len()];
                quantize::quantize(
                    target,
                    &block,
                    &bytes(&x),
                    &mut q,
                    scale,
                    norm::Ahead::bytes(0),
                );
                for (value, code) in x.iter().zip(q) {
                    let expected = rounding::e4m3_bits(f64::from(value / scale));
                    assert_eq!(code, expected, "{} {value} / {scale}", target.path);
                }
            }
        }
    }
}

#[test]
fn codes_of_short_types_keep_their_places_and_signs() {
    for kind in [Kind::F16, Kind::Bf16] {
        let dtype = kind.dtype();
        let row = halves(words(777).map(|word| {
            let value = f64::from(word as i32) / f64::from(i32::MAX) * 400.0;
            rounding::encode(dtype, if word % 7 == 0 { -0.0 } else { value }) as u16
        }));
        let gain = halves((0..777).map(|_| rounding::encode(dtype, 1.0) as u16));
        for target in targets(kind) {
            let mut block = Block::new();
            let largest = quantize::values(target, &row, &gain, &mut block, 1.0);
            let mut q = vec![0u8; 777];
            quantize::quantize(target, &block, &row, &mut q, 1.0, norm::Ahead::bytes(0));
            let mut expected_largest = 0.0;
            for (raw, code) in row.chunks_exact(2).zip(q) {
                let bits = u16::from_le_bytes(raw.try_into().unwrap());
                let value = rounding::decode(dtype, u64::from(bits));
                assert_eq!(code, rounding::e4m3_bits(value), "{} {value}", target.path);
                expected_largest = value.abs().max(expected_largest);
            }
            assert_eq!(f64::from(largest), expected_largest);
        }
    }
}

#[test]
fn a_nan_gain_is_seen_before_anything_is_quantized() {
    for target in targets(Kind::F32) {
        for place in [0, 17, 39] {
            let x = vec![1.0f32; 40];
            let mut gain = vec![1.0f32; 40];
            gain[place] = f32::NAN;
            let largest =
                quantize::values(target, &bytes(&x), &bytes(&gain), &mut Block::new(), 1.0);
            assert!(largest.is_nan(), "{} {place}", target.path);
        }
    }
}

#[test]
fn the_exponential_is_within_two_ulps_over_its_range() {
    for target in targets(Kind::F32) {
        for step in 0..20_000 {
            let d = -87.0 * step as f32 / 20_000.0;
            // One element in a row: the sum is its exponential.
            let got = logits::mass(target, &d.to_le_bytes(), 0.0, 0.0).sum;
            let exact = f64::from(d).exp();
            let ulp = rounding::ulp_size(proofhouse_contract::Dtype::F32, exact);
            assert!(
                (got - exact).abs() <= 2.0 * ulp,
                "{} exp({d}) = {got}, not {exact}",
                target.path
            );
        }
    }
}

#[test]
fn masked_logits_add_no_mass_and_nan_is_reported() {
    for target in targets(Kind::F32) {
        let mut row = vec![f32::NEG_INFINITY; 1000];
        row[333] = 2.5;
        let peak = logits::peak(target, &bytes(&row));
        assert_eq!((peak.value, peak.nan), (2.5, false));
        let mass = logits::mass(target, &bytes(&row), 2.5, 2.5);
        assert!((mass.sum - 1.0).abs() < 1e-30 && mass.reaching == 1);
        row[999] = f32::NAN;
        let peak = logits::peak(target, &bytes(&row));
        assert_eq!((peak.value, peak.nan), (2.5, true));
        let mass = logits::mass(target, &bytes(&row), 2.5, f32::NEG_INFINITY);
        assert!((mass.sum - 1.0).abs() < 1e-30 && mass.reaching == 999);
    }
}

#[test]
fn a_cut_keeps_the_bits_of_everything_it_does_not_mask() {
    // Every 16-bit pattern, signaling NaN included.
    for (kind, infinity) in [(Kind::F16, 0xfc00u16), (Kind::Bf16, 0xff80)] {
        for target in targets(kind) {
            let mut row = halves(0..=u16::MAX);
            logits::cut(target, &mut row, 0.5);
            for (bits, raw) in (0..=u16::MAX).zip(row.chunks_exact(2)) {
                let value = rounding::decode(kind.dtype(), u64::from(bits));
                let expected = if value < 0.5 { infinity } else { bits };
                assert_eq!(
                    u16::from_le_bytes(raw.try_into().unwrap()),
                    expected,
                    "{}",
                    target.path
                );
            }
        }
    }
}

#[test]
fn every_sum_of_halves_is_rounded_once_to_even() {
    for kind in [Kind::F16, Kind::Bf16] {
        let dtype = kind.dtype();
        let left: Vec<u16> = words(70_001).map(|word| (word >> 16) as u16).collect();
        let right: Vec<u16> = words(70_001).map(|word| word as u16).collect();
        for target in targets(kind) {
            let mut sum = halves(right.iter().copied());
            norm::add_squares(target, &halves(left.iter().copied()), &mut sum);
            for ((left, right), raw) in left.iter().zip(&right).zip(sum.chunks_exact(2)) {
                let exact = rounding::decode(dtype, u64::from(*left))
                    + rounding::decode(dtype, u64::from(*right));
                let got = u16::from_le_bytes(raw.try_into().unwrap());
                let same = u64::from(got) == rounding::encode(dtype, exact)
                    || (exact.is_nan() && rounding::decode(dtype, u64::from(got)).is_nan());
                assert!(same, "{} {left:#x} + {right:#x} = {got:#x}", target.path);
            }
        }
    }
}

#[test]
fn silu_is_within_four_ulps_and_keeps_its_limits() {
    for target in targets(Kind::F32) {
        let gates: Vec<f32> = (-8700..=20_000).map(|step| step as f32 / 100.0).collect();
        let up = vec![1.0f32; gates.len()];
        let mut y = bytes(&up);
        activation::silu_and_mul(target, &bytes(&gates), &bytes(&up), &mut y);
        for (gate, got) in gates.iter().zip(floats(&y)) {
            let exact = f64::from(*gate) / (1.0 + (-f64::from(*gate)).exp());
            let ulp = rounding::ulp_size(proofhouse_contract::Dtype::F32, exact);
            assert!(
                (f64::from(got) - exact).abs() <= 4.0 * ulp,
                "{} silu({gate}) = {got}",
                target.path
            );
        }
        let edges = [f32::NEG_INFINITY, f32::INFINITY, f32::NAN, -1e38, -0.0];
        let mut y = bytes(&edges);
        activation::silu_and_mul(target, &bytes(&edges), &bytes(&[1.0; 5]), &mut y);
        let y = floats(&y);
        assert!(
            y[0].is_nan() && y[1] == f32::INFINITY && y[2].is_nan() && y[3] == 0.0 && y[4] == 0.0
        );
    }
}

#[test]
#[should_panic(expected = "rows of one length")]
fn rows_of_different_lengths_never_reach_a_kernel() {
    let target = Target { path: Path::best(), kind: Kind::F32 };
    norm::apply(target, &[0; 8], &[0; 8], &mut [0; 4], 1.0, norm::Ahead::bytes(0));
}

#[test]
#[should_panic(expected = "fill the block")]
fn a_block_that_was_not_written_is_never_read() {
    let target = Target { path: Path::best(), kind: Kind::F32 };
    quantize::quantize(target, &Block::new(), &[0; 8], &mut [0; 2], 1.0, norm::Ahead::bytes(0));
}

//! Rows that F32 arithmetic cannot normalize: in F64, one element at a time.
//!
//! Squares that overflow F32, infinities, NaN, or a mean square and an epsilon that both vanish in F32 come
//! here. They are rare, so this code is plain.

use proofhouse_contract::{Dtype, rounding};

fn load(dtype: Dtype, row: &[u8], index: usize) -> f64 {
    let size = dtype.size();
    let mut word = [0u8; 8];
    word[..size].copy_from_slice(&row[index * size..][..size]);
    rounding::decode(dtype, u64::from_le_bytes(word))
}

fn store(dtype: Dtype, row: &mut [u8], index: usize, value: f64) {
    let size = dtype.size();
    let bits = rounding::encode(dtype, value).to_le_bytes();
    row[index * size..][..size].copy_from_slice(&bits[..size]);
}

/// `1 / sqrt(mean(row²) + eps)`.
pub(crate) fn inverse_root_mean_square(dtype: Dtype, row: &[u8], eps: f64) -> f64 {
    let length = row.len() / dtype.size();
    let squares: f64 =
        (0..length).map(|index| load(dtype, row, index)).map(|value| value * value).sum();
    1.0 / (squares / length as f64 + eps).sqrt()
}

/// `y = round(x * inverse * w)`.
pub(crate) fn apply(dtype: Dtype, x: &[u8], w: &[u8], y: &mut [u8], inverse: f64) {
    for index in 0..x.len() / dtype.size() {
        let value = load(dtype, x, index) * inverse * load(dtype, w, index);
        store(dtype, y, index, value);
    }
}

/// Quantizes a row and returns its scale.
pub(crate) fn quantize(dtype: Dtype, x: &[u8], w: &[u8], q: &mut [u8], inverse: f64) -> f32 {
    let value = |index: usize| {
        let normalized = rounding::round_to(dtype, load(dtype, x, index) * inverse);
        rounding::round_to(dtype, normalized * load(dtype, w, index))
    };
    let absmax = (0..q.len()).map(value).fold(0.0, |largest: f64, v| largest.max(v.abs()));
    let scale = crate::quantized::scale_of(absmax as f32);
    for (index, code) in q.iter_mut().enumerate() {
        *code = rounding::e4m3_bits(f64::from((value(index) / f64::from(scale)) as f32));
    }
    scale
}

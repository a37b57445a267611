//! A plain rms_norm in F32.

/// Normalizes every row; `reversed` adds from the back.
pub(crate) fn rms_norm(x: &[f32], weight: &[f32], eps: f64, reversed: bool) -> Vec<f32> {
    let width = weight.len();
    let mut out = Vec::with_capacity(x.len());
    for row in x.chunks_exact(width) {
        let square = |value: &f32| f64::from(*value) * f64::from(*value);
        let sum: f64 = if reversed {
            row.iter().rev().map(square).sum()
        } else {
            row.iter().map(square).sum()
        };
        let inverse = 1.0 / (sum / width as f64 + eps).sqrt();
        out.extend(
            row.iter().zip(weight).map(|(x, w)| (f64::from(*x) * inverse * f64::from(*w)) as f32),
        );
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_of_equal_values_becomes_its_weights() {
        let out = rms_norm(&[3.0, 3.0], &[1.0, -2.0], 0.0, false);
        assert_eq!(out, [1.0, -2.0]);
    }
}

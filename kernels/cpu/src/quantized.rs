//! `rms_norm_dynamic_fp8`.

use proofhouse_contract::{TensorMut, TensorView};

use crate::normalized::inverse_root;
use crate::parallel::over_rows;
use crate::precise;
use crate::rows::{Rows, RowsMut};
use crate::simd::quantize::{self, Block};
use crate::simd::{Target, norm};

/// Largest finite E4M3 value.
const E4M3_MAX: f32 = 448.0;
/// Smallest scale.
const SCALE_MIN: f32 = 1.0 / (448.0 * 512.0);

/// The scale of a row whose largest magnitude is `absmax`.
pub(crate) fn scale_of(absmax: f32) -> f32 {
    (absmax / E4M3_MAX).max(SCALE_MIN)
}

/// Operands of the operator, accepted.
pub(crate) struct Operands<'a, 'b, 'c> {
    /// Activations.
    pub x: &'a TensorView<'b>,
    /// Gain.
    pub w: &'a TensorView<'b>,
    /// Residual stream, when it is added in front.
    pub residual: Option<&'a mut TensorMut<'c>>,
    /// Quantized activations.
    pub q: &'a mut TensorMut<'c>,
    /// Scale of each row.
    pub scale: &'a mut TensorMut<'c>,
}

/// Normalizes and quantizes.
pub(crate) fn rms_norm_dynamic_fp8(target: Target, operands: Operands<'_, '_, '_>, eps: f64) {
    let Operands { x, w, residual, q, scale } = operands;
    let gain = Rows::of(w).row(0);
    let row_bytes = 2 * gain.len();
    let rows = (Rows::of(x), residual.map(RowsMut::of), RowsMut::of(q), RowsMut::elements(scale));
    let fault: Option<()> =
        over_rows(rows, row_bytes, &|_, (x, mut residual, mut q, mut scale)| {
            let mut block = Block::new();
            for index in 0..x.count() {
                let (row, squares, stride) = match residual.as_mut() {
                    None => (x.row(index), norm::squares(target, x.row(index)), x.stride()),
                    Some(residual) => {
                        let stride = residual.stride();
                        let sum = residual.row(index);
                        let squares = norm::add_squares(target, x.row(index), sum);
                        (&*sum, squares, stride)
                    }
                };
                let source = Source { row, gain, squares, ahead: norm::Ahead::bytes(stride) };
                let row_scale = quantize_row(target, &source, q.row(index), eps, &mut block);
                scale.row(index).copy_from_slice(&row_scale.to_le_bytes());
            }
            None
        });
    debug_assert!(fault.is_none());
}

/// What a row is quantized from.
struct Source<'a> {
    row: &'a [u8],
    gain: &'a [u8],
    squares: f64,
    ahead: norm::Ahead,
}

/// Quantizes one row and returns its scale.
fn quantize_row(
    target: Target,
    source: &Source<'_>,
    q: &mut [u8],
    eps: f64,
    block: &mut Block,
) -> f32 {
    let Source { row, gain, squares, ahead } = *source;
    if let Some(inverse) = inverse_root(squares, q.len(), eps) {
        let size = target.kind.size();
        let piece = Block::capacity(target.kind);
        let pieces = || row.chunks(piece * size).zip(gain.chunks(piece * size));
        let absmax = pieces().fold(0.0, |largest: f32, (row, gain)| {
            let found = quantize::values(target, row, gain, block, inverse);
            // NaN stays: it means that the row is not for this code.
            if found > largest || found.is_nan() { found } else { largest }
        });
        let scale = scale_of(absmax);
        if !absmax.is_nan() && quantize::divides_exactly(scale) {
            let whole = row.len() <= piece * size;
            for ((row, gain), q) in pieces().zip(q.chunks_mut(piece)) {
                if !whole {
                    quantize::values(target, row, gain, block, inverse);
                }
                quantize::quantize(target, block, row, q, scale, ahead);
            }
            return scale;
        }
    }
    let dtype = target.kind.dtype();
    let inverse = precise::inverse_root_mean_square(dtype, row, eps);
    precise::quantize(dtype, row, gain, q, inverse)
}

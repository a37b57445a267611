//! `rms_norm` and `add_rms_norm`.

use proofhouse_contract::{TensorMut, TensorView};

use crate::parallel::over_rows;
use crate::precise;
use crate::rows::{Rows, RowsMut};
use crate::simd::{Target, norm};

/// Below this, a square of an F32 may vanish: F64 takes over unless epsilon covers it.
const SMALLEST: f64 = 1.0 / (1u128 << 80) as f64;
/// Above this, an epsilon makes the inverse root too small for F32.
const LARGEST_EPS: f64 = (1u128 << 80) as f64;

/// `1 / sqrt(mean + eps)`, or `None` where F32 did not hold the sum of squares.
pub(crate) fn inverse_root(squares: f64, length: usize, eps: f64) -> Option<f32> {
    let seen =
        squares.is_finite() && (squares >= SMALLEST || eps >= SMALLEST) && eps <= LARGEST_EPS;
    seen.then(|| (1.0 / (squares / length as f64 + eps).sqrt()) as f32)
}

/// Normalizes accepted operands.
pub(crate) fn rms_norm(
    target: Target,
    x: &TensorView<'_>,
    w: &TensorView<'_>,
    y: &mut TensorMut<'_>,
    eps: f64,
) {
    let gain = Rows::of(w).row(0);
    let row_bytes = 2 * gain.len();
    let fault: Option<()> =
        over_rows((Rows::of(x), RowsMut::of(y)), row_bytes, &|_, (x, mut y)| {
            let ahead = norm::Ahead::bytes(x.stride());
            for index in 0..x.count() {
                let (row, out) = (x.row(index), y.row(index));
                let squares = norm::squares(target, row);
                finish(target, Normalizing { row, gain, squares, eps, ahead }, out);
            }
            None
        });
    debug_assert!(fault.is_none());
}

/// Adds and normalizes accepted operands in place.
pub(crate) fn add_rms_norm(
    target: Target,
    x: &mut TensorMut<'_>,
    residual: &mut TensorMut<'_>,
    w: &TensorView<'_>,
    eps: f64,
) {
    let gain = Rows::of(w).row(0);
    let row_bytes = 4 * gain.len();
    let rows = (RowsMut::of(x), RowsMut::of(residual));
    let fault: Option<()> = over_rows(rows, row_bytes, &|_, (mut x, mut residual)| {
        use crate::rows::Split;
        let ahead = norm::Ahead::bytes(residual.stride());
        for index in 0..x.count() {
            let (out, row) = (x.row(index), residual.row(index));
            let squares = norm::add_squares(target, out, row);
            finish(target, Normalizing { row, gain, squares, eps, ahead }, out);
        }
        None
    });
    debug_assert!(fault.is_none());
}

/// A row and its statistics.
struct Normalizing<'a> {
    row: &'a [u8],
    gain: &'a [u8],
    squares: f64,
    eps: f64,
    ahead: norm::Ahead,
}

fn finish(target: Target, from: Normalizing<'_>, out: &mut [u8]) {
    let Normalizing { row, gain, squares, eps, ahead } = from;
    match inverse_root(squares, row.len() / target.kind.size(), eps) {
        Some(inverse) => norm::apply(target, row, gain, out, inverse, ahead),
        None => {
            let dtype = target.kind.dtype();
            let inverse = precise::inverse_root_mean_square(dtype, row, eps);
            precise::apply(dtype, row, gain, out, inverse);
        }
    }
}

//! `silu_and_mul`.

use proofhouse_contract::{TensorMut, TensorView};

use crate::parallel::over_rows;
use crate::rows::{Rows, RowsMut};
use crate::simd::{Target, activation};

/// Applies the gate to accepted operands.
pub(crate) fn silu_and_mul(target: Target, x: &TensorView<'_>, y: &mut TensorMut<'_>) {
    let width = y.layout.width() as usize * target.kind.size();
    let fault: Option<()> =
        over_rows((Rows::of(x), RowsMut::of(y)), 3 * width, &|_, (x, mut y)| {
            for index in 0..x.count() {
                let (gate, up) = x.row(index).split_at(width);
                activation::silu_and_mul(target, gate, up, y.row(index));
            }
            None
        });
    debug_assert!(fault.is_none());
}

// In place, twice: residual = round(x + residual); then, with statistics from the rounded residual,
// x = round(residual / sqrt(mean(residual²) + eps) * w).
#include "norm.cuh"

struct Arguments {
  char* x;
  char* residual;
  const char* w;
  /// Bytes from row to row.
  unsigned long long x_stride;
  unsigned long long residual_stride;
  int rows;
  int hidden;
  float inverse_hidden;
  float eps;
};
static_assert(sizeof(Arguments) == ARGUMENT_BYTES, "the host passes the same structure");

extern "C" __global__ void __launch_bounds__(THREADS* ROWS) add_rms_norm(const __grid_constant__ Arguments a) {
  __shared__ Exchange shared;
  const Place place;
  const int step = gridDim.x * ROWS;
  int first = blockIdx.x * ROWS;

  int row = first + place.row_in_block;
  int width = width_of(row, a.rows, a.hidden);
  take_turn(row_at(a.x, row, a.x_stride) + place.thread * 16ull, a.w + place.thread * 16ull);
  Vector x[VECTORS];
  Vector residual[VECTORS];
  read_row<ELEMENT, Access::Kept>(row_at(a.x, row, a.x_stride), place.thread, width, x);
  read_row<ELEMENT, Access::Kept>(row_at(a.residual, row, a.residual_stride), place.thread, width, residual);
  Vector w[VECTORS];
  if constexpr (GAINS_AHEAD) {
    read_row<ELEMENT, Access::Kept>(a.w, place.thread, WHOLE ? HELD : a.hidden, w);
  }
  issue_loads();
  while (true) {
    float sums[VECTORS];
#pragma unroll
    for (int k = 0; k < VECTORS; ++k) {
      residual[k] = add<ELEMENT>(x[k], residual[k]);
      sums[k] = squares<ELEMENT>(residual[k]);
    }
    write_row<ELEMENT>(row_at(a.residual, row, a.residual_stride), place.thread, width, residual);
    const int next = row + step;
    Vector x_ahead[VECTORS];
    Vector residual_ahead[VECTORS];
    if constexpr (LOOPED) {
      const int width_ahead = width_of(next, a.rows, a.hidden);
      read_row<ELEMENT, Access::Kept>(row_at(a.x, next, a.x_stride), place.thread, width_ahead, x_ahead);
      read_row<ELEMENT, Access::Kept>(row_at(a.residual, next, a.residual_stride), place.thread, width_ahead,
                                           residual_ahead);
    }
    const float inverse = inverse_root(row_sum(shared, place.thread, sums), a.inverse_hidden, a.eps);
    if constexpr (!GAINS_AHEAD) {
      read_row<ELEMENT, Access::Kept>(a.w, place.thread, WHOLE ? HELD : a.hidden, w);
    }
#pragma unroll
    for (int k = 0; k < VECTORS; ++k) {
      x[k] = scale<ELEMENT>(residual[k], inverse, w[k]);
    }
    write_row<ELEMENT>(row_at(a.x, row, a.x_stride), place.thread, width, x);
    first += step;
    if (!LOOPED || first >= a.rows) {
      break;
    }
    row = next;
    width = width_of(row, a.rows, a.hidden);
    if constexpr (LOOPED && WARPS > 1) {
      __syncthreads();
    }
#pragma unroll
    for (int k = 0; k < VECTORS; ++k) {
      x[k] = x_ahead[k];
      residual[k] = residual_ahead[k];
    }
  }
}

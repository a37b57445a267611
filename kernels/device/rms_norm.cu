// y = x / sqrt(mean(x²) + eps) * w over the last axis; one rounding, at the store.
#include "norm.cuh"

struct Arguments {
  const char* x;
  const char* w;
  char* y;
  /// Bytes from row to row.
  unsigned long long x_stride;
  unsigned long long y_stride;
  int rows;
  int hidden;
  float inverse_hidden;
  float eps;
};
static_assert(sizeof(Arguments) == ARGUMENT_BYTES, "the host passes the same structure");

extern "C" __global__ void __launch_bounds__(THREADS* ROWS) rms_norm(const __grid_constant__ Arguments a) {
  __shared__ Exchange shared;
  const Place place;
  const int step = gridDim.x * ROWS;
  int first = blockIdx.x * ROWS;

  int row = first + place.row_in_block;
  int width = width_of(row, a.rows, a.hidden);
  take_turn(row_at(a.x, row, a.x_stride) + place.thread * 16ull, a.w + place.thread * 16ull);
  Vector x[VECTORS];
  read_row<ELEMENT, ROW_ACCESS>(row_at(a.x, row, a.x_stride), place.thread, width, x);
  Vector w[VECTORS];
  if constexpr (GAINS_AHEAD) {
    read_row<ELEMENT, Access::Kept>(a.w, place.thread, WHOLE ? HELD : a.hidden, w);
  }
  issue_loads();
  while (true) {
    const int next = row + step;
    Vector ahead[VECTORS];
    if constexpr (LOOPED) {
      read_row<ELEMENT, ROW_ACCESS>(row_at(a.x, next, a.x_stride), place.thread, width_of(next, a.rows, a.hidden), ahead);
    }
    float sums[VECTORS];
#pragma unroll
    for (int k = 0; k < VECTORS; ++k) {
      sums[k] = squares<ELEMENT>(x[k]);
    }
    const float inverse = inverse_root(row_sum(shared, place.thread, sums), a.inverse_hidden, a.eps);
    if constexpr (!GAINS_AHEAD) {
      read_row<ELEMENT, Access::Kept>(a.w, place.thread, WHOLE ? HELD : a.hidden, w);
    }
#pragma unroll
    for (int k = 0; k < VECTORS; ++k) {
      x[k] = scale<ELEMENT>(x[k], inverse, w[k]);
    }
    write_row<ELEMENT>(row_at(a.y, row, a.y_stride), place.thread, width, x);
    first += step;
    if (!LOOPED || first >= a.rows) {
      break;
    }
    row = next;
    width = width_of(row, a.rows, a.hidden);
    if constexpr (LOOPED && WARPS > 1) {
      // The sums of this row have been read before those of the next are written.
      __syncthreads();
    }
#pragma unroll
    for (int k = 0; k < VECTORS; ++k) {
      x[k] = ahead[k];
    }
  }
}

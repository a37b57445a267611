// y = x / sqrt(mean(x²) + eps) * w over the last axis; one rounding, at the store.
#include "norm.cuh"

struct Arguments {
  const char* x;
  const char* w;
  char* y;
  /// Bytes from row to row.
  long long x_stride;
  long long y_stride;
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
  // A row behind the last one has no width: it is neither read nor written.
  const auto width_of = [&](int row) { return (ROWS == 1 && !LOOPED) || row < a.rows ? a.hidden : 0; };

  int row = first + place.row_in_block;
  int width = width_of(row);
  Vector x[VECTORS];
  read_row<ELEMENT, Access::Once>(a.x + row * a.x_stride, place.thread, width, x);
  Vector w[VECTORS];
  if constexpr (GAINS_AHEAD) {
    read_row<ELEMENT, Access::Shared>(a.w, place.thread, a.hidden, w);
  }
  while (true) {
    const int next = row + step;
    Vector ahead[VECTORS];
    if constexpr (LOOPED) {
      read_row<ELEMENT, Access::Once>(a.x + next * a.x_stride, place.thread, width_of(next), ahead);
    }
    float sums[VECTORS];
#pragma unroll
    for (int k = 0; k < VECTORS; ++k) {
      sums[k] = squares<ELEMENT>(x[k]);
    }
    const float inverse = inverse_root(row_sum(shared, place.thread, sums), a.inverse_hidden, a.eps);
    if constexpr (!GAINS_AHEAD) {
      read_row<ELEMENT, Access::Shared>(a.w, place.thread, a.hidden, w);
    }
#pragma unroll
    for (int k = 0; k < VECTORS; ++k) {
      x[k] = scale<ELEMENT>(x[k], inverse, w[k]);
    }
    write_row<ELEMENT>(a.y + row * a.y_stride, place.thread, width, x);
    first += step;
    if (!LOOPED || first >= a.rows) {
      break;
    }
    row = next;
    width = width_of(row);
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

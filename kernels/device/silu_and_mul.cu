// The first half of a row is the gate g, the second the value u: a = round(g * sigmoid(g)), y = round(a * u).
//
// The host sets: ELEMENT; THREADS, the threads beside each other in a row; ROWS, the rows of a block; VECTORS, how many
// 16-byte vectors of each half a thread has under way; ALIGNED; WHOLE, whether the blocks' vectors are exactly the
// half's; STREAMING, 1 for stores that say that nobody reads the output soon, and 2 for loads that say so too.
#include "element.cuh"

struct Arguments {
  const char* x;
  char* y;
  /// Bytes from row to row.
  unsigned long long x_stride;
  unsigned long long y_stride;
  /// Bytes from a row's gates to its values.
  long long half;
  unsigned int rows;
  int width;
};
static_assert(sizeof(Arguments) == ARGUMENT_BYTES, "the host passes the same structure");

/// `1 / (1 + exp(-gate))`, with an error of less than four steps of F32.
__device__ __forceinline__ float sigmoid(float gate) {
  constexpr float LOG2_E = 1.44269502f;
  constexpr float LOG2_E_REST = 1.92596303e-8f;
  constexpr float LN_2 = 0.693147182f;
  // Below the first the exponential is zero; above the second the sigmoid has no normal number, and the reciprocal is
  // zero. A NaN ends here too, and comes back with the product.
  const float x = fminf(fmaxf(-gate, -200.0f), 88.0f);
  // The exponent's rounding is carried along: for a gate of 80 it would cost 80 steps.
  const float exponent = __fmul_rn(x, LOG2_E);
  const float rest = __fmaf_rn(x, LOG2_E_REST, __fmaf_rn(x, LOG2_E, -exponent));
  const float power = exp2_approximate(exponent);
  const float exponential = __fmaf_rn(power, __fmul_rn(rest, LN_2), power);
  return reciprocal_approximate(__fadd_rn(1.0f, exponential));
}

template <class E>
__device__ __forceinline__ Vector gated(const Vector& gates, const Vector& values) {
  float activated[PER_VECTOR<E>];
  unpack_vector<E>(gates, activated);
#pragma unroll
  for (int at = 0; at < PER_VECTOR<E>; ++at) {
    activated[at] = __fmul_rn(activated[at], sigmoid(activated[at]));
  }
  Vector product = pack_vector<E>(activated);
#pragma unroll
  for (int word = 0; word < 4; ++word) {
    product.word[word] = E::multiply(product.word[word], values.word[word]);
  }
  return product;
}

constexpr Fit FIT = !ALIGNED ? Fit::Elements : WHOLE ? Fit::Whole : Fit::Vectors;
constexpr Access HALF_ACCESS = STREAMING == 2 ? Access::Passing : Access::Once;

extern "C" __global__ void __launch_bounds__(THREADS* ROWS) silu_and_mul(const __grid_constant__ Arguments a) {
  const int thread = ROWS == 1 ? threadIdx.x : threadIdx.x % THREADS;
  const unsigned int first = blockIdx.x * (THREADS * VECTORS) + thread;
  unsigned int row = blockIdx.y * ROWS + (ROWS == 1 ? 0 : threadIdx.x / THREADS);
  const char* gate_row = a.x + row * a.x_stride;
  const char* value_row = gate_row + a.half;
  take_turn(gate_row + first * 16ull, value_row + first * 16ull);
  // With a row to a block in y, every block has a first row.
  if (ROWS > 1 && row >= a.rows) {
    return;
  }
  const int width = FIT == Fit::Whole ? 1 : a.width;
  while (true) {
    Vector gates[VECTORS];
    Vector values[VECTORS];
#pragma unroll
    for (int k = 0; k < VECTORS; ++k) {
      gates[k] = read_vector<ELEMENT, FIT, HALF_ACCESS>(gate_row, first, k * THREADS, width);
      values[k] = read_vector<ELEMENT, FIT, HALF_ACCESS>(value_row, first, k * THREADS, width);
    }
    issue_loads();
#pragma unroll
    for (int k = 0; k < VECTORS; ++k) {
      write_vector<ELEMENT, FIT, STREAMING != 0>(a.y + row * a.y_stride, first, k * THREADS, width,
                                                 gated<ELEMENT>(gates[k], values[k]));
    }
    const unsigned int step = gridDim.y * ROWS;
    row += step;
    if (row >= a.rows) {
      break;
    }
    gate_row += step * a.x_stride;
    value_row += step * a.x_stride;
  }
}

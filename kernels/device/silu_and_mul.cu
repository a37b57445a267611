// The first half of a row is the gate g, the second the value u: a = round(g * sigmoid(g)), y = round(a * u).
//
// The host sets: ELEMENT; THREADS, the threads beside each other in a row; ROWS, the rows of a block; VECTORS, how many
// 16-byte vectors of each half a thread has under way; ALIGNED; STREAMING.
#include "element.cuh"

struct Arguments {
  const char* x;
  char* y;
  /// Bytes from row to row.
  long long x_stride;
  long long y_stride;
  /// Bytes from a row's gates to its values.
  long long half;
  int rows;
  int width;
};
static_assert(sizeof(Arguments) == ARGUMENT_BYTES, "the host passes the same structure");

/// `1 / (1 + exp(-gate))`, with an error of less than four steps of F32.
__device__ __forceinline__ float sigmoid(float gate) {
  constexpr float LOG2_E = 1.44269502f;
  constexpr float LOG2_E_REST = 1.92596303e-8f;
  constexpr float LN_2 = 0.693147182f;
  // Below this the exponential is zero; a NaN ends here too, and comes back with the product.
  const float x = fmaxf(-gate, -200.0f);
  // The exponent's rounding is carried along: for a gate of 80 it would cost 80 steps.
  const float exponent = __fmul_rn(x, LOG2_E);
  const float rest = __fmaf_rn(x, LOG2_E_REST, __fmaf_rn(x, LOG2_E, -exponent));
  const float power = exp2_approximate(exponent);
  const float exponential = __fmaf_rn(power, __fmul_rn(rest, LN_2), power);
  // Above this the sigmoid has no normal number, and soon after it the exponential overflows.
  return x > 88.0f ? 0.0f : reciprocal_approximate(__fadd_rn(1.0f, exponential));
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

extern "C" __global__ void __launch_bounds__(THREADS* ROWS) silu_and_mul(const __grid_constant__ Arguments a) {
  const int thread = ROWS == 1 ? threadIdx.x : threadIdx.x % THREADS;
  const int first = blockIdx.x * (THREADS * VECTORS) + thread;
  for (int row = blockIdx.y * ROWS + (ROWS == 1 ? 0 : threadIdx.x / THREADS); row < a.rows; row += gridDim.y * ROWS) {
    const char* gate_row = a.x + row * a.x_stride;
    Vector gates[VECTORS];
    Vector values[VECTORS];
#pragma unroll
    for (int k = 0; k < VECTORS; ++k) {
      gates[k] = read_vector<ELEMENT, ALIGNED, Access::Once>(gate_row, first + k * THREADS, a.width);
      values[k] = read_vector<ELEMENT, ALIGNED, Access::Once>(gate_row + a.half, first + k * THREADS, a.width);
    }
#pragma unroll
    for (int k = 0; k < VECTORS; ++k) {
      write_vector<ELEMENT, ALIGNED, STREAMING>(a.y + row * a.y_stride, first + k * THREADS, a.width,
                                                gated<ELEMENT>(gates[k], values[k]));
    }
  }
}

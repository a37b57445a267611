// Per row: n = round(x / sqrt(mean(x²) + eps)), v = round(n * w), scale = max(absmax|v| / 448, 1 / (448 * 512)),
// q = E4M3(v / scale). With ADD_RESIDUAL, x is first replaced by residual = round(x + residual), which is stored.
#include "norm.cuh"

struct Arguments {
  const char* x;
  const char* w;
  char* residual;
  char* q;
  float* scale;
  /// Bytes from row to row.
  unsigned long long x_stride;
  unsigned long long residual_stride;
  unsigned long long q_stride;
  int rows;
  int hidden;
  float inverse_hidden;
  float eps;
};
static_assert(sizeof(Arguments) == ARGUMENT_BYTES, "the host passes the same structure");

/// `v = round(round(x * inverse) * w)`; `largest` takes in the magnitudes that are numbers.
template <class E>
__device__ __forceinline__ Vector normalize(const Vector& x, float inverse, const Vector& w, float& largest) {
  float elements[PER_VECTOR<E>];
  unpack_vector<E>(x, elements);
#pragma unroll
  for (int at = 0; at < PER_VECTOR<E>; ++at) {
    elements[at] = __fmul_rn(elements[at], inverse);
  }
  Vector v = pack_vector<E>(elements);
#pragma unroll
  for (int word = 0; word < 4; ++word) {
    v.word[word] = E::multiply(v.word[word], w.word[word]);
  }
  unpack_vector<E>(v, elements);
#pragma unroll
  for (int at = 0; at < PER_VECTOR<E>; ++at) {
    // The larger of a NaN and a number is the number.
    largest = fmaxf(largest, fabsf(elements[at]));
  }
  return v;
}

/// The quotient of a true division: the product with the rounded reciprocal is at most a step and a half off, and the
/// remainder, which is exact, corrects it. Where a quotient is too small for that, its code is zero either way.
__device__ __forceinline__ float divide(float dividend, float divisor, float reciprocal) {
  const float estimate = __fmul_rn(dividend, reciprocal);
  const float remainder = __fmaf_rn(-estimate, divisor, dividend);
  return __fmaf_rn(remainder, reciprocal, estimate);
}

/// The scale of a row whose magnitudes that are numbers are at most `largest`.
__device__ __forceinline__ float scale_of(float largest) {
  const float scale = largest < infinity() ? divide(largest, 448.0f, 1.0f / 448.0f) : largest;
  return fmaxf(scale, 1.0f / (448.0f * 512.0f));
}

/// The codes of a vector, four to a word.
template <class E>
__device__ __forceinline__ void quantize(const Vector& v, float scale, float reciprocal,
                                         unsigned int (&codes)[E::PER_WORD]) {
  float elements[PER_VECTOR<E>];
  unpack_vector<E>(v, elements);
#pragma unroll
  for (int at = 0; at < PER_VECTOR<E>; ++at) {
    // Over an infinite scale a number is zero, and an infinity is NaN.
    elements[at] = scale < infinity() ? divide(elements[at], scale, reciprocal) : __fmul_rn(elements[at], 0.0f);
  }
#pragma unroll
  for (int word = 0; word < E::PER_WORD; ++word) {
    const float* four = elements + 4 * word;
    codes[word] = f32_to_e4m3_pair(four[0], four[1]) | f32_to_e4m3_pair(four[2], four[3]) << 16;
  }
}

/// Stores the codes of vector number `vector` of a row.
template <class E>
__device__ __forceinline__ void write_codes(char* row, int vector, int width, const unsigned int (&codes)[E::PER_WORD]) {
  const int first = vector * PER_VECTOR<E>;
  if constexpr (FIT != Fit::Elements) {
    if (has_vector<E, FIT>(vector, width)) {
      if constexpr (E::PER_WORD == 1) {
        *reinterpret_cast<unsigned int*>(row + first) = codes[0];
      } else {
        *reinterpret_cast<uint2*>(row + first) = make_uint2(codes[0], codes[1]);
      }
    }
  } else {
#pragma unroll
    for (int at = 0; at < PER_VECTOR<E>; ++at) {
      if (first + at < width) {
        row[first + at] = static_cast<char>(codes[at / 4] >> at % 4 * 8);
      }
    }
  }
}

extern "C" __global__ void __launch_bounds__(THREADS* ROWS, 1) rms_norm_dynamic_fp8(const __grid_constant__ Arguments a) {
  __shared__ Exchange shared;
  const Place place;
  const int step = gridDim.x * ROWS;
  int first = blockIdx.x * ROWS;

  int row = first + place.row_in_block;
  int width = width_of(row, a.rows, a.hidden);
  take_turn(row_at(a.x, row, a.x_stride) + place.thread * 16ull, a.w + place.thread * 16ull);
  Vector x[VECTORS];
  Vector residual[VECTORS];
  read_row<ELEMENT, ROW_ACCESS>(row_at(a.x, row, a.x_stride), place.thread, width, x);
  if constexpr (ADD_RESIDUAL) {
    read_row<ELEMENT, Access::Kept>(row_at(a.residual, row, a.residual_stride), place.thread, width, residual);
  }
  Vector w[VECTORS];
  if constexpr (GAINS_AHEAD) {
    read_row<ELEMENT, Access::Kept>(a.w, place.thread, WHOLE ? HELD : a.hidden, w);
  }
  issue_loads();
  while (true) {
    float sums[VECTORS];
#pragma unroll
    for (int k = 0; k < VECTORS; ++k) {
      if constexpr (ADD_RESIDUAL) {
        x[k] = add<ELEMENT>(x[k], residual[k]);
      }
      sums[k] = squares<ELEMENT>(x[k]);
    }
    if constexpr (ADD_RESIDUAL) {
      write_row<ELEMENT>(row_at(a.residual, row, a.residual_stride), place.thread, width, x);
    }
    const int next = row + step;
    Vector x_ahead[VECTORS];
    Vector residual_ahead[VECTORS];
    if constexpr (LOOPED) {
      const int width_ahead = width_of(next, a.rows, a.hidden);
      read_row<ELEMENT, ROW_ACCESS>(row_at(a.x, next, a.x_stride), place.thread, width_ahead, x_ahead);
      if constexpr (ADD_RESIDUAL) {
        read_row<ELEMENT, Access::Kept>(row_at(a.residual, next, a.residual_stride), place.thread, width_ahead,
                                             residual_ahead);
      }
    }
    const float inverse = inverse_root(row_sum(shared, place.thread, sums), a.inverse_hidden, a.eps);
    if constexpr (!GAINS_AHEAD) {
      read_row<ELEMENT, Access::Kept>(a.w, place.thread, WHOLE ? HELD : a.hidden, w);
    }
    float largest = 0.0f;
#pragma unroll
    for (int k = 0; k < VECTORS; ++k) {
      x[k] = normalize<ELEMENT>(x[k], inverse, w[k], largest);
    }
    // Magnitudes are in the order of their bits.
    largest = __uint_as_float(row_max(shared, place.thread, __float_as_uint(largest)));
    const float scale = scale_of(largest);
    const float reciprocal = __frcp_rn(scale);
#pragma unroll
    for (int k = 0; k < VECTORS; ++k) {
      unsigned int codes[ELEMENT::PER_WORD];
      quantize<ELEMENT>(x[k], scale, reciprocal, codes);
      write_codes<ELEMENT>(row_at(a.q, row, a.q_stride), place.thread + k * THREADS, width, codes);
    }
    if (place.thread == 0 && width > 0) {
      a.scale[row] = scale;
    }
    first += step;
    if (!LOOPED || first >= a.rows) {
      break;
    }
    row = next;
    width = width_of(row, a.rows, a.hidden);
    // No barrier: between two uses of either half of `shared` lies the barrier of the other half.
#pragma unroll
    for (int k = 0; k < VECTORS; ++k) {
      x[k] = x_ahead[k];
      if constexpr (ADD_RESIDUAL) {
        residual[k] = residual_ahead[k];
      }
    }
  }
}

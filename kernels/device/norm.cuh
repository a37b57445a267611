// What the normalizations have in common: rows held in registers, and sums whose order depends on the row alone.
//
// The host sets, per variant: ELEMENT; THREADS, the threads of a row (a multiple of 32, or a power of two below it);
// VECTORS, how many 16-byte vectors each of them holds; ROWS, the rows of a block (above 1 only up to 32 threads);
// LOOPED, whether a block goes on to further rows; GAINS_AHEAD, whether gains are read with the row, and else after the
// sum; ALIGNED; WHOLE, whether the threads' vectors are exactly the row's; STREAMING, 1 for stores that say that nobody
// reads the output soon, and 2 for loads that say so too.
//
// The order of a sum is a binary tree over the row's vectors: first the 32 vectors of a group, then the groups, next
// neighbors first. It is the same however many threads hold the row, so that the host may choose them by the number
// of rows and a row's bits do not depend on it.
#pragma once

#include "element.cuh"

constexpr int THREADS_IN_WARP = THREADS < 32 ? THREADS : 32;
constexpr int WARPS = THREADS < 32 ? 1 : THREADS / 32;
constexpr int GROUPS = WARPS * VECTORS;
constexpr Fit FIT = !ALIGNED ? Fit::Elements : WHOLE ? Fit::Whole : Fit::Vectors;
/// How a row that is read once is read.
constexpr Access ROW_ACCESS = STREAMING == 2 ? Access::Passing : Access::Once;
/// Elements that the threads of a row hold.
constexpr int HELD = THREADS * VECTORS * PER_VECTOR<ELEMENT>;

static_assert(THREADS >= 32 ? THREADS % 32 == 0 : (THREADS & (THREADS - 1)) == 0, "threads of a row");
static_assert(THREADS >= 32 || VECTORS == 1, "part of a warp holds a row of one group");
static_assert(THREADS <= 32 || ROWS == 1, "a row of several warps has its block alone");

__device__ constexpr int next_power_of_two(int number) {
  int power = 1;
  while (power < number) {
    power *= 2;
  }
  return power;
}

/// The tree over numbers in registers, next neighbors first.
template <int COUNT>
__device__ __forceinline__ float tree_sum(float (&numbers)[COUNT]) {
  static_assert((COUNT & (COUNT - 1)) == 0, "a whole tree");
#pragma unroll
  for (int step = 1; step < COUNT; step *= 2) {
#pragma unroll
    for (int at = 0; at + step < COUNT; at += 2 * step) {
      numbers[at] = __fadd_rn(numbers[at], numbers[at + step]);
    }
  }
  return numbers[0];
}

/// The sum of one number of each lane that holds the row.
__device__ __forceinline__ float group_sum(float number) {
#pragma unroll
  for (int mask = THREADS_IN_WARP / 2; mask > 0; mask /= 2) {
    number = __fadd_rn(number, exchange(number, mask));
  }
  return number;
}

/// Numbers of the warps of a row.
struct Exchange {
  alignas(16) float sums[next_power_of_two(GROUPS) < 4 ? 4 : next_power_of_two(GROUPS)];
  alignas(16) unsigned int largest[next_power_of_two(WARPS) < 4 ? 4 : next_power_of_two(WARPS)];
};

/// The sum over a row's vectors, of which thread `thread` holds numbers `thread + k * THREADS`.
__device__ __forceinline__ float row_sum(Exchange& shared, int thread, const float (&of_vector)[VECTORS]) {
  constexpr int LEAVES = next_power_of_two(GROUPS);
  float sums[VECTORS];
#pragma unroll
  for (int k = 0; k < VECTORS; ++k) {
    sums[k] = group_sum(of_vector[k]);
  }
  if constexpr (WARPS == 1) {
    float leaves[LEAVES];
#pragma unroll
    for (int k = 0; k < LEAVES; ++k) {
      leaves[k] = k < VECTORS ? sums[k] : 0.0f;
    }
    return tree_sum(leaves);
  } else {
    if (thread % 32 == 0) {
#pragma unroll
      for (int k = 0; k < VECTORS; ++k) {
        shared.sums[k * WARPS + thread / 32] = sums[k];
      }
    }
    __syncthreads();
    if constexpr (LEAVES <= 16) {
      float leaves[LEAVES];
#pragma unroll
      for (int group = 0; group < LEAVES; ++group) {
        leaves[group] = group < GROUPS ? shared.sums[group] : 0.0f;
      }
      return tree_sum(leaves);
    } else {
      // One group a lane; exchanging next neighbors first makes the same tree.
      constexpr int PER_LANE = LEAVES / 32 < 1 ? 1 : LEAVES / 32;
      float halves[PER_LANE];
#pragma unroll
      for (int half = 0; half < PER_LANE; ++half) {
        const int group = half * 32 + thread % 32;
        float sum = group < GROUPS ? shared.sums[group] : 0.0f;
#pragma unroll
        for (int mask = 1; mask < 32; mask *= 2) {
          sum = __fadd_rn(sum, exchange(sum, mask));
        }
        halves[half] = sum;
      }
      return tree_sum(halves);
    }
  }
}

/// The largest of one number of each thread of a row.
__device__ __forceinline__ unsigned int row_max(Exchange& shared, int thread, unsigned int number) {
  if constexpr (THREADS < 32) {
#pragma unroll
    for (int mask = THREADS_IN_WARP / 2; mask > 0; mask /= 2) {
      number = max(number, __shfl_xor_sync(0xffffffffu, number, mask));
    }
    return number;
  } else {
    number = warp_max(number);
    if constexpr (WARPS > 1) {
      if (thread % 32 == 0) {
        shared.largest[thread / 32] = number;
      }
      __syncthreads();
      if constexpr (WARPS <= 8) {
        number = shared.largest[0];
#pragma unroll
        for (int warp = 1; warp < WARPS; ++warp) {
          number = max(number, shared.largest[warp]);
        }
      } else {
        number = warp_max(thread % 32 < WARPS ? shared.largest[thread % 32] : 0u);
      }
    }
    return number;
  }
}

/// The sum of the squares of a vector's elements.
template <class E>
__device__ __forceinline__ float squares(const Vector& vector) {
  float elements[PER_VECTOR<E>];
  unpack_vector<E>(vector, elements);
  float even = 0.0f;
  float odd = 0.0f;
#pragma unroll
  for (int at = 0; at < PER_VECTOR<E>; at += 2) {
    even = __fmaf_rn(elements[at], elements[at], even);
    odd = __fmaf_rn(elements[at + 1], elements[at + 1], odd);
  }
  return __fadd_rn(even, odd);
}

/// The sums of two vectors' elements, rounded to the element type.
template <class E>
__device__ __forceinline__ Vector add(const Vector& left, const Vector& right) {
  float sums[PER_VECTOR<E>];
  float addends[PER_VECTOR<E>];
  unpack_vector<E>(left, sums);
  unpack_vector<E>(right, addends);
#pragma unroll
  for (int at = 0; at < PER_VECTOR<E>; ++at) {
    sums[at] = __fadd_rn(sums[at], addends[at]);
  }
  return pack_vector<E>(sums);
}

/// `value * inverse * gain`, rounded once.
template <class E>
__device__ __forceinline__ Vector scale(const Vector& values, float inverse, const Vector& gains) {
  float elements[PER_VECTOR<E>];
  float factors[PER_VECTOR<E>];
  unpack_vector<E>(values, elements);
  unpack_vector<E>(gains, factors);
#pragma unroll
  for (int at = 0; at < PER_VECTOR<E>; ++at) {
    elements[at] = __fmul_rn(__fmul_rn(elements[at], inverse), factors[at]);
  }
  return pack_vector<E>(elements);
}

/// `1 / sqrt(mean + eps)`.
__device__ __forceinline__ float inverse_root(float sum_of_squares, float inverse_hidden, float eps) {
  return reciprocal_root_approximate(__fmaf_rn(sum_of_squares, inverse_hidden, eps));
}

/// Where a thread stands: which of its row's threads it is, and which of its block's rows it works on.
struct Place {
  unsigned int thread;
  int row_in_block;

  __device__ __forceinline__ Place()
      : thread(ROWS == 1 ? threadIdx.x : threadIdx.x % THREADS), row_in_block(ROWS == 1 ? 0 : threadIdx.x / THREADS) {}
};

/// How many elements of a row there are; none of a row behind the last one, which is neither read nor written.
__device__ __forceinline__ int width_of(int row, int rows, int hidden) {
  return (ROWS == 1 && !LOOPED) || row < rows ? (WHOLE ? HELD : hidden) : 0;
}

/// Where a row begins, `stride` bytes from the one before.
template <class Byte>
__device__ __forceinline__ Byte* row_at(Byte* first, int row, unsigned long long stride) {
  return first + static_cast<unsigned int>(row) * stride;
}

/// Reads a thread's vectors of a row.
template <class E, Access ACCESS>
__device__ __forceinline__ void read_row(const char* row, int thread, int width, Vector (&into)[VECTORS]) {
#pragma unroll
  for (int k = 0; k < VECTORS; ++k) {
    into[k] = read_vector<E, FIT, ACCESS>(row, thread, k * THREADS, width);
  }
}

/// Writes a thread's vectors of a row.
template <class E>
__device__ __forceinline__ void write_row(char* row, int thread, int width, const Vector (&from)[VECTORS]) {
#pragma unroll
  for (int k = 0; k < VECTORS; ++k) {
    write_vector<E, FIT, STREAMING != 0>(row, thread, k * THREADS, width, from[k]);
  }
}

// What the operators over a vocabulary have in common: rows of logits in chunks, one a warp, merged by the last block.
//
// The host sets: ELEMENT; VALUES, the logits of a lane and so a 32nd of a chunk; WARPS, the chunks of a block; ALIGNED.
//
// Chunks are cut by the vocabulary alone and merged in the order of their numbers, so that a row's bits depend neither on
// the rows beside it nor on how many chunks a block takes.
#pragma once

#include "element.cuh"

constexpr int CHUNK = 32 * VALUES;
constexpr int CHUNK_VECTORS = VALUES / PER_VECTOR<ELEMENT>;
constexpr float LOG2_E = 1.44269502f;
/// No place in a row.
constexpr unsigned int NOWHERE = 0x7fffffffu;
/// Most chunks that a lane of the merging warp holds at once.
constexpr int HELD = 8;

/// What is known of a part of a row. NaN takes no part in any of it.
struct Partial {
  /// The largest logit.
  float max;
  /// The sum of `exp(logit - max)`.
  float sum;
  /// Logits that count for the rank.
  unsigned int count;
  /// The first place of the largest logit.
  unsigned int place;
};

/// The first bad value of a launch: row, then argument, then column, so that the smallest is the first.
struct Status {
  unsigned long long* word;

  __device__ __forceinline__ void report(unsigned int row, unsigned int argument, unsigned int column) const {
    if (word != nullptr) {
      atomicMin(word, static_cast<unsigned long long>(row) << 32 | argument << 31 | column);
    }
  }
};

constexpr unsigned int SELECTED_IS_BAD = 0;
constexpr unsigned int LOGIT_IS_NAN = 1;

/// Where a lane's value number `at` of a chunk lies in its row.
__device__ __forceinline__ unsigned int place_of(int chunk, int lane, int at) {
  constexpr int ELEMENTS = PER_VECTOR<ELEMENT>;
  return chunk * CHUNK + (at / ELEMENTS * 32 + lane) * ELEMENTS + at % ELEMENTS;
}

/// Reads a lane's values of a chunk; what lies behind the row is minus infinity.
__device__ __forceinline__ void read_chunk(const char* row, int chunk, int lane, int vocab, float (&values)[VALUES]) {
  constexpr int ELEMENTS = PER_VECTOR<ELEMENT>;
  Vector vectors[CHUNK_VECTORS];
#pragma unroll
  for (int k = 0; k < CHUNK_VECTORS; ++k) {
    vectors[k] = read_vector<ELEMENT, ALIGNED ? Fit::Vectors : Fit::Elements, Access::Once>(row, chunk * (CHUNK / ELEMENTS) + lane, k * 32, vocab, ELEMENT::MINUS_INFINITY);
  }
  issue_loads();
#pragma unroll
  for (int k = 0; k < CHUNK_VECTORS; ++k) {
    float elements[ELEMENTS];
    unpack_vector<ELEMENT>(vectors[k], elements);
#pragma unroll
    for (int at = 0; at < ELEMENTS; ++at) {
      values[k * ELEMENTS + at] = elements[at];
    }
  }
}

/// How many values of a chunk lie behind the row.
__device__ __forceinline__ unsigned int surplus(int chunk, int vocab) {
  return max(0, (chunk + 1) * CHUNK - vocab);
}

/// The largest of a warp's numbers, none of which is NaN.
__device__ __forceinline__ float warp_max_float(float number) {
  const unsigned int bits = __float_as_uint(number);
  const unsigned int ordered = bits ^ (static_cast<unsigned int>(static_cast<int>(bits) >> 31) | 0x80000000u);
  const unsigned int largest = warp_max(ordered);
  return __uint_as_float(largest ^ (static_cast<unsigned int>(~static_cast<int>(largest) >> 31) | 0x80000000u));
}

__device__ __forceinline__ float warp_sum_float(float number) {
#pragma unroll
  for (int mask = 16; mask > 0; mask /= 2) {
    number = __fadd_rn(number, exchange(number, mask));
  }
  return number;
}

/// The largest of a lane's values; minus infinity when all are NaN.
__device__ __forceinline__ float largest_of(const float (&values)[VALUES]) {
  float four[4] = {values[0], values[1], values[2], values[3]};
#pragma unroll
  for (int at = 4; at < VALUES; ++at) {
    four[at % 4] = fmaxf(four[at % 4], values[at]);
  }
  return fmaxf(fmaxf(fmaxf(four[0], four[1]), fmaxf(four[2], four[3])), -infinity());
}

/// What is taken off before the exponential: the maximum, or 0 when no value is above minus infinity.
__device__ __forceinline__ float reference(float max) { return max == -infinity() ? 0.0f : max; }

__device__ __forceinline__ float exponential_below(float value, float reference) {
  return exp2_approximate(__fmul_rn(__fsub_rn(value, reference), LOG2_E));
}

/// The sum of a lane's exponentials. It is NaN when a value is, and then the slow way leaves those out.
__device__ __forceinline__ float sum_of(const float (&values)[VALUES], float reference, bool& slow) {
  float four[4] = {0.0f, 0.0f, 0.0f, 0.0f};
#pragma unroll
  for (int at = 0; at < VALUES; ++at) {
    four[at % 4] = __fadd_rn(four[at % 4], exponential_below(values[at], reference));
  }
  const float sum = __fadd_rn(__fadd_rn(four[0], four[1]), __fadd_rn(four[2], four[3]));
  slow = sum != sum;
  return sum;
}

/// The same without NaN, which it reports. A maximum of plus infinity comes here too.
__device__ __forceinline__ float sum_without_nan(const float (&values)[VALUES], float reference, int chunk, int lane,
                                                 unsigned int row, const Status& status) {
  float sum = 0.0f;
#pragma unroll
  for (int at = 0; at < VALUES; ++at) {
    if (values[at] != values[at]) {
      status.report(row, LOGIT_IS_NAN, place_of(chunk, lane, at));
    } else if (values[at] < reference || reference < infinity()) {
      sum = __fadd_rn(sum, exponential_below(values[at], reference));
    }
  }
  return sum;
}

/// Joins the chunks of a row, by one warp; the order is that of their numbers whatever blocks wrote them.
///
/// `BEST` says that counts and places belong to the maximum, and that smaller ones are dropped.
template <bool BEST>
__device__ __forceinline__ Partial merge(const Partial* partials, int chunks, int lane) {
  Partial joined = {-infinity(), 0.0f, 0, NOWHERE};
  const auto take = [&](float max, unsigned int count, unsigned int place) {
    if constexpr (BEST) {
      if (max > joined.max) {
        joined.max = max;
        joined.count = count;
        joined.place = place;
      } else if (max == joined.max) {
        joined.count += count;
        joined.place = min(joined.place, place);
      }
    } else {
      joined.max = fmaxf(joined.max, max);
      joined.count += count;
    }
  };
  for (int base = 0; base < chunks; base += 32 * HELD) {
    Partial held[HELD];
#pragma unroll
    for (int k = 0; k < HELD; ++k) {
      const int chunk = base + k * 32 + lane;
      Vector words = {{F32::MINUS_INFINITY, 0, 0, NOWHERE}};
      if (chunk < chunks) {
        words = load_vector_of_others(partials + chunk);
      }
      held[k] = {__uint_as_float(words.word[0]), __uint_as_float(words.word[1]), words.word[2], words.word[3]};
    }
    const float before = joined.max;
#pragma unroll
    for (int k = 0; k < HELD; ++k) {
      take(held[k].max, held[k].count, held[k].place);
    }
    const float above = reference(joined.max);
    joined.sum = __fmul_rn(joined.sum, exponential_below(before, above));
#pragma unroll
    for (int k = 0; k < HELD; ++k) {
      joined.sum = __fmaf_rn(held[k].sum, exponential_below(held[k].max, above), joined.sum);
    }
  }
  const float max = warp_max_float(joined.max);
  joined.sum = warp_sum_float(__fmul_rn(joined.sum, exponential_below(joined.max, reference(max))));
  const bool counts = !BEST || joined.max == max;
  joined.count = warp_sum(counts ? joined.count : 0);
  joined.place = warp_min(counts ? joined.place : NOWHERE);
  joined.max = max;
  return joined;
}

/// `logit - max - ln(sum)`; NaN when the maximum is infinite, because there is then no distribution.
__device__ __forceinline__ float log_probability(float logit, const Partial& row) {
  const bool finite = fabsf(row.max) < infinity();
  return finite ? __fsub_rn(__fsub_rn(logit, row.max), logf(row.sum)) : not_a_number();
}

/// Writes the chunk of a warp and says whether its block was the last of the row; only warp 0 learns it.
__device__ __forceinline__ bool hand_in(const Partial& of_chunk, Partial* partials, unsigned int* ticket, int chunk,
                                        int chunks, int lane) {
  if (lane == 0 && chunk < chunks) {
    const Vector words = {{__float_as_uint(of_chunk.max), __float_as_uint(of_chunk.sum), of_chunk.count, of_chunk.place}};
    store_vector<false>(partials + chunk, words);
  }
  if constexpr (WARPS > 1) {
    __syncthreads();
  } else {
    __syncwarp();
  }
  if (threadIdx.x >= 32) {
    return false;
  }
  unsigned int taken = 0;
  if (lane == 0) {
    taken = take_ticket(ticket, gridDim.x - 1);
  }
  taken = __shfl_sync(0xffffffffu, taken, 0);
  // What lane 0 may see after its ticket, the other lanes may see after this.
  __syncwarp();
  return taken == gridDim.x - 1;
}

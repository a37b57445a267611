// token = first place of the row's maximum, logprob = -ln(sum exp(logits - max)), rank = logits not below the maximum.
#include "vocabulary.cuh"

struct Arguments {
  const char* logits;
  long long* token;
  float* logprob;
  long long* rank;
  /// Chunks of every row, then tickets of every row.
  Partial* partials;
  unsigned int* tickets;
  unsigned long long* status;
  /// Bytes from row to row.
  unsigned long long stride;
  int rows;
  int vocab;
  int chunks;
};
static_assert(sizeof(Arguments) == ARGUMENT_BYTES, "the host passes the same structure");

__device__ __forceinline__ Partial examine(const Arguments& a, int row, int chunk, int lane) {
  float values[VALUES];
  read_chunk(a.logits + static_cast<unsigned int>(row) * a.stride, chunk, lane, a.vocab, values);
  const float of_lane = largest_of(values);
  const float max = warp_max_float(of_lane);
  bool slow;
  float sum = sum_of(values, reference(max), slow);
  if (slow) {
    sum = sum_without_nan(values, reference(max), chunk, lane, row, Status{a.status});
  }
  unsigned int count = 0;
  unsigned int place = NOWHERE;
  if (of_lane == max) {
#pragma unroll
    for (int at = VALUES - 1; at >= 0; --at) {
      if (values[at] == max) {
        ++count;
        place = place_of(chunk, lane, at);
      }
    }
  }
  count = warp_sum(count);
  place = warp_min(place);
  if (max == -infinity()) {
    count -= surplus(chunk, a.vocab);
    place = count == 0 ? NOWHERE : place;
  }
  return {max, warp_sum_float(sum), count, place};
}

extern "C" __global__ void __launch_bounds__(32 * WARPS) greedy_logprob(const __grid_constant__ Arguments a) {
  const int lane = threadIdx.x % 32;
  const int chunk = blockIdx.x * WARPS + threadIdx.x / 32;
  take_turn(a.logits + blockIdx.y * a.stride + chunk * (CHUNK / PER_VECTOR<ELEMENT>) * 16ull, a.partials);
  for (int row = blockIdx.y; row < a.rows; row += gridDim.y) {
    Partial* partials = a.partials + static_cast<long long>(row) * a.chunks;
    Partial of_chunk = {};
    if (chunk < a.chunks) {
      of_chunk = examine(a, row, chunk, lane);
    }
    if (hand_in(of_chunk, partials, a.tickets + row, chunk, a.chunks, lane)) {
      const Partial whole = merge<true>(partials, a.chunks, lane);
      if (lane == 0) {
        // A row of NaN has no maximum: its token is the first, and nothing is as good as that.
        a.token[row] = whole.place == NOWHERE ? 0 : whole.place;
        a.logprob[row] = log_probability(whole.max, whole);
        a.rank[row] = whole.count;
      }
    }
  }
}

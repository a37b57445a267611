// logprob = logits[selected] - max - ln(sum exp(logits - max)), rank = logits not below logits[selected].
#include "vocabulary.cuh"

struct Arguments {
  const char* logits;
  const long long* selected;
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

/// A row's token, and its logit: NaN for a token out of range, which is as good as nothing.
struct Selected {
  bool bad;
  float logit;

  __device__ __forceinline__ Selected(const Arguments& a, int row, long long token)
      : bad(static_cast<unsigned long long>(token) >= a.vocab) {
    const auto* logits = reinterpret_cast<const ELEMENT::Storage*>(a.logits + static_cast<unsigned int>(row) * a.stride);
    float elements[2];
    ELEMENT::unpack(load_element(logits + (bad ? 0 : token)), elements);
    logit = bad ? not_a_number() : elements[0];
  }
};

__device__ __forceinline__ Partial examine(const Arguments& a, int row, int chunk, int lane, const float (&values)[VALUES],
                                           float logit) {
  const float max = warp_max_float(largest_of(values));
  bool slow;
  float sum = sum_of(values, reference(max), slow);
  if (slow) {
    sum = sum_without_nan(values, reference(max), chunk, lane, row, Status{a.status});
  }
  unsigned int count = 0;
#pragma unroll
  for (int at = 0; at < VALUES; ++at) {
    count += values[at] >= logit ? 1 : 0;
  }
  count = warp_sum(count);
  if (logit == -infinity()) {
    count -= surplus(chunk, a.vocab);
  }
  return {max, warp_sum_float(sum), count, NOWHERE};
}

extern "C" __global__ void __launch_bounds__(32 * WARPS) selected_logprob_rank(const __grid_constant__ Arguments a) {
  const int lane = threadIdx.x % 32;
  const int chunk = blockIdx.x * WARPS + threadIdx.x / 32;
  take_turn(a.logits + blockIdx.y * a.stride + chunk * (CHUNK / PER_VECTOR<ELEMENT>) * 16ull, a.partials);
  for (int row = blockIdx.y; row < a.rows; row += gridDim.y) {
    Partial* partials = a.partials + static_cast<long long>(row) * a.chunks;
    const long long token = load_element(a.selected + row);
    // The chunk is under way before the token is known. A warp behind the last chunk reads nothing.
    float values[VALUES];
    read_chunk(a.logits + static_cast<unsigned int>(row) * a.stride, chunk, lane, chunk < a.chunks ? a.vocab : 0, values);
    const Selected selected(a, row, token);
    const Partial of_chunk = examine(a, row, chunk, lane, values, selected.logit);
    if (hand_in(of_chunk, partials, a.tickets + row, chunk, a.chunks, lane)) {
      const Partial whole = merge<false>(partials, a.chunks, lane);
      if (lane == 0) {
        if (selected.bad) {
          Status{a.status}.report(row, SELECTED_IS_BAD, 0);
        }
        a.logprob[row] = selected.bad ? selected.logit : log_probability(selected.logit, whole);
        a.rank[row] = selected.bad ? -1ll : static_cast<long long>(whole.count);
      }
    }
  }
}

// Instructions of the target behind names: the only file that a port to another target rewrites.
//
// The host sets OVERLAP: 0 for a launch in stream order, 1 for one that begins while the launch in front of it ends, and
// 2 for one that also lets the launch behind it begin before its own waiting is over.
#pragma once

/// Waits for everything in front of this launch in its stream, and lets the launch behind it begin once all blocks have
/// come here. Before it, global memory is neither read nor written.
///
/// The wait depends on two addresses, neither of them null, so that what comes before them is not moved behind it.
__device__ __forceinline__ void take_turn(const void* first, const void* second) {
#if OVERLAP == 2
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
#if OVERLAP
  asm volatile("{\n\t.reg .pred p;\n\t.reg .b64 both;\n\tor.b64 both, %0, %1;\n\tsetp.ne.u64 p, both, 0;\n\t"
               "@p griddepcontrol.wait;\n\t}" ::"l"(first), "l"(second)
               : "memory");
#endif
#if OVERLAP == 1
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

/// Keeps loads in front of it there: the assembler would move those that are needed late behind the first wait for
/// another one, and add their time to it. It takes no load for one that may pass the release of dependents.
__device__ __forceinline__ void issue_loads() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

/// 16 bytes: the widest access of one thread.
struct alignas(16) Vector {
  unsigned int word[4];
};

__device__ __forceinline__ float infinity() { return __uint_as_float(0x7f800000u); }
__device__ __forceinline__ float not_a_number() { return __uint_as_float(0x7fc00000u); }

/// How often the bytes of a load are needed.
enum class Access {
  /// Read once by one thread and by nobody else in this launch, and not written in it.
  Once,
  /// The same, and nobody reads it soon after this launch.
  Passing,
  /// Read by many blocks, or written in this launch by the thread that reads it.
  Kept,
};

// All loads are coherent ones: the others are for memory that nobody writes while the launch runs, and a launch that
// begins early runs while its inputs are written.
#define LOAD_VECTOR(instruction)                                                                                \
  asm volatile(instruction ".v4.u32 {%0, %1, %2, %3}, [%4];"                                                    \
               : "=r"(loaded.word[0]), "=r"(loaded.word[1]), "=r"(loaded.word[2]), "=r"(loaded.word[3])         \
               : "l"(address)                                                                                   \
               : "memory")

template <Access ACCESS>
__device__ __forceinline__ Vector load_vector(const void* address) {
  Vector loaded;
  if constexpr (ACCESS == Access::Passing) {
    LOAD_VECTOR("ld.global.cs");
  } else if constexpr (ACCESS == Access::Once) {
    LOAD_VECTOR("ld.global.L1::no_allocate");
  } else {
    LOAD_VECTOR("ld.global");
  }
  return loaded;
}

/// One element, loaded where the source says so and not moved to where it is used.
template <class Storage>
__device__ __forceinline__ Storage load_element(const Storage* address) {
  return *static_cast<const volatile Storage*>(address);
}

/// Loads 16 bytes that other blocks wrote, past the cache of this multiprocessor.
__device__ __forceinline__ Vector load_vector_of_others(const void* address) {
  Vector loaded;
  asm volatile("ld.global.cg.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(loaded.word[0]), "=r"(loaded.word[1]), "=r"(loaded.word[2]), "=r"(loaded.word[3])
               : "l"(address)
               : "memory");
  return loaded;
}

/// Stores 16 bytes; `IS_STREAMING` says that nobody reads them soon.
template <bool IS_STREAMING>
__device__ __forceinline__ void store_vector(void* address, const Vector& vector) {
  if constexpr (IS_STREAMING) {
    asm volatile("st.global.cs.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(address), "r"(vector.word[0]),
                 "r"(vector.word[1]), "r"(vector.word[2]), "r"(vector.word[3])
                 : "memory");
  } else {
    asm volatile("st.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(address), "r"(vector.word[0]), "r"(vector.word[1]),
                 "r"(vector.word[2]), "r"(vector.word[3])
                 : "memory");
  }
}

/// 2 to the power of `x` with a relative error of 2^-22.5; 0 for minus infinity, NaN for NaN.
__device__ __forceinline__ float exp2_approximate(float x) {
  float power;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(power) : "f"(x));
  return power;
}

/// The reciprocal with an error of one step; zero for subnormal results.
__device__ __forceinline__ float reciprocal_approximate(float x) {
  float reciprocal;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(reciprocal) : "f"(x));
  return reciprocal;
}

/// The reciprocal square root with a relative error of 2^-22.9; subnormal numbers count.
__device__ __forceinline__ float reciprocal_root_approximate(float x) {
  float root;
  asm("rsqrt.approx.f32 %0, %1;" : "=f"(root) : "f"(x));
  return root;
}

/// Two halves of a word, as F32.
__device__ __forceinline__ void f16_pair_to_f32(unsigned int pair, float& low, float& high) {
  asm("{\n\t.reg .b16 l, h;\n\tmov.b32 {l, h}, %2;\n\tcvt.f32.f16 %0, l;\n\tcvt.f32.f16 %1, h;\n\t}"
      : "=f"(low), "=f"(high)
      : "r"(pair));
}

/// Two F32 rounded to F16, ties to even.
__device__ __forceinline__ unsigned int f32_to_f16_pair(float low, float high) {
  unsigned int pair;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  return pair;
}

/// Two F32 rounded to BF16, ties to even.
__device__ __forceinline__ unsigned int f32_to_bf16_pair(float low, float high) {
  unsigned int pair;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  return pair;
}

/// Two products of F16, each rounded once.
__device__ __forceinline__ unsigned int multiply_f16_pair(unsigned int left, unsigned int right) {
  unsigned int product;
  asm("mul.rn.f16x2 %0, %1, %2;" : "=r"(product) : "r"(left), "r"(right));
  return product;
}

/// Two products of BF16, each rounded once: adding minus zero changes no product, its sign included.
__device__ __forceinline__ unsigned int multiply_bf16_pair(unsigned int left, unsigned int right) {
  unsigned int product;
  asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(product) : "r"(left), "r"(right), "r"(0x80008000u));
  return product;
}

#if __CUDA_ARCH__ >= 890
/// Two F32 as E4M3, ties to even, saturating; `low` in the low byte.
__device__ __forceinline__ unsigned int f32_to_e4m3_pair(float low, float high) {
  unsigned short pair;
  asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(pair) : "f"(high), "f"(low));
  return pair;
}
#else
__device__ __forceinline__ unsigned int f32_to_e4m3(float value) {
  const unsigned int bits = __float_as_uint(value);
  const unsigned int sign = bits >> 24 & 0x80u;
  const unsigned int magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) {
    return sign | 0x7fu;
  }
  // 448 and all above it.
  if (magnitude >= 0x43e00000u) {
    return sign | 0x7eu;
  }
  // Below 2^-6 the steps are 2^-9: those of an F32 of 2^14, which does the rounding.
  if (magnitude < 0x3c800000u) {
    return sign | (__float_as_uint(__fadd_rn(__uint_as_float(magnitude), 16384.0f)) - 0x46800000u);
  }
  const unsigned int rounded = magnitude + 0x7ffffu + (magnitude >> 20 & 1u);
  return sign | ((rounded >> 20) - (120u << 3));
}

/// Two F32 as E4M3, ties to even, saturating; `low` in the low byte.
__device__ __forceinline__ unsigned int f32_to_e4m3_pair(float low, float high) {
  return f32_to_e4m3(low) | f32_to_e4m3(high) << 8;
}
#endif

/// The value of the lane whose number differs in the bits of `mask`.
__device__ __forceinline__ float exchange(float value, int mask) { return __shfl_xor_sync(0xffffffffu, value, mask); }

__device__ __forceinline__ unsigned int warp_max(unsigned int value) { return __reduce_max_sync(0xffffffffu, value); }
__device__ __forceinline__ unsigned int warp_min(unsigned int value) { return __reduce_min_sync(0xffffffffu, value); }
__device__ __forceinline__ unsigned int warp_sum(unsigned int value) { return __reduce_add_sync(0xffffffffu, value); }

/// Takes a ticket, after everything that this thread's block wrote and before everything that it reads afterwards.
///
/// Tickets count from 0 to `last` and then from 0 again, so that a launch leaves the counter as it found it.
__device__ __forceinline__ unsigned int take_ticket(unsigned int* counter, unsigned int last) {
  unsigned int ticket;
  asm volatile("atom.acq_rel.gpu.global.inc.u32 %0, [%1], %2;" : "=r"(ticket) : "l"(counter), "r"(last) : "memory");
  return ticket;
}

// Element types, each with a word of minus infinities: words of 32 bits to F32 and back, and rows of elements at any address.
#pragma once

#include "instructions.cuh"

struct F32 {
  using Storage = unsigned int;
  static constexpr int PER_WORD = 1;
  static constexpr unsigned int MINUS_INFINITY = 0xff800000u;

  static __device__ __forceinline__ void unpack(unsigned int word, float* into) { into[0] = __uint_as_float(word); }
  static __device__ __forceinline__ unsigned int pack(const float* from) { return __float_as_uint(from[0]); }
  /// The product of the elements of two words, rounded once.
  static __device__ __forceinline__ unsigned int multiply(unsigned int left, unsigned int right) {
    return __float_as_uint(__fmul_rn(__uint_as_float(left), __uint_as_float(right)));
  }
};

struct F16 {
  using Storage = unsigned short;
  static constexpr int PER_WORD = 2;
  static constexpr unsigned int MINUS_INFINITY = 0xfc00fc00u;

  static __device__ __forceinline__ void unpack(unsigned int word, float* into) {
    f16_pair_to_f32(word, into[0], into[1]);
  }
  static __device__ __forceinline__ unsigned int pack(const float* from) { return f32_to_f16_pair(from[0], from[1]); }
  static __device__ __forceinline__ unsigned int multiply(unsigned int left, unsigned int right) {
    return multiply_f16_pair(left, right);
  }
};

struct BF16 {
  using Storage = unsigned short;
  static constexpr int PER_WORD = 2;
  static constexpr unsigned int MINUS_INFINITY = 0xff80ff80u;

  static __device__ __forceinline__ void unpack(unsigned int word, float* into) {
    into[0] = __uint_as_float(word << 16);
    into[1] = __uint_as_float(word & 0xffff0000u);
  }
  static __device__ __forceinline__ unsigned int pack(const float* from) { return f32_to_bf16_pair(from[0], from[1]); }
  static __device__ __forceinline__ unsigned int multiply(unsigned int left, unsigned int right) {
    return multiply_bf16_pair(left, right);
  }
};

/// Elements in 16 bytes.
template <class E>
constexpr int PER_VECTOR = 4 * E::PER_WORD;

template <class E>
__device__ __forceinline__ void unpack_vector(const Vector& vector, float (&into)[PER_VECTOR<E>]) {
#pragma unroll
  for (int word = 0; word < 4; ++word) {
    E::unpack(vector.word[word], into + word * E::PER_WORD);
  }
}

template <class E>
__device__ __forceinline__ Vector pack_vector(const float (&from)[PER_VECTOR<E>]) {
  Vector packed;
#pragma unroll
  for (int word = 0; word < 4; ++word) {
    packed.word[word] = E::pack(from + word * E::PER_WORD);
  }
  return packed;
}

/// How a row's elements fit the vectors of its threads.
enum class Fit {
  /// The row starts anywhere and ends within a vector.
  Elements,
  /// The row starts at a multiple of 16 bytes and is made of whole vectors.
  Vectors,
  /// The same, and it has as many vectors as its threads hold. A row without width has none.
  Whole,
};

/// Whether a row of `width` elements has vector number `vector`.
template <class E, Fit FIT>
__device__ __forceinline__ bool has_vector(int vector, int width) {
  return FIT == Fit::Whole ? width > 0 : vector * PER_VECTOR<E> < width;
}

/// Vector number `first + further` of a row of `width` elements; what lies behind the row is `fill`.
///
/// The two numbers are apart so that the constant one becomes part of the instruction.
template <class E, Fit FIT, Access ACCESS>
__device__ __forceinline__ Vector read_vector(const char* row, unsigned int first, unsigned int further, int width,
                                              unsigned int fill = 0) {
  constexpr int ELEMENTS = PER_VECTOR<E>;
  const int vector = first + further;
  Vector read;
  if constexpr (FIT != Fit::Elements) {
    if (has_vector<E, FIT>(vector, width)) {
      return load_vector<ACCESS>(row + first * 16ull + further * 16);
    }
#pragma unroll
    for (int word = 0; word < 4; ++word) {
      read.word[word] = fill;
    }
  } else {
    const auto* elements = reinterpret_cast<const typename E::Storage*>(row);
#pragma unroll
    for (int word = 0; word < 4; ++word) {
      const int at = vector * ELEMENTS + word * E::PER_WORD;
      if constexpr (E::PER_WORD == 1) {
        read.word[word] = at < width ? load_element(elements + at) : fill;
      } else {
        const unsigned int low = at < width ? load_element(elements + at) : fill & 0xffffu;
        const unsigned int high = at + 1 < width ? load_element(elements + at + 1) : fill >> 16;
        read.word[word] = low | high << 16;
      }
    }
  }
  return read;
}

/// Stores vector number `first + further` of a row, except what would lie behind the row.
template <class E, Fit FIT, bool IS_STREAMING>
__device__ __forceinline__ void write_vector(char* row, unsigned int first, unsigned int further, int width,
                                             const Vector& value) {
  constexpr int ELEMENTS = PER_VECTOR<E>;
  const int vector = first + further;
  if constexpr (FIT != Fit::Elements) {
    if (has_vector<E, FIT>(vector, width)) {
      store_vector<IS_STREAMING>(row + first * 16ull + further * 16, value);
    }
  } else {
    auto* elements = reinterpret_cast<typename E::Storage*>(row);
#pragma unroll
    for (int word = 0; word < 4; ++word) {
      const int at = vector * ELEMENTS + word * E::PER_WORD;
      if (at < width) {
        elements[at] = static_cast<typename E::Storage>(value.word[word]);
      }
      if constexpr (E::PER_WORD == 2) {
        if (at + 1 < width) {
          elements[at + 1] = static_cast<typename E::Storage>(value.word[word] >> 16);
        }
      }
    }
  }
}

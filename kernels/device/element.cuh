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

template <Access ACCESS, class Storage>
__device__ __forceinline__ unsigned int load_element(const Storage* address) {
  if constexpr (ACCESS == Access::Rewritten) {
    return *address;
  } else {
    return __ldg(address);
  }
}

/// Vector number `vector` of a row of `width` elements; what lies behind the row is `fill`.
///
/// `IS_ALIGNED` says that the row starts at a multiple of 16 bytes and has whole vectors only.
template <class E, bool IS_ALIGNED, Access ACCESS>
__device__ __forceinline__ Vector read_vector(const char* row, int vector, int width, unsigned int fill = 0) {
  constexpr int ELEMENTS = PER_VECTOR<E>;
  Vector read;
  if constexpr (IS_ALIGNED) {
    if (vector * ELEMENTS < width) {
      return load_vector<ACCESS>(row + static_cast<long long>(vector) * 16);
    }
#pragma unroll
    for (int word = 0; word < 4; ++word) {
      read.word[word] = fill;
    }
  } else {
    const auto* elements = reinterpret_cast<const typename E::Storage*>(row);
#pragma unroll
    for (int word = 0; word < 4; ++word) {
      const int first = vector * ELEMENTS + word * E::PER_WORD;
      if constexpr (E::PER_WORD == 1) {
        read.word[word] = first < width ? load_element<ACCESS>(elements + first) : fill;
      } else {
        const unsigned int low = first < width ? load_element<ACCESS>(elements + first) : fill & 0xffffu;
        const unsigned int high = first + 1 < width ? load_element<ACCESS>(elements + first + 1) : fill >> 16;
        read.word[word] = low | high << 16;
      }
    }
  }
  return read;
}

/// Stores vector number `vector` of a row, except what would lie behind the row.
template <class E, bool IS_ALIGNED, bool IS_STREAMING>
__device__ __forceinline__ void write_vector(char* row, int vector, int width, const Vector& value) {
  constexpr int ELEMENTS = PER_VECTOR<E>;
  if constexpr (IS_ALIGNED) {
    if (vector * ELEMENTS < width) {
      store_vector<IS_STREAMING>(row + static_cast<long long>(vector) * 16, value);
    }
  } else {
    auto* elements = reinterpret_cast<typename E::Storage*>(row);
#pragma unroll
    for (int word = 0; word < 4; ++word) {
      const int first = vector * ELEMENTS + word * E::PER_WORD;
      if (first < width) {
        elements[first] = static_cast<typename E::Storage>(value.word[word]);
      }
      if constexpr (E::PER_WORD == 2) {
        if (first + 1 < width) {
          elements[first + 1] = static_cast<typename E::Storage>(value.word[word] >> 16);
        }
      }
    }
  }
}

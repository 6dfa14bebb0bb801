#pragma once

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include <cstdint>

/// Vectors of `Bytes` bytes, and how elements in memory become the lanes that kernels compute with. Included once per
/// instruction set, with internal linkage, so that no function compiled for one CPU can stand in for that of another.
///
/// Written once on GCC's vector types; only fp16's conversions use instructions where there are any. The including
/// source says by RETINUE_KERNEL_BYTES which set it compiles for: the compiler's own macros don't follow `#pragma GCC
/// target` where preprocessing is a step of its own, as with ccache.
#pragma GCC diagnostic ignored "-Wpsabi"  // No vector crosses a call that isn't inlined.

namespace retinue {
namespace {

#define RETINUE_INLINE inline __attribute__((always_inline))

template <typename T, int Bytes>
struct VectorOf {
  typedef T Type __attribute__((vector_size(Bytes)));
};
template <typename T, int Bytes>
using Vector = typename VectorOf<T, Bytes>::Type;

template <typename V>
RETINUE_INLINE V load_vector(const void* from) {
  V v;
  __builtin_memcpy(&v, from, sizeof v);
  return v;
}

template <typename To, typename From>
RETINUE_INLINE To bits_as(From from) {
  To to;
  static_assert(sizeof to == sizeof from);
  __builtin_memcpy(&to, &from, sizeof to);
  return to;
}

RETINUE_INLINE void stream_vector(char* to, const char* from) {
#if RETINUE_KERNEL_BYTES == 64
  _mm512_stream_si512(reinterpret_cast<__m512i*>(to), load_vector<__m512i>(from));
#elif RETINUE_KERNEL_BYTES == 32
  _mm256_stream_si256(reinterpret_cast<__m256i*>(to), load_vector<__m256i>(from));
#elif defined(__x86_64__)
  _mm_stream_si128(reinterpret_cast<__m128i*>(to), load_vector<__m128i>(from));
#else
  __builtin_memcpy(to, from, RETINUE_KERNEL_BYTES);
#endif
}

/// Orders what was streamed before what is stored afterwards: a release alone doesn't, where stores go past the cache.
RETINUE_INLINE void finish_streaming() {
#if defined(__x86_64__)
  _mm_sfence();
#else
  __atomic_thread_fence(__ATOMIC_RELEASE);
#endif
}

/// A format says how elements in memory become the lanes that are computed with, and back.
template <typename T, int Bytes>
struct PlainFormat {
  using Lane = T;
  using Lanes = Vector<T, Bytes>;
  using Stored = Lanes;
  static RETINUE_INLINE Lanes widen(Stored v) { return v; }
  static RETINUE_INLINE Stored narrow(Lanes v) { return v; }
};

/// Complex elements as two lanes each, of which those with an even number are real parts.
template <typename T, int Bytes>
struct ComplexFormat : PlainFormat<T, Bytes> {
  static_assert(Bytes % (2 * sizeof(T)) == 0, "no element is divided between vectors");
};

/// Unsigned integers as truth values: what is not 0 becomes 1.
template <typename T, int Bytes>
struct TruthFormat : PlainFormat<T, Bytes> {
  using Lanes = Vector<T, Bytes>;
  static RETINUE_INLINE Lanes widen(Lanes v) { return bits_as<Lanes>(v != 0) & T{1}; }
};

template <int Bytes>
struct BFloat16Format {
  using Lane = float;
  using Lanes = Vector<float, Bytes>;
  using Stored = Vector<std::uint16_t, Bytes / 2>;
  using Words = Vector<std::uint32_t, Bytes>;
  static RETINUE_INLINE Lanes widen(Stored v) { return bits_as<Lanes>(__builtin_convertvector(v, Words) << 16); }
  static RETINUE_INLINE Stored narrow(Lanes v) {
    const Words bits = bits_as<Words>(v);
    const Words rounded = (bits + 0x7fffu + (bits >> 16 & 1u)) >> 16;
    const Words quiet_nan = bits >> 16 | 0x40u;
    const Words is_nan = bits_as<Words>((bits & 0x7fffffffu) > 0x7f800000u);
    return __builtin_convertvector((is_nan & quiet_nan) | (~is_nan & rounded), Stored);
  }
};

/// fp16 to fp32 by integers: shift the exponent and mantissa into place, then mend the exponent of zeros, subnormals
/// and infinities. The subtraction is exact.
template <int Bytes>
RETINUE_INLINE Vector<float, Bytes> widen_half(Vector<std::uint16_t, Bytes / 2> v) {
  using Words = Vector<std::uint32_t, Bytes>;
  using Floats = Vector<float, Bytes>;
  const Words half = __builtin_convertvector(v, Words);
  const Words sign = (half & 0x8000u) << 16;
  const Words shifted = (half & 0x7fffu) << 13;
  const Words exponent = shifted & 0x0f800000u;
  const Words normal = shifted + ((127u - 15u) << 23);
  const Words infinite = normal + ((128u - 16u) << 23);
  const Words base = Words{} + (113u << 23);
  const Floats tiny = bits_as<Floats>(shifted + base) - bits_as<Floats>(base);
  const Words is_infinite = bits_as<Words>(exponent == 0x0f800000u);
  const Words is_tiny = bits_as<Words>(exponent == 0u);
  const Words magnitude =
      (is_infinite & infinite) | (is_tiny & bits_as<Words>(tiny)) | (~(is_infinite | is_tiny) & normal);
  return bits_as<Floats>(magnitude | sign);
}

/// fp32 to fp16, to nearest even: subnormals are rounded by an addition that aligns their last bit with fp32's.
template <int Bytes>
RETINUE_INLINE Vector<std::uint16_t, Bytes / 2> narrow_half(Vector<float, Bytes> v) {
  using Words = Vector<std::uint32_t, Bytes>;
  using Floats = Vector<float, Bytes>;
  const Words bits = bits_as<Words>(v);
  const Words sign = bits >> 16 & 0x8000u;
  const Words magnitude = bits & 0x7fffffffu;
  const Words align = Words{} + (((127u - 15u) + (23u - 10u) + 1u) << 23);
  const Words tiny = bits_as<Words>(bits_as<Floats>(magnitude) + bits_as<Floats>(align)) - align;
  const Words normal = (magnitude - ((127u - 15u) << 23) + 0xfffu + (magnitude >> 13 & 1u)) >> 13;
  const Words is_nan = bits_as<Words>(magnitude > 0x7f800000u);
  const Words is_huge = bits_as<Words>(magnitude >= (143u << 23));
  const Words is_tiny = bits_as<Words>(magnitude < (113u << 23));
  const Words huge = 0x7c00u | (is_nan & 0x0200u);
  const Words result = (is_huge & huge) | (is_tiny & tiny) | (~(is_huge | is_tiny) & normal);
  return __builtin_convertvector(result | sign, Vector<std::uint16_t, Bytes / 2>);
}

#if RETINUE_KERNEL_BYTES == 32
template <>
RETINUE_INLINE Vector<float, 32> widen_half<32>(Vector<std::uint16_t, 16> v) {
  return bits_as<Vector<float, 32>>(_mm256_cvtph_ps(bits_as<__m128i>(v)));
}
template <>
RETINUE_INLINE Vector<std::uint16_t, 16> narrow_half<32>(Vector<float, 32> v) {
  return bits_as<Vector<std::uint16_t, 16>>(_mm256_cvtps_ph(bits_as<__m256>(v), _MM_FROUND_TO_NEAREST_INT));
}
#elif RETINUE_KERNEL_BYTES == 64  // The masked forms, because gcc 12 warns of its own plain ones.
template <>
RETINUE_INLINE Vector<float, 64> widen_half<64>(Vector<std::uint16_t, 32> v) {
  return bits_as<Vector<float, 64>>(_mm512_maskz_cvtph_ps(0xffff, bits_as<__m256i>(v)));
}
template <>
RETINUE_INLINE Vector<std::uint16_t, 32> narrow_half<64>(Vector<float, 64> v) {
  return bits_as<Vector<std::uint16_t, 32>>(
      _mm512_maskz_cvtps_ph(0xffff, bits_as<__m512>(v), _MM_FROUND_TO_NEAREST_INT));
}
#endif

template <int Bytes>
struct Float16Format {
  using Lane = float;
  using Lanes = Vector<float, Bytes>;
  using Stored = Vector<std::uint16_t, Bytes / 2>;
  static RETINUE_INLINE Lanes widen(Stored v) { return widen_half<Bytes>(v); }
  static RETINUE_INLINE Stored narrow(Lanes v) { return narrow_half<Bytes>(v); }
};

}  // namespace
}  // namespace retinue

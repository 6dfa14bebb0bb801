#include "torch/checkpoint/crc32.h"

#include <array>
#include <cstring>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace retinue {
namespace {

constexpr std::uint32_t kPolynomial = 0xEDB88320;  // Bits in reverse: bit 31 is the coefficient of x^0.

using Tables = std::array<std::array<std::uint32_t, 256>, 8>;

constexpr Tables make_tables() {
  Tables tables{};
  for (std::uint32_t byte = 0; byte < 256; ++byte) {
    std::uint32_t rest = byte;
    for (int bit = 0; bit < 8; ++bit) rest = rest >> 1 ^ ((rest & 1) != 0 ? kPolynomial : 0);
    tables[0][byte] = rest;
  }
  for (std::size_t zeros = 1; zeros < tables.size(); ++zeros)
    for (std::size_t byte = 0; byte < 256; ++byte)
      tables[zeros][byte] = tables[zeros - 1][byte] >> 8 ^ tables[0][tables[zeros - 1][byte] & 0xff];
  return tables;
}

constexpr Tables kTables = make_tables();

/// Of the remainder `rest`, without the inversions at begin and end.
std::uint32_t remainder_by_tables(const unsigned char* data, std::size_t bytes, std::uint32_t rest) {
  for (; bytes >= 8; bytes -= 8, data += 8) {
    std::uint64_t word = 0;
    std::memcpy(&word, data, 8);
    word ^= rest;
    rest = 0;
    for (std::size_t i = 0; i < 8; ++i) rest ^= kTables[7 - i][word >> 8 * i & 0xff];
  }
  for (; bytes > 0; --bytes, ++data) rest = rest >> 8 ^ kTables[0][(rest ^ *data) & 0xff];
  return rest;
}

#if defined(__x86_64__)

/// x^n modulo the polynomial, for the constants of folding.
constexpr std::uint64_t power_of_x(unsigned n) {
  std::uint32_t rest = 0x80000000;
  for (unsigned i = 0; i < n; ++i) rest = rest >> 1 ^ ((rest & 1) != 0 ? kPolynomial : 0);
  // In reverse order of bits a product of two 64-bit halves is one bit short.
  return static_cast<std::uint64_t>(rest) << 1;
}

[[gnu::target("pclmul,sse4.1")]] __m128i fold(__m128i block, __m128i next, __m128i factors) {
  const __m128i low = _mm_clmulepi64_si128(block, factors, 0x00);
  const __m128i high = _mm_clmulepi64_si128(block, factors, 0x11);
  return _mm_xor_si128(_mm_xor_si128(low, high), next);
}

/// Folds four blocks of 16 bytes at a time over the data, and leaves the last 16 to the tables. `bytes`: a multiple of
/// 64, at least 64.
[[gnu::target("pclmul,sse4.1")]] std::uint32_t remainder_by_folding(const unsigned char* data, std::size_t bytes,
                                                                    std::uint32_t rest) {
  const auto load = [](const unsigned char* at) { return _mm_loadu_si128(reinterpret_cast<const __m128i*>(at)); };
  const auto factors = [](unsigned distance) {
    return _mm_set_epi64x(static_cast<std::int64_t>(power_of_x(distance - 32)),
                          static_cast<std::int64_t>(power_of_x(distance + 32)));
  };
  static constexpr unsigned kNear = 128;
  static constexpr unsigned kFar = 4 * kNear;
  static const __m128i over_four = factors(kFar);
  static const __m128i over_one = factors(kNear);
  __m128i blocks[4];
  for (std::size_t i = 0; i < 4; ++i) blocks[i] = load(data + 16 * i);
  blocks[0] = _mm_xor_si128(blocks[0], _mm_cvtsi32_si128(static_cast<int>(rest)));
  for (std::size_t done = 64; done < bytes; done += 64)
    for (std::size_t i = 0; i < 4; ++i) blocks[i] = fold(blocks[i], load(data + done + 16 * i), over_four);
  __m128i last = blocks[0];
  for (std::size_t i = 1; i < 4; ++i) last = fold(last, blocks[i], over_one);
  unsigned char left[16];
  _mm_storeu_si128(reinterpret_cast<__m128i*>(left), last);
  return remainder_by_tables(left, sizeof left, 0);
}

bool can_fold() {
  static const bool has_instructions = __builtin_cpu_supports("pclmul") != 0 && __builtin_cpu_supports("sse4.1") != 0;
  return has_instructions;
}

#endif

/// The product of two polynomials, modulo the polynomial.
std::uint32_t multiply(std::uint32_t a, std::uint32_t b) {
  std::uint32_t product = 0;
  for (std::uint32_t bit = 0x80000000; bit != 0; bit >>= 1) {
    if ((a & bit) != 0) product ^= b;
    b = b >> 1 ^ ((b & 1) != 0 ? kPolynomial : 0);
  }
  return product;
}

}  // namespace

std::uint32_t crc32_by_tables(const void* data, std::size_t bytes, std::uint32_t before) {
  return ~remainder_by_tables(static_cast<const unsigned char*>(data), bytes, ~before);
}

std::uint32_t crc32(const void* data, std::size_t bytes, std::uint32_t before) {
  const auto* at = static_cast<const unsigned char*>(data);
  std::uint32_t rest = ~before;
#if defined(__x86_64__)
  if (const std::size_t folded = bytes / 64 * 64; folded > 0 && can_fold()) {
    rest = remainder_by_folding(at, folded, rest);
    at += folded;
    bytes -= folded;
  }
#endif
  return ~remainder_by_tables(at, bytes, rest);
}

std::uint32_t crc32_combine(std::uint32_t first, std::uint32_t second, std::uint64_t second_bytes) {
  // The first part's remainder moves by 8 bits for each byte after it: times x^(8 second_bytes).
  std::uint32_t power = 0x80000000 >> 8;  // x^8
  for (; second_bytes != 0; second_bytes >>= 1, power = multiply(power, power))
    if ((second_bytes & 1) != 0) first = multiply(power, first);
  return first ^ second;
}

}  // namespace retinue

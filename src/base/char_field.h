#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>

/// Texts in fields of fixed size, as they stand in what processes share.
namespace retinue {

/// The text in a field, whoever wrote it: it ends with the first zero, or with the field.
template <std::size_t kBytes>
std::string text_of(const char (&field)[kBytes]) {
  return {field, strnlen(field, kBytes)};
}

/// The bytes in words that another process may be writing. Acquire: what is read after it is newer.
inline std::string bytes_in(std::span<const std::atomic<std::uint64_t>> words) {
  std::string bytes(words.size_bytes(), '\0');
  for (std::size_t i = 0; i < words.size(); ++i) {
    const std::uint64_t word = words[i].load(std::memory_order_acquire);
    std::memcpy(bytes.data() + i * sizeof word, &word, sizeof word);
  }
  return bytes;
}

/// The text in such words, up to the first zero.
inline std::string text_in(std::span<const std::atomic<std::uint64_t>> words) {
  std::string text = bytes_in(words);
  text.resize(strnlen(text.data(), text.size()));
  return text;
}

/// Writes as much of `text` into a field of zeros as leaves a zero at its end.
template <std::size_t kBytes>
void fill(char (&field)[kBytes], std::string_view text) {
  std::memcpy(field, text.data(), std::min(text.size(), kBytes - 1));
}

/// Writes a path of at most `bytes`; of a longer one the end, from a folder on where one fits: ".../rt/mod/train.cpp".
inline void write_path(char* to, std::size_t bytes, std::string_view path) {
  constexpr std::string_view kCut = "...";
  if (path.size() > bytes) {
    std::memcpy(to, kCut.data(), kCut.size());
    to += kCut.size();
    path.remove_prefix(path.size() - (bytes - kCut.size()));
    if (const std::size_t folder = path.find('/'); folder != std::string_view::npos) path.remove_prefix(folder);
  }
  std::memcpy(to, path.data(), path.size());
}

/// The same into a field, and zeros behind it.
template <std::size_t kBytes>
void fill_path(char (&field)[kBytes], std::string_view path) {
  std::memset(field, 0, kBytes);
  write_path(field, kBytes, path);
}

}  // namespace retinue

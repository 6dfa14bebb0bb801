#include "store/key_table.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/parse_number.h"
#include "retinue/base/error.h"

namespace retinue {
namespace {

constexpr std::size_t kShownKeys = 8;
constexpr std::size_t kShownBytes = 100;

std::string shown_key(std::string_view key) {
  std::string text = "'";
  for (const char c : key.substr(0, kShownBytes)) {
    const auto byte = static_cast<unsigned char>(c);
    text += byte < ' ' || byte == 0x7f ? fmt::format("\\x{:02x}", byte) : std::string(1, c);
  }
  return text + (key.size() > kShownBytes ? "...'" : "'");
}

}  // namespace

void KeyTable::set(std::string_view key, std::string_view value) {
  const auto place = values_.lower_bound(key);
  if (place != values_.end() && place->first == key)
    place->second = value;
  else
    values_.emplace_hint(place, key, value);
}

const std::string* KeyTable::find(std::string_view key) const {
  const auto place = values_.find(key);
  return place == values_.end() ? nullptr : &place->second;
}

bool KeyTable::erase(std::string_view key) {
  const auto place = values_.find(key);
  if (place == values_.end()) return false;
  values_.erase(place);
  return true;
}

std::int64_t KeyTable::sum(std::string_view key, std::int64_t delta) const {
  std::int64_t number = 0;
  if (const std::string* value = find(key); value != nullptr) {
    const auto stored = parse_number<std::int64_t>(*value);
    if (!stored) throw UsageError(fmt::format("add() to the key {}: its value is not a number", shown_key(key)));
    number = *stored;
  }
  std::int64_t sum = 0;
  if (__builtin_add_overflow(number, delta, &sum))
    throw UsageError(fmt::format("add() of {} to the key {}, whose value is {}: the sum does not fit into 64 bits",
                                 delta, shown_key(key), number));
  return sum;
}

std::int64_t KeyTable::add(std::string_view key, std::int64_t delta) {
  const std::int64_t result = sum(key, delta);
  set(key, std::to_string(result));
  return result;
}

bool KeyTable::matches(std::string_view key, std::string_view expected) const {
  const std::string* value = find(key);
  return value == nullptr ? expected.empty() : *value == expected;
}

std::string KeyTable::value_or(std::string_view key, std::string_view otherwise) const {
  const std::string* value = find(key);
  return value == nullptr ? std::string(otherwise) : *value;
}

std::string KeyTable::compare_set(std::string_view key, std::string_view expected, std::string_view desired) {
  if (matches(key, expected)) set(key, desired);
  return value_or(key, expected);
}

bool KeyTable::has(const std::vector<std::string>& keys) const {
  return std::ranges::all_of(keys, [&](const std::string& key) { return values_.contains(key); });
}

std::vector<std::string> KeyTable::missing(const std::vector<std::string>& keys) const {
  std::vector<std::string> missing;
  std::ranges::copy_if(keys, std::back_inserter(missing),
                       [&](const std::string& key) { return !values_.contains(key); });
  return missing;
}

std::vector<std::string> KeyTable::values(const std::vector<std::string>& keys) const {
  std::vector<std::string> found;
  found.reserve(keys.size());
  for (const std::string& key : keys) found.push_back(*find(key));
  return found;
}

std::string shown_keys(const std::vector<std::string>& keys) {
  std::string text;
  for (std::size_t i = 0; i < std::min(keys.size(), kShownKeys); ++i) text += (i == 0 ? "" : ", ") + shown_key(keys[i]);
  if (keys.size() > kShownKeys) text += fmt::format(" and {} more", keys.size() - kShownKeys);
  return text;
}

void throw_missing(const std::string& store, const std::vector<std::string>& missing) {
  throw TimeoutError(
      fmt::format("{}: nobody set the key{} {} in time", store, missing.size() == 1 ? "" : "s", shown_keys(missing)));
}

}  // namespace retinue

#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace retinue {

/// Keys and values, and what a store's calls do with them. It waits for nothing and locks nothing.
class KeyTable {
 public:
  void set(std::string_view key, std::string_view value);
  /// Null if there is no such key; until the table's next change.
  const std::string* find(std::string_view key) const;
  bool erase(std::string_view key);
  std::size_t size() const { return values_.size(); }

  /// What add() returns, without changing anything. Errors: UsageError.
  std::int64_t sum(std::string_view key, std::int64_t delta) const;
  std::int64_t add(std::string_view key, std::int64_t delta);

  /// Whether compare_set() would set.
  bool matches(std::string_view key, std::string_view expected) const;
  /// What compare_set() returns where it does not set.
  std::string value_or(std::string_view key, std::string_view otherwise) const;
  std::string compare_set(std::string_view key, std::string_view expected, std::string_view desired);

  bool has(const std::vector<std::string>& keys) const;
  std::vector<std::string> missing(const std::vector<std::string>& keys) const;
  /// Values of keys that all exist.
  std::vector<std::string> values(const std::vector<std::string>& keys) const;

 private:
  std::map<std::string, std::string, std::less<>> values_;
};

/// What is thrown when a wait for keys ended in vain, as "a, b and 3 more".
[[noreturn]] void throw_missing(const std::string& store, const std::vector<std::string>& missing);

/// Keys as messages show them: quoted, without what is not printable, and not too many.
std::string shown_keys(const std::vector<std::string>& keys);

}  // namespace retinue

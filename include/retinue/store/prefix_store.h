#pragma once

#include <memory>
#include <string>

#include "retinue/store/store.h"

namespace retinue {

/// A view of another store in which each key begins with `prefix` and a slash, so that users of one store don't
/// collide.
///
/// Its timeout() is at first the other store's, and its own from then on. num_keys() counts all keys of the other
/// store.
class PrefixStore : public Store {
 public:
  /// Errors: UsageError without a store.
  PrefixStore(std::string prefix, std::shared_ptr<Store> store);

  std::string name() const override;
  const std::string& prefix() const noexcept { return prefix_; }
  const std::shared_ptr<Store>& underlying_store() const noexcept { return store_; }

 private:
  std::string full(std::string_view key) const;
  std::vector<std::string> full(const std::vector<std::string>& keys) const;

  void do_set(std::string_view key, std::string_view value, Deadline deadline) override;
  std::vector<std::string> do_multi_get(const std::vector<std::string>& keys, Deadline deadline) override;
  std::int64_t do_add(std::string_view key, std::int64_t delta, Deadline deadline) override;
  std::string do_compare_set(std::string_view key, std::string_view expected, std::string_view desired,
                             Deadline deadline) override;
  void do_wait(const std::vector<std::string>& keys, Deadline deadline) override;
  bool do_check(const std::vector<std::string>& keys, Deadline deadline) override;
  bool do_delete_key(std::string_view key, Deadline deadline) override;
  std::int64_t do_num_keys(Deadline deadline) override;

  std::string prefix_;
  std::shared_ptr<Store> store_;
};

}  // namespace retinue

#pragma once

#include <memory>
#include <string>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <vector>

#include "retinue/store/store.h"

namespace retinue {

/// A c10d store, such as c10d::TCPStore, for use as a Retinue store: ProcessGroupOptions::store.
///
/// Threads: as the c10d store allows; in a c10d::TCPStore a waiting call holds up all others.
/// Errors: TimeoutError and Closed if c10d reports a timeout or a lost connection; otherwise Error with c10d's text.
/// The deadline of calls that don't wait for keys is c10d's own timeout.
class C10dStore : public Store {
 public:
  /// Errors: UsageError without a store.
  explicit C10dStore(c10::intrusive_ptr<c10d::Store> store);

  std::string name() const override { return "the c10d store"; }
  const c10::intrusive_ptr<c10d::Store>& underlying_store() const noexcept { return store_; }

 private:
  void do_set(std::string_view key, std::string_view value, Deadline deadline) override;
  std::vector<std::string> do_multi_get(const std::vector<std::string>& keys, Deadline deadline) override;
  std::int64_t do_add(std::string_view key, std::int64_t delta, Deadline deadline) override;
  std::string do_compare_set(std::string_view key, std::string_view expected, std::string_view desired,
                             Deadline deadline) override;
  void do_wait(const std::vector<std::string>& keys, Deadline deadline) override;
  bool do_check(const std::vector<std::string>& keys, Deadline deadline) override;
  bool do_delete_key(std::string_view key, Deadline deadline) override;
  std::int64_t do_num_keys(Deadline deadline) override;

  c10::intrusive_ptr<c10d::Store> store_;
};

/// Returns a Retinue store as a c10d store, for code that takes one, such as c10d's ProcessGroupGloo. A wait for keys
/// that takes too long throws TimeoutError, and other errors are the store's, too. c10d's queues and listKeys() are not
/// available.
///
/// Threads: any. Errors: UsageError without a store.
c10::intrusive_ptr<c10d::Store> to_c10d_store(std::shared_ptr<Store> store);

}  // namespace retinue

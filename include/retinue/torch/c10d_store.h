#pragma once

#include <string>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <vector>

#include "retinue/store/store.h"

namespace retinue {

/// A store of c10d's, such as c10d::TCPStore, for whatever takes one of ours: ProcessGroupOptions::store.
///
/// Threads: those that the store allows; of a c10d::TCPStore a call that waits holds up all others.
/// Errors: TimeoutError and Closed where c10d says a timeout or a lost connection;
/// Error with c10d's text otherwise. Deadlines of calls that don't wait for keys are c10d's own timeout.
class C10dStore : public Store {
 public:
  /// Errors: UsageError without a store.
  explicit C10dStore(c10::intrusive_ptr<c10d::Store> store);

  std::string name() const override { return "the c10d store"; }

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

}  // namespace retinue

#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "retinue/base/deadline.h"
#include "retinue/store/store.h"

namespace retinue {

/// Ranks that gather bytes of all through a store, of which rank 0 makes one value for the others: a step costs each
/// rank two calls, whatever their number.
///
/// Errors: TimeoutError that names the ranks that didn't come, and those that seem to be two processes; UsageError
/// where ranks that meet say that they are differently many, or give different sizes; the store's.
class StoreExchange {
 public:
  StoreExchange(std::shared_ptr<Store> store, std::string name, int rank, int size, Deadline deadline);

  void all_gather(const void* own, void* all, std::size_t bytes);

 private:
  std::string key(const std::string& who) const;
  /// How often this or another process has joined as that rank. `more`: in addition.
  std::int64_t joined(int rank, int more, Deadline deadline);
  /// Errors: UsageError where another rank has said that there are more ranks, or fewer; the others throw it, too.
  void agree_on_size();
  /// Of ranks as which another process seems to have joined, too: "; rank 1 has come 2 times: ...".
  std::string twice_joined();
  std::vector<std::string> keys_of_others() const;
  std::string combine(std::string own);
  std::string take(const std::string& own);
  /// Says who is missing, to the other ranks as well.
  [[noreturn]] void fail_missing();

  std::shared_ptr<Store> store_;
  std::string name_;
  int rank_;
  int size_;
  Deadline deadline_;
  std::int64_t joined_ = 0;
  std::string prefix_;  ///< Of this exchange's keys: each rank counts those that it made in the store.
  int step_ = 0;
};

}  // namespace retinue

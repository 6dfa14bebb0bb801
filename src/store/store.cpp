#include "retinue/store/store.h"

#include "retinue/base/error.h"

namespace retinue {
namespace {

Store::Time checked(Store::Time timeout) {
  if (timeout <= Store::Time(0))
    throw UsageError("a store's timeout must be positive; nanoseconds::max() waits forever");
  return timeout;
}

}  // namespace

Store::Store(Time timeout) : timeout_(checked(timeout)) {}
Store::~Store() = default;

void Store::set_timeout(Time timeout) {
  timeout_.store(checked(timeout), std::memory_order_relaxed);
}

void Store::set(std::string_view key, std::string_view value, Deadline deadline) {
  do_set(key, value, deadline);
}

std::string Store::get(std::string_view key, Deadline deadline) {
  return std::move(do_multi_get({std::string(key)}, deadline).front());
}

std::vector<std::string> Store::multi_get(const std::vector<std::string>& keys, Deadline deadline) {
  if (keys.empty()) return {};
  return do_multi_get(keys, deadline);
}

std::int64_t Store::add(std::string_view key, std::int64_t delta, Deadline deadline) {
  return do_add(key, delta, deadline);
}

std::string Store::compare_set(std::string_view key, std::string_view expected, std::string_view desired,
                               Deadline deadline) {
  return do_compare_set(key, expected, desired, deadline);
}

void Store::wait(const std::vector<std::string>& keys, Deadline deadline) {
  if (!keys.empty()) do_wait(keys, deadline);
}

bool Store::check(const std::vector<std::string>& keys, Deadline deadline) {
  return keys.empty() || do_check(keys, deadline);
}

bool Store::delete_key(std::string_view key, Deadline deadline) {
  return do_delete_key(key, deadline);
}

std::int64_t Store::num_keys(Deadline deadline) {
  return do_num_keys(deadline);
}

}  // namespace retinue

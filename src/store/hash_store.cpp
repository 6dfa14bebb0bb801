#include "retinue/store/hash_store.h"

#include <condition_variable>
#include <mutex>

#include "store/key_table.h"

namespace retinue {

struct HashStore::Impl {
  std::mutex mutex;
  std::condition_variable changed;
  KeyTable table;

  /// Returns with the lock held, when all keys exist.
  std::unique_lock<std::mutex> wait_for(const std::vector<std::string>& keys, Deadline deadline,
                                        const std::string& store) {
    std::unique_lock lock(mutex);
    const auto are_there = [&] { return table.has(keys); };
    if (deadline.is_never())
      changed.wait(lock, are_there);
    else if (!changed.wait_until(lock, deadline.when(), are_there))
      throw_missing(store, table.missing(keys));
    return lock;
  }
};

HashStore::HashStore(Time timeout) : Store(timeout), impl_(std::make_unique<Impl>()) {}
HashStore::~HashStore() = default;

std::string HashStore::name() const {
  return "HashStore";
}

void HashStore::do_set(std::string_view key, std::string_view value, Deadline /*deadline*/) {
  const std::lock_guard lock(impl_->mutex);
  impl_->table.set(key, value);
  impl_->changed.notify_all();
}

std::vector<std::string> HashStore::do_multi_get(const std::vector<std::string>& keys, Deadline deadline) {
  const auto lock = impl_->wait_for(keys, deadline, name());
  return impl_->table.values(keys);
}

std::int64_t HashStore::do_add(std::string_view key, std::int64_t delta, Deadline /*deadline*/) {
  const std::lock_guard lock(impl_->mutex);
  const std::int64_t sum = impl_->table.add(key, delta);
  impl_->changed.notify_all();
  return sum;
}

std::string HashStore::do_compare_set(std::string_view key, std::string_view expected, std::string_view desired,
                                      Deadline /*deadline*/) {
  const std::lock_guard lock(impl_->mutex);
  std::string now = impl_->table.compare_set(key, expected, desired);
  impl_->changed.notify_all();
  return now;
}

void HashStore::do_wait(const std::vector<std::string>& keys, Deadline deadline) {
  static_cast<void>(impl_->wait_for(keys, deadline, name()));
}

bool HashStore::do_check(const std::vector<std::string>& keys, Deadline /*deadline*/) {
  const std::lock_guard lock(impl_->mutex);
  return impl_->table.has(keys);
}

bool HashStore::do_delete_key(std::string_view key, Deadline /*deadline*/) {
  const std::lock_guard lock(impl_->mutex);
  return impl_->table.erase(key);
}

std::int64_t HashStore::do_num_keys(Deadline /*deadline*/) {
  const std::lock_guard lock(impl_->mutex);
  return static_cast<std::int64_t>(impl_->table.size());
}

}  // namespace retinue

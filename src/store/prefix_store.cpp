#include "retinue/store/prefix_store.h"

#include <fmt/format.h>

#include "retinue/base/error.h"

namespace retinue {
namespace {

const Store& checked(const std::shared_ptr<Store>& store) {
  if (store == nullptr) throw UsageError("PrefixStore: the store is a null pointer");
  return *store;
}

}  // namespace

PrefixStore::PrefixStore(std::string prefix, std::shared_ptr<Store> store)
    : Store(checked(store).timeout()), prefix_(std::move(prefix)), store_(std::move(store)) {}

std::string PrefixStore::name() const {
  return fmt::format("PrefixStore '{}' of {}", prefix_, store_->name());
}

std::string PrefixStore::full(std::string_view key) const {
  return fmt::format("{}/{}", prefix_, key);
}

std::vector<std::string> PrefixStore::full(const std::vector<std::string>& keys) const {
  std::vector<std::string> with_prefix;
  with_prefix.reserve(keys.size());
  for (const std::string& key : keys) with_prefix.push_back(full(key));
  return with_prefix;
}

void PrefixStore::do_set(std::string_view key, std::string_view value, Deadline deadline) {
  store_->set(full(key), value, deadline);
}

std::vector<std::string> PrefixStore::do_multi_get(const std::vector<std::string>& keys, Deadline deadline) {
  return store_->multi_get(full(keys), deadline);
}

std::int64_t PrefixStore::do_add(std::string_view key, std::int64_t delta, Deadline deadline) {
  return store_->add(full(key), delta, deadline);
}

std::string PrefixStore::do_compare_set(std::string_view key, std::string_view expected, std::string_view desired,
                                        Deadline deadline) {
  return store_->compare_set(full(key), expected, desired, deadline);
}

void PrefixStore::do_wait(const std::vector<std::string>& keys, Deadline deadline) {
  store_->wait(full(keys), deadline);
}

bool PrefixStore::do_check(const std::vector<std::string>& keys, Deadline deadline) {
  return store_->check(full(keys), deadline);
}

bool PrefixStore::do_delete_key(std::string_view key, Deadline deadline) {
  return store_->delete_key(full(key), deadline);
}

std::int64_t PrefixStore::do_num_keys(Deadline deadline) {
  return store_->num_keys(deadline);
}

}  // namespace retinue

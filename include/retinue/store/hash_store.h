#pragma once

#include <memory>
#include <string>

#include "retinue/store/store.h"

namespace retinue {

/// A store in this process's memory, through which its threads meet. A fork has its own copy.
class HashStore : public Store {
 public:
  explicit HashStore(Time timeout = kDefaultTimeout);
  ~HashStore() override;

  std::string name() const override;

 private:
  struct Impl;

  void do_set(std::string_view key, std::string_view value, Deadline deadline) override;
  std::vector<std::string> do_multi_get(const std::vector<std::string>& keys, Deadline deadline) override;
  std::int64_t do_add(std::string_view key, std::int64_t delta, Deadline deadline) override;
  std::string do_compare_set(std::string_view key, std::string_view expected, std::string_view desired,
                             Deadline deadline) override;
  void do_wait(const std::vector<std::string>& keys, Deadline deadline) override;
  bool do_check(const std::vector<std::string>& keys, Deadline deadline) override;
  bool do_delete_key(std::string_view key, Deadline deadline) override;
  std::int64_t do_num_keys(Deadline deadline) override;

  std::unique_ptr<Impl> impl_;
};

}  // namespace retinue

#include "retinue/torch/load_once.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <atomic>
#include <stdexcept>
#include <string>
#include <vector>

#include "retinue/torch/shared_tensor.h"
#include "support/fork_shared.h"
#include "support/says.h"
#include "torch/trained_net.h"

namespace retinue {
namespace {

class LoadOncePerHost : public test::OnRanks {
 protected:
  /// Groups that were asked not to use shared memory are, to each other, of different jobs.
  static bool is_gloo() { return std::string(std::get<0>(GetParam())) == "gloo"; }
  static void on_ranks_of_a_job(const std::function<void(const ProcessGroup&)>& body) {
    test::run_ranks(std::get<1>(GetParam()), [&](const JobGroup& members) {
      JobMemory::set_current(members.memory);
      body(init_process_group(members, {.backend = std::get<0>(GetParam())}));
      JobMemory::set_current(nullptr);
    });
  }
};

TEST_P(LoadOncePerHost, OneRankLoadsAndAllHaveTheSameMemory) {
  const test::ForkShared<std::atomic<int>> loads;
  on_ranks_of_a_job([&](const ProcessGroup& group) {
    const std::vector<at::Tensor> tensors = load_once_per_host(group, [&] {
      ++*loads;
      return std::vector{torch::arange(1000), torch::full({3, 4}, 0.5)};
    });
    ASSERT_EQ(tensors.size(), 2u);
    EXPECT_TRUE(torch::equal(tensors[0], torch::arange(1000)));
    EXPECT_TRUE(torch::equal(tensors[1], torch::full({3, 4}, 0.5)));
    group->barrier()->wait();
    if (group->getSize() == 1 || is_gloo()) return;  // They share with nobody.
    EXPECT_TRUE(is_shared(tensors[0]));
    if (group->getRank() == 0) tensors[0][7] = -1;
    group->barrier()->wait();
    EXPECT_EQ(tensors[0][7].item<std::int64_t>(), -1);
    group->barrier()->wait();
  });
  EXPECT_EQ(loads->load(), is_gloo() ? std::get<1>(GetParam()) : 1);
}

TEST_P(LoadOncePerHost, AFailureComesToAllRanks) {
  on_ranks_of_a_job([&](const ProcessGroup& group) {
    const auto load = []() -> at::Tensor { throw std::out_of_range("no such data"); };
    if (group->getRank() == 0 || is_gloo()) {
      EXPECT_THROW(load_once_per_host(group, load), std::out_of_range);
    } else {
      try {
        load_once_per_host(group, load);
        ADD_FAILURE() << "no error";
      } catch (const UsageError& error) {
        EXPECT_TRUE(test::says(error.what(), "failed to load: std::out_of_range: no such data")) << error.what();
      }
    }
    EXPECT_EQ(load_once_per_host(group, [] { return 5; }), 5);  // The group is usable.
  });
}

INSTANTIATE_TEST_SUITE_P(Backends, LoadOncePerHost, test::OnRanks::values(), test::OnRanks::name_of);

}  // namespace
}  // namespace retinue

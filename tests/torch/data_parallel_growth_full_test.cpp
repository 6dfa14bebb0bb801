// Ten thousand further steps take no further memory.
#include <gtest/gtest.h>
#include <torch/torch.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <string>

#include "retinue/torch/sharded_optimizer.h"
#include "torch/trained_net.h"

namespace retinue {
namespace {

/// Pages that this process holds, of its own and shared.
long resident_pages() {
  std::ifstream file("/proc/self/statm");
  long all = 0, resident = 0;
  file >> all >> resident;
  return resident;
}

enum class Way { kDdp, kUnused, kShardedOptimizer, kSharedParameters };

class TenThousandSteps : public testing::TestWithParam<Way> {};
INSTANTIATE_TEST_SUITE_P(Ways, TenThousandSteps,
                         testing::Values(Way::kDdp, Way::kUnused, Way::kShardedOptimizer, Way::kSharedParameters));

TEST_P(TenThousandSteps, TakeNoMoreMemory) {
  setenv("RETINUE_FLIGHT_RECORDER", "0", 1);  // It takes its memory as it fills, up to its size.
  for (const char* backend : {"shm", "gloo"}) {
    const bool shares = GetParam() == Way::kSharedParameters;
    if (shares && std::string(backend) == "gloo") continue;  // It needs ranks that share memory.
    test::run_training(2, backend, [&](const ProcessGroup& group) {
      DistributedDataParallel ddp(test::make_mlp(64), group,
                                  {.find_unused_parameters = GetParam() == Way::kUnused, .share_parameters = shares});
      std::unique_ptr<torch::optim::Optimizer> optimizer;
      if (GetParam() == Way::kDdp || GetParam() == Way::kUnused)
        optimizer = std::make_unique<torch::optim::AdamW>(ddp.parameters(), torch::optim::AdamWOptions(1e-3));
      else
        optimizer = std::make_unique<ShardedOptimizer<torch::optim::AdamW>>(ddp, torch::optim::AdamWOptions(1e-3));
      const auto train = [&](int steps) {
        for (int step = 0; step < steps; ++step) {
          optimizer->zero_grad();
          ddp(test::part_of(step % 8, group, group->getRank())).square().mean().backward();
          optimizer->step();
        }
      };
      train(5000);
      const long before = resident_pages();
      train(10'000);
      EXPECT_LE(resident_pages() - before, 64) << backend;  // One small tensor a step would be 600.
    });
  }
}

}  // namespace
}  // namespace retinue

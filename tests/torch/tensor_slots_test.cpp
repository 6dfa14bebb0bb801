// Slots: places in job memory for tensors that a backward makes.
#include "torch/tensors/tensor_slots.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <torch/torch.h>
#include <unistd.h>

#include <cstring>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "retinue/ipc/job_memory.h"
#include "support/ranks.h"
#include "torch/calls_in_backward.h"

namespace retinue {
namespace {

using test::CallsInBackward;

constexpr std::int64_t kFloats = 8192;
constexpr std::size_t kBytes = kFloats * sizeof(float);

bool is_in_slot(const at::Tensor& tensor) {
  return TensorSlots::contains(tensor.const_data_ptr());
}

/// Calls `body` in a rank, and expects that nothing stays allocated.
void in_a_rank(const std::function<void(const std::shared_ptr<JobMemory>&)>& body) {
  test::run_ranks(1, [&](const JobGroup& members) {
    const std::size_t before = members.memory->allocated_bytes();
    body(members.memory);
    EXPECT_EQ(members.memory->allocated_bytes(), before);
  });
}

void in_backward(const std::function<void()>& call) {
  CallsInBackward::call = call;
  CallsInBackward::apply(torch::ones({1}, torch::requires_grad())).sum().backward();
}

TEST(TensorSlots, GoToTensorsOfTheirSizeThatABackwardMakes) {
  in_a_rank([](const std::shared_ptr<JobMemory>& memory) {
    const TensorSlots slots(memory, {kBytes, 2 * kBytes});
    EXPECT_FALSE(is_in_slot(at::empty({kFloats}))) << "no backward";
    in_backward([&] {
      const at::Tensor first = at::empty({kFloats});
      EXPECT_TRUE(is_in_slot(first));
      EXPECT_TRUE(memory->contains(first.const_data_ptr(), kBytes));
      EXPECT_FALSE(is_in_slot(at::empty({kFloats}))) << "the slot is taken";
      EXPECT_FALSE(is_in_slot(at::empty({kFloats + 1}))) << "another size";
      EXPECT_TRUE(is_in_slot(at::empty({2, kFloats})));
    });
    in_backward([&] { EXPECT_TRUE(is_in_slot(at::empty({kFloats}))) << "the slot is free again"; });
  });
}

TEST(TensorSlots, DoNotOverlap) {
  in_a_rank([](const std::shared_ptr<JobMemory>& memory) {
    TensorSlots slots(memory, {4, 100, 4, kBytes});
    std::vector<at::DataPtr> taken;
    for (const std::size_t bytes : {std::size_t{100}, std::size_t{4}, std::size_t{4}, kBytes}) {
      taken.push_back(slots.take(bytes));
      ASSERT_TRUE(taken.back());
      std::memset(taken.back().get(), static_cast<int>(taken.size()), bytes);
    }
    EXPECT_FALSE(slots.take(4));
    EXPECT_EQ(*static_cast<char*>(taken[0].get()), 1);
    EXPECT_EQ(*static_cast<char*>(taken[1].get()), 2);
    EXPECT_EQ(*static_cast<char*>(taken[2].get()), 3);
    EXPECT_EQ(*static_cast<char*>(taken[3].get()), 4);
    taken.clear();
    EXPECT_TRUE(slots.take(4));
  });
}

TEST(TensorSlots, LiveAsLongAsTheirTensors) {
  in_a_rank([](const std::shared_ptr<JobMemory>& memory) {
    const std::size_t before = memory->allocated_bytes();
    std::optional<TensorSlots> slots(std::in_place, memory, std::vector<std::size_t>{kBytes});
    at::Tensor kept;
    in_backward([&] { kept = at::ones({kFloats}); });
    slots.reset();
    EXPECT_TRUE(is_in_slot(kept));
    EXPECT_EQ(kept.sum().item<float>(), kFloats);
    EXPECT_GT(memory->allocated_bytes(), before);
    in_backward([&] { EXPECT_FALSE(is_in_slot(at::empty({kFloats}))); });
    kept.reset();
    EXPECT_EQ(memory->allocated_bytes(), before);
  });
}

/// It would write where its parent's tensors are.
TEST(TensorSlots, AreNotGivenToAFork) {
  in_a_rank([](const std::shared_ptr<JobMemory>& memory) {
    TensorSlots slots(memory, {kBytes});
    const pid_t child = fork();
    if (child == 0) {
      bool gets_one = static_cast<bool>(slots.take(kBytes));
      in_backward([&] { gets_one |= is_in_slot(at::empty({kFloats})); });
      _exit(gets_one ? 1 : 0);
    }
    int status = -1;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
    EXPECT_TRUE(slots.take(kBytes));
  });
}

}  // namespace
}  // namespace retinue

// The Python package's library, for each LibTorch, also where no Python is: loaded and called as PyTorch does.
#include <ATen/core/dispatch/Dispatcher.h>
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <filesystem>
#include <string>
#include <torch/csrc/distributed/c10d/FileStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <vector>

#include "launch/strangers.h"
#include "launch/world_scene.h"
#include "support/paths.h"

namespace retinue::test {
namespace {

using Group = c10::intrusive_ptr<c10d::ProcessGroup>;

TEST(PythonLibrary, MakesGroupsByAnOperator) {
  const std::string store = free_path("python");
  run_strangers(2, [&](int rank) {
    set_environment({});
    ASSERT_NE(dlopen(RETINUE_PYTHON_LIBRARY, RTLD_NOW | RTLD_LOCAL), nullptr) << dlerror();
    const auto make = c10::Dispatcher::singleton().findSchemaOrThrow("retinue::new_group", "");
    const auto place = c10::make_intrusive<c10d::ProcessGroup>(c10::make_intrusive<c10d::FileStore>(store, 2), rank, 2);
    std::vector<c10::IValue> stack{place, "pair", std::int64_t{60'000}};
    make.callBoxed(stack);
    const Group group = stack.at(0).toCustomClass<c10d::ProcessGroup>();
    std::vector<at::Tensor> tensors{torch::full({100}, rank + 1.0)};
    group->getBackend(c10::DeviceType::CPU)->allreduce(tensors)->wait();
    EXPECT_TRUE(torch::equal(tensors[0], torch::full({100}, 3.0)));
  });
  std::filesystem::remove(store);
}

}  // namespace
}  // namespace retinue::test

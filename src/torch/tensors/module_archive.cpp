#include <c10/util/StringUtil.h>

#include <algorithm>
#include <cereal/types/string.hpp>
#include <cereal/types/vector.hpp>
#include <cstdint>
#include <string>
#include <vector>

#include "retinue/base/error.h"
#include "retinue/torch/tensor_archive.h"

namespace retinue::detail {

void write_module(ValueOutput& output, const torch::nn::Module& module) {
  const auto write_all = [&](const auto& named) {
    output(static_cast<std::uint64_t>(named.size()));
    for (const auto& entry : named) {
      output(entry.key());
      write_tensor(output, entry.value());
    }
  };
  write_all(module.named_parameters());
  write_all(module.named_buffers());
  std::vector<std::uint8_t> training;
  for (const auto& each : module.modules()) training.push_back(each->is_training() ? 1 : 0);
  output(training);
}

void read_module(ValueInput& input, torch::nn::Module& module) {
  const auto read_all = [&](auto named, const char* kind) {
    std::uint64_t count = 0;
    input(count);
    for (std::uint64_t i = 0; i < count; ++i) {
      std::string name;
      input(name);
      const at::Tensor received = read_tensor(input);
      at::Tensor* const own = named.find(name);
      if (own == nullptr || own->defined() != received.defined() ||
          (own->defined() && own->sizes() != received.sizes()))
        throw UsageError(c10::str(
            "receiving a module: the ", kind, " '", name, "' that was sent ",
            own == nullptr ? "is not in the new module" : "has another shape than in the new module",
            ": the default constructor must build a module like the sender's; or send state_dict(module) and load it"));
      if (!own->defined()) continue;
      own->set_requires_grad(received.requires_grad());
      own->set_data(received.detach());
      if (received.grad().defined()) own->mutable_grad() = received.grad();
    }
    if (count != named.size())
      throw UsageError(
          c10::str("receiving a module: ", count, " ", kind, "s were sent, but the new module has ", named.size()));
  };
  read_all(module.named_parameters(), "parameter");
  read_all(module.named_buffers(), "buffer");
  std::vector<std::uint8_t> training;
  input(training);
  const auto modules = module.modules();
  for (std::size_t i = 0; i < std::min(training.size(), modules.size()); ++i)
    if (modules[i]->is_training() != (training[i] != 0)) modules[i]->train(training[i] != 0);
}

}  // namespace retinue::detail

#include "retinue/torch/state_dict.h"

#include <ATen/core/Tensor.h>
#include <c10/util/StringUtil.h>
#include <torch/utils.h>

#include "retinue/base/error.h"

namespace retinue {

StateDict state_dict(const torch::nn::Module& module) {
  StateDict dict;
  for (const auto& parameter : module.named_parameters()) dict.insert(parameter.key(), parameter.value().detach());
  for (const auto& buffer : module.named_buffers())
    if (buffer.value().defined()) dict.insert(buffer.key(), buffer.value().detach());
  return dict;
}

void load_state_dict(torch::nn::Module& module, const StateDict& dict) {
  const StateDict own = state_dict(module);
  std::string problems;
  const auto add = [&](const std::string& problem) { problems += (problems.empty() ? "" : "; ") + problem; };
  for (const auto& entry : own) {
    const at::Tensor* const given = dict.find(entry.key());
    if (given == nullptr) {
      add(c10::str("'", entry.key(), "' is missing"));
    } else if (!given->defined() || given->sizes() != entry.value().sizes()) {
      add(c10::str("'", entry.key(), "' has the shape ",
                   given->defined() ? c10::str(given->sizes()) : "of an undefined tensor", ", the module's has ",
                   entry.value().sizes()));
    }
  }
  for (const auto& entry : dict)
    if (!own.contains(entry.key())) add(c10::str("'", entry.key(), "' is not in the module"));
  if (!problems.empty()) throw UsageError("load_state_dict: the names or shapes do not match: " + problems);
  const torch::NoGradGuard no_grad;
  for (const auto& entry : own) at::Tensor(entry.value()).copy_(dict[entry.key()]);
}

}  // namespace retinue

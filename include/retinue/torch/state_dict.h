#pragma once

#include <torch/nn/module.h>
#include <torch/ordered_dict.h>

#include <string>

namespace retinue {

/// Parameters and buffers of a module by their names, in the module's order, as Python's state_dict() gives them.
using StateDict = torch::OrderedDict<std::string, at::Tensor>;

/// The module's own tensors, detached: they change when it trains. Clone what shall stay as it is now.
StateDict state_dict(const torch::nn::Module& module);

/// Copies the values into the module's parameters and buffers, in place.
/// Errors: UsageError, which names all that is missing, unexpected or of another shape, before anything is changed.
void load_state_dict(torch::nn::Module& module, const StateDict& dict);

}  // namespace retinue

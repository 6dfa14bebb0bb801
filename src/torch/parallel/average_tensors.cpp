#include "torch/parallel/average_tensors.h"

#include <map>
#include <utility>

namespace retinue {

void average_over_ranks(const std::vector<at::Tensor>& tensors, const ProcessGroup& group,
                        const std::source_location& where) {
  std::map<std::pair<at::ScalarType, at::DeviceType>, std::vector<at::Tensor>> groups;
  for (const at::Tensor& tensor : tensors)
    groups[{tensor.scalar_type(), tensor.device().type()}].push_back(tensor.detach());
  for (const auto& [type, of_type] : groups) all_reduce_coalesced(of_type, group, {.op = c10d::ReduceOp::AVG}, where);
}

}  // namespace retinue

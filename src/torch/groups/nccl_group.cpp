#include <ATen/ops/full.h>
#include <c10/util/StringUtil.h>

#include <cstdint>
#include <random>
#include <utility>

#include "retinue/store/hash_store.h"
#include "retinue/store/prefix_store.h"
#include "torch/groups/make_group.h"
#include "torch/groups/nccl_backend.h"

namespace retinue {
namespace {

/// The same on all ranks, and no other group's, of whatever job at the same store.
std::uint64_t agreed_number(TensorBackend& ranks, const CallSite& site) {
  std::random_device source;
  const auto own = static_cast<std::int64_t>((std::uint64_t{source()} << 32U) | source());
  const at::Tensor number = at::full({1}, own, at::kLong);
  ranks.broadcast(number, 0, {.async_op = false, .site = site.inside(OuterCall::kOpening)});
  return static_cast<std::uint64_t>(number.item<std::int64_t>());
}

}  // namespace

void add_nccl(const ProcessGroup& group, std::shared_ptr<Store> store, const CallSite& site) {
  TensorBackend& ours = *TensorBackend::of(*group);
  if (!store) store = std::make_shared<HashStore>();
  const auto own = std::make_shared<PrefixStore>(c10::str("nccl ", agreed_number(ours, site)), store);
  group->setBackend(
      c10::DeviceType::CUDA, c10d::ProcessGroup::NCCL,
      make_nccl_backend(own, ours.getRank(), ours.getSize(), ours.waits().timeout, group->getGroupName()));
  ours.keep_nccl_store(std::move(store));
}

}  // namespace retinue

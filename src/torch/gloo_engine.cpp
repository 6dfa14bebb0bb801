#include "torch/gloo_engine.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>

#include <algorithm>
#include <chrono>
#include <vector>

namespace retinue {
namespace {

/// Up to so many bytes in all every rank sends to each, which is one step; gloo's all_gather is a ring of p - 1.
constexpr std::size_t kGatheredAtOnce = std::size_t{64} << 10;

std::vector<std::int64_t> counts_of(std::span<const std::size_t> parts) {
  return {parts.begin(), parts.end()};
}

}  // namespace

at::Tensor tensor_of(ConstBytes bytes) {
  if (bytes.empty()) return at::empty({0}, at::kByte);
  return at::from_blob(const_cast<std::byte*>(bytes.data()), {static_cast<std::int64_t>(bytes.size())}, at::kByte);
}

template <typename Start>
void GlooEngine::run(Start start) {
  link_->peers().checked("", [&] { link_->begin(*gloo_, start)->wait(); });
}

void GlooEngine::all_gather(ConstBytes input, Bytes output) {
  if (output.size() <= kGatheredAtOnce) {
    const std::vector<std::size_t> parts(static_cast<std::size_t>(size_), input.size());
    std::vector<std::byte> copies;
    for (std::size_t i = 0; i < parts.size(); ++i) copies.insert(copies.end(), input.begin(), input.end());
    return all_to_all(copies, parts, output, parts);
  }
  at::Tensor from = tensor_of(input);
  at::Tensor to = tensor_of(output);
  c10d::AllgatherOptions options;
  options.timeout = timeout_;
  run([&](c10d::Backend& gloo) { return gloo._allgather_base(to, from, options); });
}

void GlooEngine::all_to_all(ConstBytes input, std::span<const std::size_t> input_parts, Bytes output,
                            std::span<const std::size_t> output_parts) {
  at::Tensor from = tensor_of(input);
  at::Tensor to = tensor_of(output);
  std::vector<std::int64_t> given = counts_of(input_parts);
  std::vector<std::int64_t> taken = counts_of(output_parts);
  c10d::AllToAllOptions options;
  options.timeout = timeout_;
  run([&](c10d::Backend& gloo) { return gloo.alltoall_base(to, from, taken, given, options); });
}

void GlooEngine::broadcast(Bytes data, int root) {
  std::vector<at::Tensor> tensors{tensor_of(data)};
  c10d::BroadcastOptions options;
  options.rootRank = root;
  options.timeout = timeout_;
  run([&](c10d::Backend& gloo) { return gloo.broadcast(tensors, options); });
}

void GlooEngine::set_timeout(std::chrono::nanoseconds timeout) {
  timeout_ = std::max(std::chrono::ceil<std::chrono::milliseconds>(timeout), std::chrono::milliseconds(1));
}

}  // namespace retinue

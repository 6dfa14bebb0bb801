#pragma once

#include <memory>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <utility>

#include "retinue/collective/engine.h"
#include "torch/gloo_peers.h"

namespace retinue {

/// Moves bytes by gloo.
class GlooEngine final : public Engine {
 public:
  GlooEngine(c10::intrusive_ptr<c10d::Backend> gloo, std::shared_ptr<const GlooPeers> peers)
      : gloo_(std::move(gloo)), peers_(std::move(peers)) {}

  void all_gather(ConstBytes input, Bytes output) override;
  void all_to_all(ConstBytes input, std::span<const std::size_t> input_parts, Bytes output,
                  std::span<const std::size_t> output_parts) override;
  void broadcast(Bytes data, int root) override;
  void set_timeout(std::chrono::nanoseconds timeout) override;

 private:
  template <typename Start>
  void run(Start start);

  c10::intrusive_ptr<c10d::Backend> gloo_;
  std::shared_ptr<const GlooPeers> peers_;
  std::chrono::milliseconds timeout_ = std::chrono::minutes(30);
};

/// The bytes as a tensor that doesn't own them.
at::Tensor tensor_of(ConstBytes bytes);

}  // namespace retinue

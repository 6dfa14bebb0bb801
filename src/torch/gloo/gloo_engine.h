#pragma once

#include <memory>
#include <utility>

#include "retinue/collective/engine.h"
#include "torch/gloo/gloo_link.h"

namespace retinue {

/// Moves bytes by gloo.
class GlooEngine final : public Engine {
 public:
  GlooEngine(std::shared_ptr<GlooLink> link, int size) : link_(std::move(link)), gloo_(link_->gloo()), size_(size) {}

  void all_gather(ConstBytes input, Bytes output) override;
  void all_to_all(ConstBytes input, std::span<const std::size_t> input_parts, Bytes output,
                  std::span<const std::size_t> output_parts) override;
  void broadcast(Bytes data, int root) override;
  void set_timeout(std::chrono::nanoseconds timeout) override;
  void look_while_waiting(const Look& look, const HasLeft& has_left) override {
    look_ = look;
    has_left_ = has_left;
  }
  void close() noexcept override;

 private:
  template <typename Start>
  void run(Start start);
  void await(c10d::Work& work);
  void look_for_lost_ranks(c10d::Work& work);

  std::shared_ptr<GlooLink> link_;
  c10::intrusive_ptr<c10d::Backend> gloo_;  ///< Of its own: a call goes on though the link was closed meanwhile.
  int size_;
  bool is_stuck_ = false;  ///< One of gloo's threads waits for a rank that is gone.
  Look look_ = [] { return std::chrono::hours(24); };
  HasLeft has_left_ = [](int) { return false; };
  std::chrono::milliseconds timeout_ = std::chrono::minutes(30);
};

/// The bytes as a tensor that doesn't own them.
at::Tensor tensor_of(ConstBytes bytes);

}  // namespace retinue

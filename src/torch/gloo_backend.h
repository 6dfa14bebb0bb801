#pragma once

#include <memory>
#include <string>

#include "retinue/collective/engine.h"
#include "retinue/collective/split.h"
#include "retinue/store/store.h"
#include "torch/gloo_peers.h"
#include "torch/shm_backend.h"
#include "torch/tensor_backend.h"

namespace retinue {

/// Where ranks meet that share no memory, or are not to.
struct GlooMeeting {
  std::shared_ptr<Store> store = nullptr;
  std::string name = {};
  int rank = 0;
  int size = 1;
  bool is_asked_for = false;  ///< By the user: parts of the group are not to share memory either.
};

/// CPU tensors between ranks of several hosts: gloo moves their bytes over TCP, Retinue's kernels reduce them, so that
/// results have the bits that ranks of one host would get.
class GlooBackend final : public TensorBackend {
 public:
  /// Blocking: until all ranks are connected, at most `waits.timeout`. Errors: UsageError, on all ranks, where some
  /// have an address that others can't reach; the store's; PeerLost, TimeoutError.
  GlooBackend(GlooMeeting meeting, const ShmBackend::Waits& waits);
  ~GlooBackend() override;

  /// The backend of a group if that is this one, else null.
  static GlooBackend* of(const c10d::ProcessGroup& group);

  const GlooMeeting& meeting() const { return meeting_; }
  ShmBackend::Waits waits() const;
  /// For a call that splits the group.
  detail::SplitParent split_parent(const CallSite& site);
  /// Of the part of that call of which this is the first rank.
  std::shared_ptr<Store> store_of_part(int first_rank) const;

  std::vector<WorkPtr> start(std::span<const TensorP2POp> messages, const CallMode& mode) override;
  int run(const TensorP2POp& message, const CallMode& mode) override;
  void monitored_barrier(const MonitoredBarrierOptions& options, const CallSite& site) override;
  const std::string getBackendName() const override { return "gloo"; }

 private:
  struct Connection {
    std::shared_ptr<const GlooPeers> peers;
    c10::intrusive_ptr<c10d::Backend> gloo;
  };
  static Connection connect(const GlooMeeting& meeting, std::chrono::milliseconds timeout);

  GlooBackend(GlooMeeting meeting, const ShmBackend::Waits& waits, Connection connection);
  std::exception_ptr first_message_error() const override { return nullptr; }
  void close_messages() override;

  GlooMeeting meeting_;
  ShmBackend::Waits waits_;
  Connection connection_;
  int splits_ = 0;  ///< So far: the same on all ranks.
};

}  // namespace retinue

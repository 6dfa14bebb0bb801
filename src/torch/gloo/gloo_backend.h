#pragma once

#include <sys/types.h>
#include <unistd.h>

#include <memory>
#include <string>

#include "retinue/collective/engine.h"
#include "retinue/collective/split.h"
#include "retinue/store/store.h"
#include "torch/backend/tensor_backend.h"
#include "torch/gloo/gloo_link.h"
#include "torch/gloo/gloo_messages.h"

namespace retinue {

/// Where ranks meet that share no memory, or are not to.
struct GlooMeeting {
  std::shared_ptr<Store> store = nullptr;
  std::string name = {};
  int rank = 0;
  int size = 1;
  bool is_asked_for = false;  ///< By the user: parts of the group are not to share memory either.
  CallSite site{"", 0};       ///< Of the user's call.
};

/// CPU tensors between ranks of several hosts: gloo moves their bytes over TCP, Retinue's kernels reduce them, so that
/// results have the bits that ranks of one host would get.
class GlooBackend final : public TensorBackend {
 public:
  /// Blocking: until all ranks are connected, at most to `deadline`. Errors: exchange_addresses()'s; PeerLost,
  /// TimeoutError.
  GlooBackend(const GlooMeeting& meeting, const Waits& waits, Deadline deadline);
  ~GlooBackend() override;

  /// The backend of a group if that is this one, else null.
  static GlooBackend* of(const c10d::ProcessGroup& group);

  const GlooMeeting& meeting() const { return meeting_; }
  /// For a call that splits the group.
  detail::SplitParent split_parent(const CallSite& site);
  /// Of the part of that call of which this is the first rank.
  std::shared_ptr<Store> store_of_part(int first_rank) const;
  /// No other's of this job. `name`: the user's, or empty.
  std::string name_of_part(const std::string& name, int first_rank) const;

  std::vector<WorkPtr> start(std::span<const TensorP2POp> messages, const CallMode& mode) override;
  int run(const TensorP2POp& message, const CallMode& mode) override;
  void shutdown() override;

 private:
  struct Opened {
    std::shared_ptr<Store> store;  ///< Of this group alone.
    std::shared_ptr<GlooLink> link;
    std::vector<std::string> processes;  ///< As EngineMembers has them.
  };
  static std::shared_ptr<OperationQueue> make_queue(const Opened& opened, const GlooMeeting& meeting,
                                                    const Waits& waits);
  static Opened open(const GlooMeeting& meeting, std::optional<std::chrono::nanoseconds> late_after, Deadline deadline);

  GlooBackend(GlooMeeting meeting, const Waits& waits, const Opened& opened);
  std::exception_ptr first_message_error() const override { return link_->first_message_error(); }
  void close_messages() override {
    messages_->close();
    link_->close();
  }

  const GlooMeeting meeting_;
  const std::shared_ptr<Store> store_;
  const std::shared_ptr<GlooLink> link_;
  const std::shared_ptr<GlooMessages> messages_;
  const pid_t owner_ = getpid();
  int splits_ = 0;  ///< So far, the same on all ranks.
};

}  // namespace retinue

#pragma once

#include <sys/types.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <torch/csrc/distributed/c10d/Work.hpp>
#include <utility>
#include <vector>

#include "retinue/torch/messages.h"
#include "torch/backend/tensor_buffer.h"
#include "torch/gloo/gloo_link.h"

namespace retinue {

/// The messages of a group by gloo, which ends a process that gets more bytes than it waits for, and leaves the end of
/// a buffer as it was for less. So two messages of gloo's make one: which number of its kind it is and how many bytes
/// there are, and then these, under a tag that says the same.
///
/// Receives of one rank take the bytes when they come, receives of any source when they are waited for.
/// Threads: any.
class GlooMessages : public std::enable_shared_from_this<GlooMessages> {
 public:
  using WorkPtr = c10::intrusive_ptr<c10d::Work>;

  GlooMessages(std::shared_ptr<GlooLink> link, int rank, int size) : link_(std::move(link)), rank_(rank), size_(size) {}

  /// Once, after which no message is begun.
  void close();

  /// Begins all of them, or, with a UsageError, none. Gives a work for each. `backend`: its name in the profiler.
  std::vector<WorkPtr> start(std::span<const TensorP2POp> messages, std::chrono::milliseconds timeout,
                             const CallSite& site, std::string_view backend);

 private:
  friend class GlooMessage;
  using Kind = std::pair<int, int>;  ///< Of whom, and of which tag.

  /// A receive of `peer`, or of any source, begins, and is over.
  std::int64_t begin_receive(int peer, int tag);
  void end_receive(int peer, int tag);
  void check_owner() const;
  void check_overlap(std::span<const TensorP2POp> messages) const;
  void keep(WorkPtr stale);

  const std::shared_ptr<GlooLink> link_;
  const int rank_;
  const int size_;
  const pid_t owner_ = getpid();

  mutable std::mutex mutex_;            ///< Guards what follows.
  std::map<Kind, std::int64_t> sent_;   ///< The number of the next, to each rank,
  std::map<Kind, std::int64_t> taken_;  ///< and from each rank.
  std::map<int, int> from_any_;         ///< Receives under way, by tag: of any source,
  std::map<int, int> from_one_;         ///< and of one rank.
  std::vector<WorkPtr> stale_;          ///< Receives of sizes that nobody sent, which gloo still looks at.
};

/// A message on its way. It must be kept until it was waited for.
class GlooMessage final : public c10d::Work {
 public:
  /// Begins it.
  GlooMessage(std::shared_ptr<GlooMessages> group, const TensorP2POp& message, TensorBuffer buffer, std::int64_t number,
              std::chrono::milliseconds timeout, const CallSite& site, const std::string& title);
  ~GlooMessage() override;

  bool wait(std::chrono::milliseconds timeout = kNoTimeout) override;
  bool isCompleted() override { return ended_.load(std::memory_order_acquire); }
  bool isSuccess() const override;
  int sourceRank() const override { return source_.load(std::memory_order_acquire); }
  std::vector<at::Tensor> result() override { return {message_.tensor}; }

 private:
  using WorkPtr = c10::intrusive_ptr<c10d::Work>;

  /// What comes first.
  struct Announcement {
    std::int64_t number = 0;
    std::int64_t bytes = 0;
    std::uint64_t hash = 0;  ///< Of the bytes: tags of data are hashes, and another message's may be the same.
  };

  bool sends() const { return message_.kind == P2POp::Kind::kSend; }
  /// As "recv from rank 1 (tag 0) at train.cpp:12".
  std::string name() const;
  WorkPtr begin(const at::Tensor& bytes, int peer, int tag) const;
  WorkPtr begin_data(const TensorBuffer& buffer, int peer, std::int64_t number) const;
  void finish(std::chrono::milliseconds timeout);
  void take_other_size(int peer, std::chrono::milliseconds timeout);
  void end();

  const std::shared_ptr<GlooMessages> group_;
  const TensorP2POp message_;
  const std::chrono::milliseconds timeout_;
  const CallSite site_;
  const TensorBuffer buffer_;
  Announcement announcement_;  ///< Where gloo reads or writes it.

  std::mutex waiting_;  ///< Guards the works and the error.
  WorkPtr announced_;
  WorkPtr data_;
  std::exception_ptr error_;
  std::atomic<bool> ended_{false};
  std::atomic<int> source_;
};

}  // namespace retinue

#pragma once

#include <sched.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>

#include "os/sync/cpu_relax.h"

namespace retinue::test {

/// How often members post at most, and how long: on a machine that does much else each post may take 100 ms.
struct Posts {
  int most;
  std::chrono::seconds duration;
};

/// Where ranks meet without sleeping, so that what they do next they do at once.
class Meeting {
 public:
  struct alignas(128) Place {
    std::atomic<std::uint64_t> came;
    std::atomic<std::uint64_t> last;
  };

  /// `places`: one per rank, zeroed.
  Meeting(Place* places, int rank, int size, Posts posts)
      : places_(places),
        rank_(rank),
        size_(size),
        most_(static_cast<std::uint64_t>(posts.most)),
        end_(std::chrono::steady_clock::now() + posts.duration) {}

  /// True until all have met often enough, at the same meeting for all. Throws where one of the others doesn't come: it
  /// sleeps, and all that it waits for has been posted.
  bool meet() {
    ++meetings_;
    if (rank_ == 0 && places_->last.load(std::memory_order_relaxed) == 0 &&
        (meetings_ > most_ || std::chrono::steady_clock::now() > end_))
      places_->last.store(meetings_, std::memory_order_relaxed);
    places_[rank_].came.store(meetings_, std::memory_order_release);
    await_all();
    // Rank 0 may have come to the next meeting already, and have called that the last.
    return places_->last.load(std::memory_order_relaxed) != meetings_;
  }

  int posts() const { return static_cast<int>(meetings_); }

 private:
  void await_all() const {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    for (int rank = 0; rank < size_; ++rank)
      for (int looks = 1; places_[rank].came.load(std::memory_order_acquire) < meetings_; ++looks) {
        cpu_relax();
        if (looks % 256 != 0) continue;
        sched_yield();
        if (std::chrono::steady_clock::now() > end)
          throw std::runtime_error("rank " + std::to_string(rank) + " sleeps on after post " +
                                   std::to_string(meetings_ - 1) + ": its wake-up was lost");
      }
  }

  Place* places_;
  int rank_;
  int size_;
  std::uint64_t most_;
  std::chrono::steady_clock::time_point end_;
  std::uint64_t meetings_ = 0;
};

}  // namespace retinue::test

#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "retinue/base/error.h"
#include "retinue/collective/communicator.h"

namespace retinue::test {

/// Where all come, or those that are not gone, before one goes on.
class ThreadMeeting {
 public:
  explicit ThreadMeeting(int size) : size_(size) {}

  /// Errors: TimeoutError.
  void arrive_and_wait(const Engine::Look& look, std::chrono::nanoseconds timeout) {
    const auto end = std::chrono::steady_clock::now() + timeout;
    std::unique_lock lock(mutex_);
    const int round = round_;
    ++here_;
    go_on_if_all();
    while (round_ == round) {
      lock.unlock();
      const auto next = std::chrono::steady_clock::now() + look();
      lock.lock();
      all_here_.wait_until(lock, std::min(next, end), [&] { return round_ != round; });
      if (round_ == round && std::chrono::steady_clock::now() >= end) throw TimeoutError("its timeout passed");
    }
  }

  void arrive_and_drop() {
    const std::lock_guard lock(mutex_);
    --size_;
    go_on_if_all();
  }

 private:
  void go_on_if_all() {
    if (here_ < size_) return;
    here_ = 0;
    ++round_;
    all_here_.notify_all();
  }

  std::mutex mutex_;
  std::condition_variable all_here_;
  int size_;
  int here_ = 0;
  int round_ = 0;
};

/// Moves bytes between threads, each of which is a rank. Fails the test where sizes don't fit.
class ThreadEngine final : public Engine {
 public:
  struct Shared {
    explicit Shared(int size) : meeting(size), inputs(static_cast<std::size_t>(size)), parts(inputs.size()) {}
    ThreadMeeting meeting;
    std::vector<ConstBytes> inputs;
    std::vector<std::vector<std::size_t>> parts;
  };

  ThreadEngine(std::shared_ptr<Shared> shared, int rank)
      : shared_(std::move(shared)), rank_(static_cast<std::size_t>(rank)) {}

  void all_gather(ConstBytes input, Bytes output) override {
    EXPECT_FALSE(input.empty());
    ASSERT_EQ(output.size(), input.size() * shared_->inputs.size());
    move(input, {}, [&](std::size_t from) {
      ASSERT_EQ(shared_->inputs[from].size(), input.size());
      take_bytes(output.data() + from * input.size(), shared_->inputs[from].data(), input.size());
    });
  }

  void all_to_all(ConstBytes input, std::span<const std::size_t> input_parts, Bytes output,
                  std::span<const std::size_t> output_parts) override {
    std::size_t at = 0;
    move(input, input_parts, [&](std::size_t from) {
      const std::vector<std::size_t>& parts = shared_->parts[from];
      std::size_t begin = 0;
      for (std::size_t i = 0; i < rank_; ++i) begin += parts[i];
      ASSERT_EQ(parts[rank_], output_parts[from]);
      ASSERT_LE(at + parts[rank_], output.size());
      ASSERT_LE(begin + parts[rank_], shared_->inputs[from].size());
      if (parts[rank_] > 0) take_bytes(output.data() + at, shared_->inputs[from].data() + begin, parts[rank_]);
      at += parts[rank_];
    });
    EXPECT_EQ(at, output.size());
  }

  void broadcast(Bytes data, int root) override {
    EXPECT_FALSE(data.empty());
    move(data, {}, [&](std::size_t from) {
      ASSERT_EQ(shared_->inputs[from].size(), data.size());
      if (from == static_cast<std::size_t>(root) && from != rank_)
        std::memcpy(data.data(), shared_->inputs[from].data(), data.size());
    });
  }

  void set_timeout(std::chrono::nanoseconds timeout) override { timeout_ = timeout; }
  void look_while_waiting(const Look& look, const HasLeft& /*has_left*/) override { look_ = look; }

 private:
  /// What is in place already others may be reading.
  static void take_bytes(std::byte* to, const std::byte* from, std::size_t bytes) {
    if (to != from) std::memcpy(to, from, bytes);
  }

  template <typename Take>
  void move(ConstBytes input, std::span<const std::size_t> parts, Take take) {
    shared_->inputs[rank_] = input;
    shared_->parts[rank_] = {parts.begin(), parts.end()};
    shared_->meeting.arrive_and_wait(look_, timeout_);
    for (std::size_t from = 0; from < shared_->inputs.size(); ++from) take(from);
    shared_->meeting.arrive_and_wait(look_, timeout_);
  }

  std::shared_ptr<Shared> shared_;
  std::size_t rank_;
  Look look_ = [] { return std::chrono::hours(1); };
  std::chrono::nanoseconds timeout_{0};
};

/// Runs `body` on `size` threads that are the ranks of a group. `members`: of all but rank and size.
inline void run_engine_ranks(int size, const std::function<void(Communicator&)>& body, EngineMembers members = {},
                             const CommunicatorOptions& options = {}) {
  const auto shared = std::make_shared<ThreadEngine::Shared>(size);
  members.name = "of threads";
  members.size = size;
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank)
    threads.emplace_back([&, rank, members]() mutable {
      members.rank = rank;
      try {
        Communicator group(std::make_unique<ThreadEngine>(shared, rank), members, options);
        body(group);
      } catch (const std::exception& error) {
        ADD_FAILURE() << "rank " << rank << ": " << error.what();
        shared->meeting.arrive_and_drop();
      }
    });
  for (std::thread& thread : threads) thread.join();
}

}  // namespace retinue::test

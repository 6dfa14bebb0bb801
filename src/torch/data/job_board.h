#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "retinue/torch/detail/batch_source.h"

namespace retinue {

/// A batch that a loader wants from its workers.
struct BoardJob {
  enum Phase : std::uint32_t { kFree, kReady, kTaken, kDone, kFailed };
  static constexpr std::uint32_t kWorkerShift = 8;
  static constexpr std::size_t kErrorBytes = 1500;

  std::atomic<std::uint32_t> state;  ///< The phase and, when taken, its worker, in one word: a death can't part them.
  std::atomic<std::uint32_t> position;  ///< The item that its worker is in.
  std::atomic<std::uint64_t> number;    ///< The batch's, of all that the loader ever wanted.
  std::uint32_t count;
  std::uint32_t failed_worker;
  bool is_usage_error;
  std::int64_t epoch;
  std::uint64_t seed;
  ItemMemory memory;
  char error[kErrorBytes];

  Phase phase() const { return static_cast<Phase>(state.load(std::memory_order_acquire) & 0xffu); }
  bool is_taken_by(std::size_t worker) const {
    return state.load(std::memory_order_acquire) == (kTaken | static_cast<std::uint32_t>(worker) << kWorkerShift);
  }
};

/// The jobs of a loader's workers, in memory that forks share. Threads and processes use it in the same way.
class JobBoard {
 public:
  /// Room for `jobs` batches of `batch_size` indices. Errors: SystemError.
  JobBoard(std::size_t jobs, std::size_t batch_size);

  std::span<BoardJob> jobs() const { return {jobs_, job_count_}; }
  std::span<std::size_t> indices(const BoardJob& job) const;

  /// Lets a worker take the job; the loader has filled it.
  void post(BoardJob& job);
  /// Takes a job back that no worker has taken. False: one has.
  static bool withdraw(BoardJob& job);
  /// Waits until the job is done or has failed, or `wait` is over.
  void await(BoardJob& job, std::chrono::milliseconds wait);
  /// Jobs that are under way are left unfinished until let_work(): their batches aren't wanted any more.
  void stop_work() { header_->stops.store(1); }
  void let_work() { header_->stops.store(0); }
  /// Workers return from work().
  void end_work();

  /// Loads batches until end_work(), or until `is_orphan`, which is called each second of idleness.
  void work(std::size_t worker, detail::BatchSource& source, const ItemLayout& layout, bool seeds_torch,
            const std::function<bool()>& is_orphan);

 private:
  struct Header {
    std::atomic<std::uint32_t> posted;    ///< A futex: counts jobs.
    std::atomic<std::uint32_t> idle;      ///< Workers that sleep there.
    std::atomic<std::uint32_t> finished;  ///< A futex: counts jobs that are done or have failed.
    std::atomic<std::uint32_t> ends;      ///< Workers return.
    std::atomic<std::uint32_t> stops;     ///< Workers leave their jobs unfinished.
    std::atomic<std::uint64_t> wanted;    ///< The number of the job that the loader waits for.
  };
  struct Unmap {
    std::size_t bytes;
    void operator()(std::byte* memory) const;
  };

  BoardJob* take(std::size_t worker);
  void load(BoardJob& job, std::size_t worker, detail::BatchSource& source, const ItemLayout& layout, bool seeds_torch);

  std::size_t job_count_;
  std::size_t batch_size_;
  std::unique_ptr<std::byte, Unmap> memory_;
  Header* header_;
  BoardJob* jobs_;
  std::size_t* indices_;
};

}  // namespace retinue

#include <ATen/CPUGeneratorImpl.h>
#include <c10/util/StringUtil.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <utility>

#include "retinue/os/detail/late_after.h"
#include "retinue/os/detail/standard_error.h"
#include "retinue/torch/data_loader.h"
#include "torch/data/batch_buffers.h"
#include "torch/data/job_board.h"
#include "torch/data/loader_options.h"
#include "torch/data/worker_processes.h"

namespace retinue::detail {
namespace {

using Clock = std::chrono::steady_clock;

/// Between two looks at worker processes, which may have died without a word.
constexpr std::chrono::milliseconds kLookForDeaths{20};
/// For an item whose batch nobody wants any more, in a worker process.
constexpr std::chrono::seconds kGraceOfDropped{5};
constexpr std::string_view kSource = "DataLoader: ";     // Errors begin with it.
constexpr std::chrono::hours kLongestTimeout{24 * 365};  // A sum with the clock must not overflow.

/// Leaves LibTorch's generator as it was: a loader must not change what a program draws.
class KeptTorchGenerator {
 public:
  KeptTorchGenerator() : generator_(at::detail::getDefaultCPUGenerator()), kept_(generator_.clone()) {}
  ~KeptTorchGenerator() { generator_.set_state(kept_.get_state()); }
  KeptTorchGenerator(const KeptTorchGenerator&) = delete;
  KeptTorchGenerator& operator=(const KeptTorchGenerator&) = delete;

 private:
  at::Generator generator_;
  at::Generator kept_;
};

ItemLayout learn_layout(BatchSource& source, const DataLoaderOptions& options) {
  if (source.size() == std::size_t{0}) return {};
  const KeptTorchGenerator kept;
  return source.layout(0, ItemGenerator(options.seed));
}

}  // namespace

class LoaderEngine::Impl {
 public:
  Impl(std::unique_ptr<BatchSource> source, const DataLoaderOptions& options)
      : options_(options),
        late_after_(late_after_of(options.late_after)),
        source_(std::move(source)),
        layout_(learn_layout(*source_, options)),
        prefetch_(options.prefetch != 0 ? options.prefetch : std::max<std::size_t>(2 * options.workers, 1)),
        buffers_(layout_, options.batch_size, prefetch_ + 1),
        board_(options.workers == 0 ? 1 : prefetch_, options.batch_size),
        places_(board_.jobs().size()) {
    if (options.workers == 0) return;
    const bool forks = options.kind == WorkerKind::kProcesses;
    if (forks) {
      processes_ = std::make_unique<WorkerProcesses>(
          options.workers, [this](std::size_t worker, const std::function<bool()>& is_orphan) {
            board_.work(worker, *source_, layout_, true, is_orphan);
          });
      return;
    }
    for (std::size_t worker = 0; worker < options.workers; ++worker) sources_.push_back(source_->copy());
    try {
      for (std::size_t worker = 0; worker < options.workers; ++worker)
        threads_.emplace_back(
            [this, worker] { board_.work(worker, *sources_[worker], layout_, false, [] { return false; }); });
    } catch (...) {
      end_threads();
      throw;
    }
  }

  ~Impl() { end_threads(); }
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  std::size_t begin_pass(std::optional<std::int64_t> epoch, NextIndices next_indices) {
    is_failed_ = true;  // Until the new pass has begun.
    drop_jobs();
    if (processes_) processes_->replace_ended();
    next_indices_ = std::move(next_indices);
    epoch_ = epoch.value_or(static_cast<std::int64_t>(pass_));
    consumed_ = 0;
    is_sampler_empty_ = false;
    is_failed_ = false;
    return ++pass_;
  }

  std::optional<Batch> next(std::size_t pass) {
    if (pass != pass_) throw UsageError("DataLoader: this iterator's pass has ended, because begin() was called again");
    if (is_failed_) return std::nullopt;
    try {
      post_jobs();
      if (next_number_ == posted_number_) return std::nullopt;
      Place& place = place_of(next_number_);
      if (options_.workers == 0)
        load_here(place);
      else
        await(place);
      return hand_out(place);
    } catch (...) {
      is_failed_ = true;
      throw;
    }
  }

  std::size_t consumed() const noexcept { return consumed_; }
  std::vector<int> worker_pids() const { return processes_ ? processes_->pids() : std::vector<int>(); }
  std::optional<std::size_t> dataset_size() const { return source_->size(); }

 private:
  /// A batch between its sampler and the loop, on the board.
  struct Place {
    BoardJob* job = nullptr;
    BatchBuffers::Buffer* buffer = nullptr;
    std::vector<std::uint32_t> deaths = {};  ///< Items that workers died in.
  };

  Place& place_of(std::uint64_t number) {
    const std::size_t index = number % places_.size();
    places_[index].job = &board_.jobs()[index];
    return places_[index];
  }

  void post_jobs() {
    while (!is_sampler_empty_ && posted_number_ - next_number_ < places_.size()) {
      const auto indices = next_indices_();
      if (!indices || indices->empty()) {
        is_sampler_empty_ = true;
        return;
      }
      if (indices->size() > options_.batch_size)
        throw UsageError(c10::str("DataLoader: the sampler gave ", indices->size(), " indices for a batch of ",
                                  options_.batch_size));
      Place& place = place_of(posted_number_);
      BatchBuffers::Buffer& buffer = buffers_.take();
      place = {place.job, &buffer, {}};
      BoardJob& job = *place.job;
      job.number.store(posted_number_, std::memory_order_relaxed);
      job.count = static_cast<std::uint32_t>(indices->size());
      job.epoch = epoch_;
      job.seed = options_.seed;
      job.memory = buffer.memory();
      std::copy(indices->begin(), indices->end(), board_.indices(job).begin());
      ++posted_number_;
      if (options_.workers != 0) board_.post(job);
    }
  }

  void load_here(Place& place) {
    static const std::atomic<std::uint32_t> goes_on{0};
    BoardJob& job = *place.job;
    source_->load({board_.indices(job), job.seed, job.epoch, job.memory, job.position, goes_on}, layout_);
  }

  void await(Place& place) {
    const Clock::time_point start = Clock::now();
    std::chrono::nanoseconds report_after = std::min<std::chrono::nanoseconds>(late_after_, kLongestTimeout);
    for (;;) {
      const BoardJob::Phase phase = place.job->phase();
      if (phase == BoardJob::kDone) return;
      if (phase == BoardJob::kFailed) throw_failure(*place.job);
      replace_dead();
      const std::chrono::nanoseconds waited = Clock::now() - start;
      std::chrono::nanoseconds wait = processes_ ? kLookForDeaths : std::chrono::seconds(1);
      if (options_.timeout.count() > 0) {
        const auto left = std::min<std::chrono::milliseconds>(options_.timeout, kLongestTimeout) - waited;
        if (left.count() <= 0) throw_late(*place.job);
        wait = std::min(wait, left);
      }
      if (report_after.count() > 0) {
        if (waited >= report_after) {
          report_late(*place.job, waited);
          report_after = 2 * waited;
        }
        wait = std::min(wait, report_after - waited);
      }
      board_.await(*place.job, std::chrono::ceil<std::chrono::milliseconds>(wait));
    }
  }

  std::string name_of(std::size_t worker) const {
    if (!processes_) return c10::str("worker ", worker, " (a thread)");
    return c10::str("worker ", worker, " (process ", processes_->pids()[worker], ")");
  }

  [[noreturn]] void throw_failure(const BoardJob& job) const {
    const std::size_t index = board_.indices(job)[job.position];
    std::string_view why = job.error;
    if (why.starts_with(kSource)) why.remove_prefix(kSource.size());
    const std::string text = c10::str(kSource, name_of(job.failed_worker), " failed to load item ", index, ": ", why);
    if (job.is_usage_error) throw UsageError(text);
    throw DataLoaderError(text, job.failed_worker, index);
  }

  std::string state_of(const BoardJob& job) const {
    const std::uint32_t state = job.state.load();
    if ((state & 0xffu) != BoardJob::kTaken) return "no worker has begun it";
    return c10::str(name_of(state >> BoardJob::kWorkerShift), " is in item ", board_.indices(job)[job.position]);
  }

  [[noreturn]] void throw_late(const BoardJob& job) const {
    throw TimeoutError(c10::str("DataLoader: a batch took longer than the timeout of ", options_.timeout.count(),
                                " ms: ", state_of(job)));
  }

  void report_late(const BoardJob& job, std::chrono::nanoseconds waited) const {
    const double seconds = std::round(std::chrono::duration<double>(waited).count() * 10) / 10;
    write_standard_error(
        c10::str("retinue: DataLoader: the loop has waited ", seconds, " s for a batch: ", state_of(job), "\n"));
  }

  /// Replaces worker processes that have died, and lets others load what they had begun.
  void replace_dead() {
    if (!processes_) return;
    while (const auto death = processes_->find_death()) {
      const std::string who =
          c10::str("data loader worker ", death->worker, " (process ", death->pid, ") ", death->how);
      const auto taken = std::find_if(places_.begin(), places_.end(), [&](const Place& place) {
        return place.job != nullptr && place.job->is_taken_by(death->worker);
      });
      if (taken == places_.end()) {
        write_standard_error("retinue: " + who + "; another process replaces it\n");
        processes_->replace_ended();
        continue;
      }
      const std::uint32_t position = taken->job->position.load();
      const std::size_t index = board_.indices(*taken->job)[position];
      const bool is_second = std::count(taken->deaths.begin(), taken->deaths.end(), position) != 0;
      taken->deaths.push_back(position);
      taken->job->state.store(BoardJob::kFree);  // First: nobody has it any more, even if no process can be started.
      processes_->replace_ended();
      if (is_second)
        throw DataLoaderError(c10::str("DataLoader: ", who, " in item ", index,
                                       ", where the worker before it died too: look at that item, or whether the "
                                       "machine has enough memory"),
                              death->worker, index);
      write_standard_error(
          c10::str("retinue: ", who, " in item ", index, "; another process replaces it and loads the batch again\n"));
      board_.post(*taken->job);
    }
  }

  Batch hand_out(Place& place) {
    place.job->state.store(BoardJob::kFree);
    consumed_ += place.job->count;
    ++next_number_;
    BatchBuffers::Buffer* const buffer = std::exchange(place.buffer, nullptr);
    return buffers_.hand_out(*buffer, place.job->count);
  }

  /// Ends the pass: takes back what workers haven't begun, and waits for what they have.
  void drop_jobs() {
    board_.stop_work();
    for (Place& place : places_) {
      if (place.buffer == nullptr) continue;
      if (!JobBoard::withdraw(*place.job)) await_end(*place.job);
      place.job->state.store(BoardJob::kFree);
      BatchBuffers::put_back(*std::exchange(place.buffer, nullptr));
    }
    next_number_ = posted_number_;
    board_.let_work();
  }

  /// Waits for a dropped job's worker. A process that takes long is killed.
  void await_end(BoardJob& job) {
    const Clock::time_point start = Clock::now();
    while (job.phase() == BoardJob::kTaken) {
      board_.await(job, kLookForDeaths);
      if (!processes_) continue;
      const std::uint32_t state = job.state.load();
      if ((state & 0xffu) == BoardJob::kTaken && Clock::now() - start > kGraceOfDropped)
        processes_->kill_worker(state >> BoardJob::kWorkerShift);
      while (const auto death = processes_->find_death())
        for (BoardJob& each : board_.jobs())
          if (each.is_taken_by(death->worker)) each.state.store(BoardJob::kFree);
    }
  }

  void end_threads() {
    board_.end_work();
    for (std::thread& thread : threads_) thread.join();
    threads_.clear();
  }

  DataLoaderOptions options_;
  std::chrono::nanoseconds late_after_;
  std::unique_ptr<BatchSource> source_;
  ItemLayout layout_;
  std::size_t prefetch_;
  BatchBuffers buffers_;
  JobBoard board_;
  std::vector<Place> places_;
  NextIndices next_indices_;
  std::int64_t epoch_ = 0;
  std::size_t pass_ = 0;
  std::size_t consumed_ = 0;
  bool is_sampler_empty_ = true;
  bool is_failed_ = false;
  std::uint64_t posted_number_ = 0;
  std::uint64_t next_number_ = 0;
  std::vector<std::unique_ptr<BatchSource>> sources_;  ///< The threads'.
  std::vector<std::thread> threads_;
  std::unique_ptr<WorkerProcesses> processes_;
};

LoaderEngine::LoaderEngine(std::unique_ptr<BatchSource> source, const DataLoaderOptions& options)
    : impl_((check_options(options), std::make_unique<Impl>(std::move(source), options))) {}
LoaderEngine::~LoaderEngine() = default;

std::size_t LoaderEngine::begin_pass(std::optional<std::int64_t> epoch, NextIndices next_indices) {
  return impl_->begin_pass(epoch, std::move(next_indices));
}
std::optional<LoaderEngine::Batch> LoaderEngine::next(std::size_t pass) {
  return impl_->next(pass);
}
std::size_t LoaderEngine::consumed() const noexcept {
  return impl_->consumed();
}
std::vector<int> LoaderEngine::worker_pids() const {
  return impl_->worker_pids();
}
std::optional<std::size_t> LoaderEngine::dataset_size() const {
  return impl_->dataset_size();
}

}  // namespace retinue::detail

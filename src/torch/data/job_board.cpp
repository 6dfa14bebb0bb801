#include "torch/data/job_board.h"

#include <ATen/CPUGeneratorImpl.h>
#include <c10/util/Type.h>
#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <ctime>
#include <exception>
#include <limits>
#include <new>
#include <typeinfo>

#include "retinue/base/error.h"

namespace retinue {
namespace {

constexpr std::chrono::seconds kLookForLoader{1};

void sleep_at(std::atomic<std::uint32_t>& word, std::uint32_t seen, std::chrono::milliseconds longest) {
  const timespec time{longest.count() / 1000, longest.count() % 1000 * 1'000'000};
  syscall(SYS_futex, &word, FUTEX_WAIT, seen, &time, nullptr, 0);
}

void wake(std::atomic<std::uint32_t>& word, int most) {
  syscall(SYS_futex, &word, FUTEX_WAKE, most, nullptr, nullptr, 0);
}

std::size_t rounded_up(std::size_t bytes) {
  constexpr std::size_t kLine = 64;
  return (bytes + kLine - 1) / kLine * kLine;
}

void put_error(BoardJob& job, const std::string& text) {
  const std::size_t length = std::min(text.size(), BoardJob::kErrorBytes - 1);
  std::memcpy(job.error, text.data(), length);
  job.error[length] = '\0';
}

}  // namespace

void JobBoard::Unmap::operator()(std::byte* memory) const {
  munmap(memory, bytes);
}

JobBoard::JobBoard(std::size_t jobs, std::size_t batch_size) : job_count_(jobs), batch_size_(batch_size) {
  const std::size_t head = rounded_up(sizeof(Header));
  const std::size_t records = rounded_up(jobs * sizeof(BoardJob));
  const std::size_t bytes = head + records + jobs * batch_size * sizeof(std::size_t);
  void* const memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) throw SystemError("make_data_loader: mapping memory for the workers' jobs", errno);
  memory_ = {static_cast<std::byte*>(memory), Unmap{bytes}};
  header_ = new (memory_.get()) Header{};
  jobs_ = reinterpret_cast<BoardJob*>(memory_.get() + head);
  for (std::size_t i = 0; i < jobs; ++i) new (jobs_ + i) BoardJob{};
  indices_ = reinterpret_cast<std::size_t*>(memory_.get() + head + records);
}

std::span<std::size_t> JobBoard::indices(const BoardJob& job) const {
  return {indices_ + static_cast<std::size_t>(&job - jobs_) * batch_size_, job.count};
}

void JobBoard::post(BoardJob& job) {
  job.position.store(0, std::memory_order_relaxed);
  job.state.store(BoardJob::kReady, std::memory_order_seq_cst);
  header_->posted.fetch_add(1, std::memory_order_seq_cst);
  if (header_->idle.load(std::memory_order_seq_cst) != 0) wake(header_->posted, 1);
}

bool JobBoard::withdraw(BoardJob& job) {
  std::uint32_t ready = BoardJob::kReady;
  return job.state.compare_exchange_strong(ready, BoardJob::kFree);
}

void JobBoard::await(BoardJob& job, std::chrono::milliseconds wait) {
  header_->wanted.store(job.number.load(std::memory_order_relaxed), std::memory_order_seq_cst);
  const std::uint32_t seen = header_->finished.load(std::memory_order_seq_cst);
  const BoardJob::Phase phase = job.phase();
  if (phase != BoardJob::kDone && phase != BoardJob::kFailed) sleep_at(header_->finished, seen, wait);
}

void JobBoard::end_work() {
  header_->stops.store(1);
  header_->ends.store(1);
  header_->posted.fetch_add(1);
  wake(header_->posted, std::numeric_limits<int>::max());
}

BoardJob* JobBoard::take(std::size_t worker) {
  for (;;) {
    BoardJob* first = nullptr;
    std::uint64_t lowest = 0;
    for (BoardJob& job : jobs()) {
      const std::uint64_t number = job.number.load(std::memory_order_relaxed);
      if (job.phase() == BoardJob::kReady && (first == nullptr || number < lowest)) {
        first = &job;
        lowest = number;
      }
    }
    if (first == nullptr) return nullptr;
    std::uint32_t ready = BoardJob::kReady;
    if (first->state.compare_exchange_strong(ready, BoardJob::kTaken | static_cast<std::uint32_t>(worker)
                                                                           << BoardJob::kWorkerShift))
      return first;
  }
}

void JobBoard::load(BoardJob& job, std::size_t worker, detail::BatchSource& source, const ItemLayout& layout,
                    bool seeds_torch) {
  BoardJob::Phase end = BoardJob::kDone;
  try {
    const std::span<const std::size_t> indices = this->indices(job);
    if (seeds_torch) {
      at::Generator generator = at::detail::getDefaultCPUGenerator();
      generator.set_current_seed(ItemGenerator(job.seed, job.epoch, indices.front())());
    }
    source.load({indices, job.seed, job.epoch, job.memory, job.position, header_->stops}, layout);
  } catch (const std::exception& error) {
    job.is_usage_error = dynamic_cast<const UsageError*>(&error) != nullptr;
    put_error(job, job.is_usage_error ? error.what() : c10::demangle(typeid(error).name()) + ": " + error.what());
    end = BoardJob::kFailed;
  } catch (...) {
    job.is_usage_error = false;
    put_error(job, "something that is no std::exception");
    end = BoardJob::kFailed;
  }
  job.failed_worker = static_cast<std::uint32_t>(worker);
  const std::uint64_t number = job.number.load(std::memory_order_relaxed);
  job.state.store(end, std::memory_order_seq_cst);
  header_->finished.fetch_add(1, std::memory_order_seq_cst);
  if (header_->wanted.load(std::memory_order_seq_cst) == number) wake(header_->finished, 1);
}

void JobBoard::work(std::size_t worker, detail::BatchSource& source, const ItemLayout& layout, bool seeds_torch,
                    const std::function<bool()>& is_orphan) {
  while (header_->ends.load() == 0) {
    const std::uint32_t seen = header_->posted.load(std::memory_order_seq_cst);
    if (BoardJob* const job = take(worker)) {
      load(*job, worker, source, layout, seeds_torch);
      continue;
    }
    if (header_->ends.load() != 0 || is_orphan()) return;
    header_->idle.fetch_add(1, std::memory_order_seq_cst);
    sleep_at(header_->posted, seen, kLookForLoader);
    header_->idle.fetch_sub(1, std::memory_order_seq_cst);
  }
}

}  // namespace retinue

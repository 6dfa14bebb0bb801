#pragma once

#include <chrono>
#include <cstdint>
#include <exception>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <torch/csrc/distributed/c10d/Work.hpp>
#include <utility>
#include <vector>

namespace retinue {

/// Under which LibTorch's profiler, or another observer of its, shows an operation, as "shm:all_reduce"; empty while
/// none looks at what this thread does.
std::string profiler_title(std::string_view backend, std::string_view operation);

/// What it shows of the operation besides: nothing of one without a title.
std::optional<std::vector<at::Tensor>> shown_tensors(const std::string& title, at::TensorList tensors);

/// An operation of ShmBackend on its way. Its future is a list of tensors, as c10d's Reducer expects.
class ShmWork : public c10d::Work {
 public:
  /// `title`: profiler_title(), with the shapes of `inputs`, or of `outputs` if there are none.
  ShmWork(int rank, c10d::OpType type, std::vector<at::Tensor> outputs, std::uint64_t sequence,
          const std::string& title = {}, at::TensorList inputs = {});

  /// Who waits makes the operation itself, as far as that is possible: `help` is called first by every wait() without a
  /// limit.
  void help_by(std::function<void(ShmWork&)> help) { help_ = std::move(help); }
  /// Errors: the operation's; TimeoutError when `timeout` has passed, and SystemError when a signal interrupts the
  /// wait: the operation goes on.
  bool wait(std::chrono::milliseconds timeout = kNoTimeout) override;

  /// Of a wait that was given `timeout`.
  bool wait_until(std::chrono::steady_clock::time_point end, std::chrono::milliseconds timeout);

  /// Ends the work and wakes those who wait. Called once. Future callbacks run on the calling thread.
  void complete(std::exception_ptr error);

  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override;
  std::vector<at::Tensor> result() override { return outputs_; }
  std::uint64_t getSequencenumber() const override { return sequence_; }

 private:
  const std::vector<at::Tensor> outputs_;
  const std::uint64_t sequence_;
  std::function<void(ShmWork&)> help_;

  /// Returns whether it has ended; at the latest at `end`. Errors: SystemError if a signal interrupts the wait.
  bool await_end(std::chrono::steady_clock::time_point end);

  // Guarded by Work's mutex.
  c10::intrusive_ptr<c10::ivalue::Future> future_;  ///< Made when first asked for.
  bool settled_ = false;
  std::exception_ptr error_;
};

}  // namespace retinue

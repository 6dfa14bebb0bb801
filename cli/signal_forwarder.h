#pragma once

#include <signal.h>

#include <atomic>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include "retinue/launch/process_context.h"

namespace retinue {

/// Takes the signals meant for this command on a thread of its own and passes them to the ranks.
///
/// Signals that end the job begin the stop policy, as its first signal; a second one kills. SIGTSTP stops the ranks and
/// then this process, so that a shell sees the job stopped. Signals that were ignored, as by nohup, stay ignored.
/// Made before the ranks: from then on no signal is lost.
class SignalForwarder {
 public:
  explicit SignalForwarder(std::vector<int> ending_signals);
  ~SignalForwarder();

  /// The signal that asked for the end; 0 if none did.
  int ended_by() const { return ended_by_; }

  /// Starts ranks. While it lives, signals go to them; those that came before, while they started too, go to them now.
  class Receiver {
   public:
    /// Errors: what `start` throws.
    Receiver(SignalForwarder& forwarder, const std::function<ProcessContext()>& start);
    ~Receiver();
    Receiver(const Receiver&) = delete;
    Receiver& operator=(const Receiver&) = delete;

    ProcessContext& ranks() { return ranks_; }

   private:
    SignalForwarder& forwarder_;
    ProcessContext ranks_;
  };

 private:
  void serve();
  /// False: the ranks, which start now, get it later.
  bool pass_on(int signal);
  void keep(int signal);
  ProcessContext start_ranks(const std::function<ProcessContext()>& start);
  bool ends(int signal) const;

  std::vector<int> ending_signals_;
  sigset_t signals_;
  std::mutex mutex_;
  ProcessContext* ranks_ = nullptr;  ///< Guarded by mutex_.
  bool is_starting_ = false;         ///< As are these.
  std::vector<int> early_signals_;   ///< That came while there were no ranks.
  std::atomic<int> ended_by_ = 0;
  std::atomic<bool> is_over_ = false;
  std::thread thread_;
};

}  // namespace retinue

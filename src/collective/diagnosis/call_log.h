#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string_view>

#include "collective/call/call.h"
#include "ipc/records/flight_recorder.h"
#include "retinue/collective/message.h"
#include "retinue/ipc/job_group.h"

namespace retinue {

/// What one communicator tells the flight recorder of its process: its collectives and its messages.
///
/// Threads: one at a time.
class CallLog {
 public:
  explicit CallLog(const JobGroup& group);
  ~CallLog();
  CallLog(const CallLog&) = delete;
  CallLog& operator=(const CallLog&) = delete;

  /// From here on collectives are recorded; `calls_before` were no user's.
  void open(std::uint64_t calls_before) {
    calls_before_ = calls_before;
    is_open_ = recorder_ != nullptr;
  }

  /// When a call begins; 0 where nothing is recorded.
  std::uint64_t now() const { return is_open_ ? TickClock::now() : 0; }
  /// The communicator's next collective, once its line is published: what is written here others need not wait for.
  void begin(const Call& call, std::uint64_t sequence, std::uint64_t started);
  /// Of that collective.
  void end() { collective_.end(); }
  void fail() { collective_.fail(); }

  /// A message that is not done yet.
  RecordedCallEnd begin(const P2POp& message, const CallSite& site, std::uint64_t started);
  /// One that is.
  void add(const P2POp& message, const CallSite& site, std::uint64_t started);

 private:
  /// The number of a site that was asked for before stands here.
  struct KnownSite {
    const char* file = nullptr;
    unsigned line = 0;
    std::uint32_t number = 0;
  };

  CallFacts facts_of(const P2POp& message, const CallSite& site, std::uint64_t started);
  std::uint32_t find_site(const CallSite& site);

  std::shared_ptr<FlightRecorder> recorder_;
  std::uint16_t group_ = 0;
  int size_;
  bool is_open_ = false;
  std::uint64_t calls_before_ = 0;
  std::uint64_t messages_ = 0;
  RecordedCallEnd collective_;
  std::array<KnownSite, 32> sites_;
};

}  // namespace retinue

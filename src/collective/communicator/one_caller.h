#pragma once

#include <pthread.h>

#include <atomic>
#include <cstdint>
#include <string>
#include <utility>

#include "retinue/collective/call.h"

namespace retinue {

/// Notices a second thread in a communicator, where one at a time may be.
class OneCaller {
 public:
  explicit OneCaller(std::string group) : group_(std::move(group)) {}

  /// A thread's call, from its begin to its end. A call in a call of the same thread, as callbacks make, is part of it.
  class Scope {
   public:
    Scope(OneCaller& callers, CollectiveKind kind, const CallSite& site) : Scope(callers, {nullptr, kind, site}) {}
    /// `name`: a literal, as "send".
    Scope(OneCaller& callers, const char* name, const CallSite& site)
        : Scope(callers, {name, CollectiveKind::kNone, site}) {}
    ~Scope() {
      if (callers_ != nullptr) callers_->caller_.store(kNobody, std::memory_order_release);
    }
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    struct What {
      const char* name;  ///< Null: `kind` says it.
      CollectiveKind kind;
      const CallSite& site;
    };

    Scope(OneCaller& callers, const What& what) : callers_(callers.enter(what) ? &callers : nullptr) {}

    OneCaller* callers_;

    friend OneCaller;
  };

 private:
  static constexpr std::uintptr_t kNobody = 0;
  static constexpr std::uintptr_t kDescribed = 1;  ///< Set when the fields below are the caller's.

  /// Whether this thread was not in already. Errors: UsageError where another thread is.
  bool enter(const Scope::What& what) {
    const auto own = static_cast<std::uintptr_t>(pthread_self());  // An address.
    std::uintptr_t caller = kNobody;
    if (!caller_.compare_exchange_strong(caller, own, std::memory_order_acquire, std::memory_order_relaxed)) {
      if ((caller & ~kDescribed) == own) return false;
      refuse(what);
    }
    name_.store(what.name, std::memory_order_relaxed);
    kind_.store(what.kind, std::memory_order_relaxed);
    file_.store(what.site.file, std::memory_order_relaxed);
    line_.store(what.site.line, std::memory_order_relaxed);
    outer_.store(what.site.outer, std::memory_order_relaxed);
    caller_.store(own | kDescribed, std::memory_order_release);
    return true;
  }
  [[noreturn]] void refuse(const Scope::What& what) const;
  /// What another thread is in, as "barrier at train.cpp:88".
  std::string other_call() const;

  std::atomic<std::uintptr_t> caller_ = kNobody;  ///< The thread that is in; the fields are released with kDescribed.
  std::atomic<const char*> name_ = nullptr;
  std::atomic<const char*> file_ = "";
  std::atomic<unsigned> line_ = 0;
  std::atomic<CollectiveKind> kind_ = CollectiveKind::kNone;
  std::atomic<OuterCall> outer_ = OuterCall::kNone;
  std::string group_;
};

}  // namespace retinue

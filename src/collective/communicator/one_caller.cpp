#include "collective/communicator/one_caller.h"

#include <fmt/format.h>
#include <sched.h>

#include "base/site_text.h"
#include "retinue/base/error.h"

namespace retinue {
namespace {

std::string call_text(const char* name, CollectiveKind kind, OuterCall outer, const std::string& site) {
  std::string text(name == nullptr ? name_of(kind) : name);
  if (outer != OuterCall::kNone) text += fmt::format(" in {}", name_of(outer));
  return fmt::format("{} at {}", text, site);
}

}  // namespace

std::string OneCaller::other_call() const {
  constexpr int kMostLooks = 1000;  // The other thread may have lost its CPU between two stores.
  for (int i = 0; i < kMostLooks; ++i, sched_yield()) {
    const std::uintptr_t caller = caller_.load(std::memory_order_acquire);
    if ((caller & kDescribed) == 0) continue;
    // Acquire: the look at the caller below comes after them.
    std::string text =
        call_text(name_.load(std::memory_order_acquire), kind_.load(std::memory_order_acquire),
                  outer_.load(std::memory_order_acquire),
                  site_text(file_.load(std::memory_order_acquire), line_.load(std::memory_order_acquire)));
    if (caller_.load(std::memory_order_relaxed) == caller) return text;
  }
  return "a call that has ended since";
}

void OneCaller::refuse(const Scope::What& what) const {
  throw UsageError(
      fmt::format("group \"{}\": two threads of this rank use one communicator at the same time, one in {}, this one "
                  "in {}. Give each thread its own communicator, with retinue::split or new_group. Threads that take "
                  "turns with one must do so in the same order on all ranks, which a mutex does not ensure",
                  group_, other_call(), call_text(what.name, what.kind, what.site.outer, what.site.text())));
}

}  // namespace retinue

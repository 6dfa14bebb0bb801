#pragma once

#include <coroutine>
#include <cstddef>
#include <utility>

#include "collective/session/session.h"

// For the coroutines in files that include this: without optimisation gcc 12 believes that operator delete belongs to
// another class, because operator new is a template.
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic ignored "-Wmismatched-new-delete"
#endif

namespace retinue {

/// What a member does in a call once all have come to it: a coroutine that awaits what others post. In a blocking call
/// it waits where it stands; in one that was begun it is put aside there and goes on later.
///
/// A group has one at a time: its frame lies in the session's scratch. The first parameter of such a coroutine is the
/// session. One that is dropped before its end does nothing more.
class [[nodiscard]] Steps {
 public:
  struct promise_type {  // NOLINT(readability-identifier-naming): the language names it
    Steps get_return_object() noexcept { return Steps(Handle::from_promise(*this)); }
    std::suspend_always initial_suspend() const noexcept { return {}; }
    std::suspend_always final_suspend() const noexcept { return {}; }
    void return_void() const noexcept {}
    void unhandled_exception() const { throw; }

    template <typename... Others>
    static void* operator new(std::size_t bytes, Session& session, const Others&... /*others*/) {
      return session.scratch().frame(bytes);
    }
    static void operator delete(void* /*frame*/, std::size_t /*bytes*/) noexcept {}
  };

  /// None: all is done.
  Steps() = default;
  Steps(Steps&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
  Steps& operator=(Steps&& other) noexcept {
    std::swap(handle_, other.handle_);
    return *this;
  }
  ~Steps() {
    if (handle_) handle_.destroy();
  }

  /// Until the end, or until they are put aside; then again once Session::can_go_on(). Returns whether they have ended.
  /// Errors: the call's.
  bool go_on() {
    if (handle_ && !handle_.done()) handle_.resume();
    return !handle_ || handle_.done();
  }

 private:
  using Handle = std::coroutine_handle<promise_type>;
  explicit Steps(Handle handle) noexcept : handle_(handle) {}

  Handle handle_;
};

/// While there is one, its session's Steps are put aside where they would wait.
class PutAside {
 public:
  explicit PutAside(Session& session) : session_(session) { session_.puts_aside_ = true; }
  ~PutAside() { session_.puts_aside_ = false; }
  PutAside(const PutAside&) = delete;
  PutAside& operator=(const PutAside&) = delete;

 private:
  Session& session_;
};

/// For `co_await` in Steps: until these members posted `step` of the call.
class [[nodiscard]] Posted {
 public:
  Posted(Session& session, RankRange ranks, std::uint64_t step) : session_(session), ranks_(ranks), step_(step) {}

  bool await_ready() const { return session_.has_posted(ranks_, step_); }
  void await_suspend(std::coroutine_handle<> /*steps*/) const noexcept {}
  void await_resume() const noexcept {}

 protected:
  Session& session_;

 private:
  RankRange ranks_;
  std::uint64_t step_;
};

/// The same after Session::enter(): until these members posted the first step, after which they touch no other's
/// buffer.
class [[nodiscard]] Released : public Posted {
 public:
  Released(Session& session, RankRange ranks) : Posted(session, ranks, 1) {}

  void await_resume() const { session_.check_members(); }
};

inline Posted all_posted(Session& session, std::uint64_t step) {
  return {session, {0, session.size()}, step};
}
inline Posted posted_by(Session& session, int rank, std::uint64_t step) {
  return {session, {rank, rank + 1}, step};
}

}  // namespace retinue

#pragma once

#include <cstddef>
#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>

#include "retinue/collective/call.h"

namespace retinue {

class Communicator;
class ThrownText;
class ZeroFirst;

namespace detail {

/// How rank 0 of a group tells the others that they may go on.
struct ZeroFirstGroup {
  int rank = -1;  ///< -1: this process is in no group, and there is nothing to do.
  int size = 0;
  std::string name = {};
  /// From rank 0 to all others.
  std::function<void(void* data, std::size_t bytes)> broadcast = {};
};

/// Makes one of a group: defined for each kind of group that there is.
template <class Group>
struct ZeroFirstOf;
template <>
struct ZeroFirstOf<Communicator> {
  static ZeroFirstGroup make(Communicator& group, CallSite site);
};

}  // namespace detail

/// Calls `prepare()` on all ranks, first on rank 0 alone, and gives what it returns there.
/// Blocking, errors: as ZeroFirst's; what rank 0's `prepare` throws is thrown there, and on the others an Error, or a
/// UsageError for a UsageError, with its text.
template <class Group, class Prepare>
auto zero_first(Group& group, Prepare&& prepare, CallSite site = {});

/// Lets rank 0 go first through a scope, as for a download or a cache that all use then: the other ranks wait in the
/// constructor until rank 0's destructor. Of a Communicator or a ProcessGroup. Nothing happens in a group of one, nor
/// with a null ProcessGroup, which ranks outside of a group have.
///
/// In the scope rank 0 makes no calls of the group. Where it leaves by an exception, the others throw instead of
/// waiting on, with the text of the last exception that was thrown in the scope. That is the same one unless another
/// was caught meanwhile: a destructor sees that an exception passes, and not which, and zero_first() knows.
///
/// Blocking: the others, at most the group's timeout; rank 0 doesn't wait for them.
/// Errors: on the others, Error when rank 0 left by an exception; PeerLost, TimeoutError.
/// After an error: the group can be used on after Error.
class ZeroFirst {
 public:
  template <class Group>
  explicit ZeroFirst(Group& group, CallSite site = {})
      : ZeroFirst(detail::ZeroFirstOf<std::remove_const_t<Group>>::make(group, site), site, Made()) {}
  ~ZeroFirst();
  ZeroFirst(const ZeroFirst&) = delete;
  ZeroFirst& operator=(const ZeroFirst&) = delete;

  /// Whether this rank is the one that prepares: rank 0, or the only one, or one without a group.
  bool is_first() const noexcept { return group_.rank <= 0; }

 private:
  template <class Group, class Prepare>
  friend auto zero_first(Group& group, Prepare&& prepare, CallSite site);
  struct Made {};
  ZeroFirst(detail::ZeroFirstGroup group, CallSite site, Made made);

  /// Lets the others go on, or throw `error`. Once. Where they can't be told, the group's next call says why.
  void tell(const std::exception_ptr& error) noexcept;

  detail::ZeroFirstGroup group_;
  CallSite site_;
  int exceptions_ = 0;                  ///< That were under way already.
  std::shared_ptr<ThrownText> thrown_;  ///< On the one that goes first.
  bool told_ = false;
};

template <class Group, class Prepare>
auto zero_first(Group& group, Prepare&& prepare, CallSite site) {
  ZeroFirst guard(group, site);
  try {
    return std::forward<Prepare>(prepare)();
  } catch (...) {
    guard.tell(std::current_exception());
    throw;
  }
}

}  // namespace retinue

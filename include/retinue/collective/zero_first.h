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

/// How rank 0 of a group tells the others to continue.
struct ZeroFirstGroup {
  int rank = -1;  ///< -1: this process is in no group, and there is nothing to do.
  int size = 0;
  std::string name = {};
  /// Copies data from rank 0 to all others.
  std::function<void(void* data, std::size_t bytes)> broadcast = {};
};

/// Makes a ZeroFirstGroup of a group; defined for each kind of group.
template <class Group>
struct ZeroFirstOf;
template <>
struct ZeroFirstOf<Communicator> {
  static ZeroFirstGroup make(Communicator& group, CallSite site);
};

}  // namespace detail

/// Calls `prepare()` on all ranks, first on rank 0 alone, and returns each call's result on its own rank.
/// Blocking, errors: as ZeroFirst's. If rank 0's `prepare` throws, that exception is thrown on rank 0; the others throw
/// an Error, or a UsageError for a UsageError, with its text.
template <class Group, class Prepare>
auto zero_first(Group& group, Prepare&& prepare, CallSite site = {});

/// A guard that lets rank 0 run a scope first, such as a download or a cache that all ranks use afterwards. The other
/// ranks wait in the constructor until rank 0's destructor. The group is a Communicator or a ProcessGroup. Does nothing
/// in a group of one or with a null ProcessGroup, which ranks outside of a group have.
///
/// In the scope rank 0 makes no calls of the group. If rank 0 leaves it by an exception, the others stop waiting and
/// throw, with the text of the last exception thrown in the scope. That is the same exception unless another was caught
/// meanwhile: a destructor sees that an exception is in flight but not which one. zero_first() knows which.
///
/// Blocking: the other ranks wait, at most the group's timeout; rank 0 doesn't wait for them.
/// Errors: on the other ranks, Error if rank 0 left by an exception; PeerLost, TimeoutError.
/// After an error: the group is still usable after Error.
class ZeroFirst {
 public:
  template <class Group>
  explicit ZeroFirst(Group& group, CallSite site = {})
      : ZeroFirst(detail::ZeroFirstOf<std::remove_const_t<Group>>::make(group, site), site, Made()) {}
  ~ZeroFirst();
  ZeroFirst(const ZeroFirst&) = delete;
  ZeroFirst& operator=(const ZeroFirst&) = delete;

  /// Returns whether this rank is the one that prepares: rank 0, the only rank, or one without a group.
  bool is_first() const noexcept { return group_.rank <= 0; }

 private:
  template <class Group, class Prepare>
  friend auto zero_first(Group& group, Prepare&& prepare, CallSite site);
  struct Made {};
  ZeroFirst(detail::ZeroFirstGroup group, CallSite site, Made made);

  /// Lets the others continue, or throw `error`. Acts once. If they can't be told, the group's next call reports why.
  void share_failure(const std::exception_ptr& error) noexcept;

  detail::ZeroFirstGroup group_;
  CallSite site_;
  int exceptions_ = 0;                  ///< Exceptions already in flight at construction.
  std::shared_ptr<ThrownText> thrown_;  ///< Set on the rank that goes first.
  bool told_ = false;
};

template <class Group, class Prepare>
auto zero_first(Group& group, Prepare&& prepare, CallSite site) {
  ZeroFirst guard(group, site);
  try {
    return std::forward<Prepare>(prepare)();
  } catch (...) {
    guard.share_failure(std::current_exception());
    throw;
  }
}

}  // namespace retinue

#pragma once

#include <cstdint>
#include <exception>
#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "retinue/collective/communicator.h"
#include "retinue/ipc/archive.h"

/// Collectives of any value that can be an argument of `spawn`: what cereal serialises, tensors, modules, queues,
/// locks. What lies in job memory arrives as the same memory.
///
/// Blocking, threads: as Communicator's calls, of which each of these is one to three.
/// Errors: as theirs; what archiving a value throws, on its own rank, and UsageError, on the others.
/// After an error: the group can be used on if only a value could not be archived, or read.
namespace retinue {
namespace detail {

/// What a rank tells the others before it gives its object.
struct ObjectNotice {
  std::uint64_t bytes = 0;
  std::uint64_t failed = 0;          ///< It has nothing to give.
  std::uint64_t has_references = 0;  ///< It must be held until all have read it.
};

/// Archived values of this rank, or the exception that there was instead.
struct ObjectsToGive {
  template <class T>
  void add(const Communicator& group, const T& value) {
    try {
      if (error) return;
      encoded.push_back(encode_value(value));
      check_references(group, encoded.back());
    } catch (...) {
      error = std::current_exception();
    }
  }
  /// Errors: UsageError for references to memory that the group doesn't have in common.
  static void check_references(const Communicator& group, const Encoded& value);
  void check_count(std::size_t count, int wanted);
  ObjectNotice notice(std::size_t index) const;
  ConstBytes bytes(std::size_t index) const;

  std::vector<Encoded> encoded;
  std::exception_ptr error;
};

/// Makes objects of bytes, and keeps what went wrong until the givers may go on.
class ObjectReader {
 public:
  template <class T>
  void read(std::span<const std::byte> bytes, T& value) {
    try {
      decode_value({reinterpret_cast<const char*>(bytes.data()), bytes.size()}, value);
    } catch (...) {
      error_ = std::current_exception();
    }
  }
  /// Lets the givers go on, then throws what went wrong.
  void finish(Communicator& group, bool has_references, CallSite site) {
    if (has_references) group.barrier(site);
    check();
  }
  /// Throws what went wrong.
  void check() const {
    if (error_) std::rethrow_exception(error_);
  }

 private:
  std::exception_ptr error_;
};

/// The notices of the ranks from `first_rank` on. Errors: what archiving this rank's value threw; UsageError that names
/// another rank whose value failed.
void check_notices(std::string_view call, const ObjectsToGive& own, std::span<const ObjectNotice> notices,
                   int first_rank);
void check_root(std::string_view call, const Communicator& group, int root);
bool any_has_references(std::span<const ObjectNotice> notices);

using ObjectBytes = std::vector<std::byte>;
/// All ranks' objects, at `root`, or without one at all ranks; empty elsewhere.
std::vector<ObjectBytes> gather_object_bytes(Communicator& group, const ObjectsToGive& own,
                                             std::span<const ObjectNotice> notices, std::optional<int> root,
                                             CallSite site);
/// The notice for this rank of those that the root's objects make, then the object.
ObjectNotice scatter_notices(Communicator& group, const ObjectsToGive& own, int root, CallSite site);
ObjectBytes scatter_object_bytes(Communicator& group, const ObjectsToGive& own, const ObjectNotice& notice, int root,
                                 CallSite site);
ObjectBytes broadcast_object_bytes(Communicator& group, const ObjectsToGive& own, const ObjectNotice& notice, int root,
                                   CallSite site);

void send_encoded(Communicator& group, Encoded encoded, int destination, int tag, CallSite site);
struct ReceivedObject {
  Received received;
  ObjectBytes bytes;
  bool has_references;
};
ReceivedObject recv_encoded(Communicator& group, int source, int tag, CallSite site);
/// Lets the sender go on.
void reply_to(Communicator& group, const ReceivedObject& object, CallSite site);

template <class T>
std::vector<T> gather_objects(std::string_view call, Communicator& group, const T& value, std::optional<int> root,
                              CallSite site) {
  if (root) check_root(call, group, *root);
  ObjectsToGive own;
  own.add(group, value);
  std::vector<ObjectNotice> notices(static_cast<std::size_t>(group.size()));
  const ObjectNotice notice = own.notice(0);
  group.all_gather(&notice, notices.data(), sizeof notice, site);
  check_notices(call, own, notices, 0);
  const auto bytes = gather_object_bytes(group, own, notices, root, site);
  std::vector<T> values(bytes.size());
  ObjectReader reader;
  for (std::size_t i = 0; i < bytes.size(); ++i) reader.read(bytes[i], values[i]);
  reader.finish(group, any_has_references(notices), site);
  return values;
}

}  // namespace detail

/// Makes `value` on all ranks what it is on `root`.
template <class T>
void broadcast_object(Communicator& group, T& value, int root, CallSite site = {}) {
  detail::ObjectsToGive own;
  if (group.rank() == root) own.add(group, value);
  detail::ObjectNotice notice = own.notice(0);
  group.broadcast(&notice, sizeof notice, root, site);
  detail::check_notices("broadcast_object", own, {&notice, 1}, root);
  const detail::ObjectBytes bytes = detail::broadcast_object_bytes(group, own, notice, root, site);
  detail::ObjectReader reader;
  if (group.rank() != root) reader.read(bytes, value);
  reader.finish(group, notice.has_references != 0, site);
}

/// The values of all ranks, in rank order.
template <class T>
std::vector<T> all_gather_object(Communicator& group, const T& value, CallSite site = {}) {
  return detail::gather_objects("all_gather_object", group, value, std::nullopt, site);
}

/// The same at `root`; empty on the other ranks.
template <class T>
std::vector<T> gather_object(Communicator& group, const T& value, int root, CallSite site = {}) {
  return detail::gather_objects("gather_object", group, value, root, site);
}

/// The r-th of the root's `values`, of which it has one per rank; those of other ranks don't count.
template <class T>
T scatter_object(Communicator& group, const std::vector<T>& values, int root, CallSite site = {}) {
  detail::ObjectsToGive own;
  if (group.rank() == root) {
    own.check_count(values.size(), group.size());
    for (const T& value : values) own.add(group, value);
  }
  const detail::ObjectNotice notice = detail::scatter_notices(group, own, root, site);
  detail::check_notices("scatter_object", own, {&notice, 1}, root);
  const detail::ObjectBytes bytes = detail::scatter_object_bytes(group, own, notice, root, site);
  T value{};
  detail::ObjectReader reader;
  reader.read(bytes, value);
  reader.finish(group, notice.has_references != 0, site);
  return value;
}

/// Sends a value to one rank, which takes it by recv_object().
/// Blocking: as Communicator::send(); a value that refers to job memory, until it is received.
template <class T>
void send_object(Communicator& group, const T& value, int destination, int tag = 0, CallSite site = {}) {
  detail::send_encoded(group, detail::encode_value(value), destination, tag, site);
}

/// Makes `value` what send_object() sent. `source` and `tag`: as Communicator::recv().
template <class T>
Received recv_object(Communicator& group, T& value, int source, int tag = 0, CallSite site = {}) {
  const detail::ReceivedObject object = detail::recv_encoded(group, source, tag, site);
  detail::ObjectReader reader;
  reader.read(object.bytes, value);
  detail::reply_to(group, object, site);
  reader.check();
  return object.received;
}

}  // namespace retinue

#pragma once

#include <optional>
#include <vector>

#include "retinue/collective/communicator.h"
#include "retinue/collective/detail/object_exchange.h"

/// Collectives of any value that can be an argument of `spawn`: types that cereal serialises, tensors, modules, queues,
/// locks. Data in job memory arrive as the same memory.
///
/// Blocking, threads: as Communicator's calls; each function here makes one to three of them.
/// Errors: as Communicator's calls. If archiving a value throws, its own rank gets that exception and the others get
/// UsageError. UsageError for a value of another type than this rank takes, or that its type can't read.
/// After an error: the group is still usable if only archiving or reading a value failed.
namespace retinue {

/// Sets `value` on all ranks to the value on `root`.
template <class T>
void broadcast_object(Communicator& group, T& value, int root, CallSite site = {}) {
  site = site.inside(OuterCall::kBroadcastObject);
  detail::check_root("broadcast_object", group, root);
  detail::ObjectsToGive own(detail::object_type<T>());
  if (group.rank() == root) own.add(group, value);
  detail::ObjectNotice notice = own.notice(0);
  group.broadcast(&notice, sizeof notice, root, site);
  detail::check_notices("broadcast_object", own, {&notice, 1}, root);
  const detail::ObjectBytes bytes = detail::broadcast_object_bytes(group, own, notice, root, site);
  detail::ObjectReader reader("broadcast_object", group, site);
  if (group.rank() != root) reader.read(bytes, notice.type, root, value);
  reader.finish(group, notice.has_references != 0, site);
}

/// Returns the values of all ranks, in rank order.
template <class T>
std::vector<T> all_gather_object(Communicator& group, const T& value, CallSite site = {}) {
  return detail::gather_objects("all_gather_object", group, value, std::nullopt,
                                site.inside(OuterCall::kAllGatherObject));
}

/// Returns the same on `root`, and an empty vector on the other ranks.
template <class T>
std::vector<T> gather_object(Communicator& group, const T& value, int root, CallSite site = {}) {
  return detail::gather_objects("gather_object", group, value, root, site.inside(OuterCall::kGatherObject));
}

/// Returns, on rank r, the r-th of the root's `values`. The root has one per rank; the other ranks' `values` are
/// ignored.
template <class T>
T scatter_object(Communicator& group, const std::vector<T>& values, int root, CallSite site = {}) {
  site = site.inside(OuterCall::kScatterObject);
  detail::check_root("scatter_object", group, root);
  detail::ObjectsToGive own(detail::object_type<T>());
  if (group.rank() == root) {
    own.check_count(values.size(), group.size());
    for (const T& value : values) own.add(group, value);
  }
  const detail::ObjectNotice notice = detail::scatter_notices(group, own, root, site);
  detail::check_notices("scatter_object", own, {&notice, 1}, root);
  const detail::ObjectBytes bytes = detail::scatter_object_bytes(group, own, notice, root, site);
  const detail::ReadScope scope;
  T value{};
  detail::ObjectReader reader("scatter_object", group, site);
  reader.read(bytes, notice.type, root, value);
  reader.finish(group, notice.has_references != 0, site);
  return value;
}

/// Sends a value to one rank, which receives it with recv_object().
/// Blocking: as Communicator::send(); a value that refers to job memory, until it is received.
template <class T>
void send_object(Communicator& group, const T& value, int destination, int tag = 0, CallSite site = {}) {
  detail::send_encoded(group, detail::encode_value(value), detail::object_type<T>(), destination, tag, site);
}

/// Sets `value` to what send_object() sent. `source` and `tag`: as in Communicator::recv().
template <class T>
Received recv_object(Communicator& group, T& value, int source, int tag = 0, CallSite site = {}) {
  const detail::ReceivedObject object = detail::recv_encoded(group, source, tag, site);
  detail::ObjectReader reader("recv_object", group, site);
  reader.read(object.bytes, object.notice.type, object.received.source, value);
  detail::reply_to(group, object, site);
  reader.check();
  return object.received;
}

}  // namespace retinue

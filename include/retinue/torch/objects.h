#pragma once

#include <functional>
#include <optional>
#include <source_location>
#include <string_view>
#include <utility>
#include <vector>

#include "retinue/base/error.h"
#include "retinue/collective/objects.h"
#include "retinue/torch/process_group.h"
#include "retinue/torch/tensor_archive.h"

/// The object collectives of torch.distributed, for what cereal serialises, including tensors and modules, which arrive
/// as the same memory (tensor_archive.h).
///
/// Blocking: until this rank has its part; calls of the group that were begun before are done first.
/// Threads: any, if all ranks make the same calls in the same order.
/// Errors: UsageError for a group of a backend that isn't Retinue's, and for data in job memory if ranks share none.
/// Otherwise as retinue/collective/objects.h: if archiving a value throws, its own rank gets that exception and the
/// others get UsageError; the group is still usable. Cost: an archive, and two or three collectives of few bytes.
namespace retinue {
namespace detail {

/// Runs `body` on the group's communicator, after the calls that were made on the group before. Returns false in a
/// world of one, which has no communicator and whose only rank already has all values.
bool use_communicator(std::string_view call, const ProcessGroup& group, const std::function<void(Communicator&)>& body);
/// Checks a rank. Errors: UsageError for a rank that the group doesn't have.
void check_rank(std::string_view call, const ProcessGroup& group, int rank);
/// Does the same; also refuses this rank itself. kAnySource is valid.
void check_peer(std::string_view call, const ProcessGroup& group, int rank);

}  // namespace detail

/// Sets `value` on all ranks to the value on `src`.
template <class T>
void broadcast_object(T& value, const ProcessGroup& group, int src = 0,
                      std::source_location where = std::source_location::current()) {
  detail::check_rank("broadcast_object", group, src);
  detail::use_communicator("broadcast_object", group,
                           [&](Communicator& ranks) { broadcast_object(ranks, value, src, where); });
}

/// Returns the values of all ranks, in rank order.
template <class T>
std::vector<T> all_gather_object(const T& value, const ProcessGroup& group,
                                 std::source_location where = std::source_location::current()) {
  std::vector<T> values;
  if (!detail::use_communicator("all_gather_object", group,
                                [&](Communicator& ranks) { values = all_gather_object(ranks, value, where); }))
    values.push_back(value);
  return values;
}

/// Returns the same on `dst`, and an empty vector on the other ranks.
template <class T>
std::vector<T> gather_object(const T& value, const ProcessGroup& group, int dst = 0,
                             std::source_location where = std::source_location::current()) {
  detail::check_rank("gather_object", group, dst);
  std::vector<T> values;
  if (!detail::use_communicator("gather_object", group,
                                [&](Communicator& ranks) { values = gather_object(ranks, value, dst, where); }))
    values.push_back(value);
  return values;
}

/// Returns, on rank r, the r-th value of `src`, which has one per rank; the other ranks' `values` are ignored.
template <class T>
T scatter_object(const std::vector<T>& values, const ProcessGroup& group, int src = 0,
                 std::source_location where = std::source_location::current()) {
  detail::check_rank("scatter_object", group, src);
  std::optional<T> value;
  if (detail::use_communicator("scatter_object", group,
                               [&](Communicator& ranks) { value = scatter_object(ranks, values, src, where); }))
    return *std::move(value);
  if (values.size() != 1) throw UsageError("scatter_object: a world of one scatters one value");
  return values.front();
}

/// Sends a value to one rank, which receives it with recv_object(): torch.distributed's send_object_list.
///
/// Blocking: until the receiver has it, if it refers to job memory or is large; the group's later calls wait meanwhile.
/// Tags are separate from tensors' tags: send() and recv() don't meet these messages. Errors: also UsageError in a
/// world of one.
template <class T>
void send_object(const T& value, const ProcessGroup& group, int dst, int tag = 0,
                 std::source_location where = std::source_location::current()) {
  detail::check_peer("send_object", group, dst);
  detail::use_communicator("send_object", group,
                           [&](Communicator& ranks) { send_object(ranks, value, dst, tag, where); });
}

/// Sets `value` to what send_object() sent. `src` is a rank or kAnySource. Returns the rank that sent it.
template <class T>
int recv_object(T& value, const ProcessGroup& group, int src, int tag = 0,
                std::source_location where = std::source_location::current()) {
  detail::check_peer("recv_object", group, src);
  int sender = src;
  detail::use_communicator("recv_object", group,
                           [&](Communicator& ranks) { sender = recv_object(ranks, value, src, tag, where).source; });
  return sender;
}

}  // namespace retinue

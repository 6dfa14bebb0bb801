#include "retinue/collective/detail/object_exchange.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "base/char_field.h"
#include "base/demangle.h"
#include "base/thrown_here.h"
#include "retinue/base/error.h"

namespace retinue::detail {

ObjectType::ObjectType(const std::type_info& type, std::uint64_t hash_of_type) : hash(hash_of_type) {
  fill(name, type_name(type.name()));
}

void ObjectReader::refuse(const ObjectType& type, int giver, const ObjectType& wanted) {
  refuse(type, giver, fmt::format("expects a {}: all ranks must use the same type", text_of(wanted.name)));
}

void ObjectReader::refuse(const ObjectType& type, int giver, std::string_view why) {
  error_ = thrown_here(
      UsageError(fmt::format("group \"{}\": {} at {}: rank {} sends a {}, but rank {} {}", group_.group().name, call_,
                             site_.text(), giver, text_of(type.name), group_.rank(), why)));
}

void ObjectsToGive::check_references(const Communicator& group, const Encoded& value) {
  if (!value.references.empty() && group.group().memory != JobMemory::current())
    throw UsageError(
        fmt::format("group \"{}\": the value refers to job memory, as tensors, queues and locks do, but the processes "
                    "of the group are not in one job: join the job first, with retinue::join_job",
                    group.group().name));
}

void ObjectsToGive::check_count(std::size_t count, int wanted) {
  if (count != static_cast<std::size_t>(wanted))
    error = thrown_here(UsageError(fmt::format("scatter_object: {} values for a group of {}", count, wanted)));
}

ObjectNotice ObjectsToGive::notice(std::size_t index) const {
  if (error) return {.failed = 1};
  if (index >= encoded.size()) return {};
  return {.bytes = encoded[index].bytes.size(),
          .has_references = encoded[index].references.empty() ? 0u : 1u,
          .type = type};
}

ConstBytes ObjectsToGive::bytes(std::size_t index) const {
  return std::as_bytes(std::span(encoded[index].bytes));
}

void check_notices(std::string_view call, const ObjectsToGive& own, std::span<const ObjectNotice> notices,
                   int first_rank) {
  if (own.error) std::rethrow_exception(own.error);
  for (std::size_t i = 0; i < notices.size(); ++i)
    if (notices[i].failed != 0)
      throw UsageError(fmt::format("{}: rank {} could not archive its value; see the error of that rank", call,
                                   first_rank + static_cast<int>(i)));
}

void check_root(std::string_view call, const Communicator& group, int root) {
  if (root < 0 || root >= group.size())
    throw UsageError(fmt::format("{}: root {} is outside of the group's [0, {})", call, root, group.size()));
}

bool any_has_references(std::span<const ObjectNotice> notices) {
  return std::any_of(notices.begin(), notices.end(),
                     [](const ObjectNotice& notice) { return notice.has_references != 0; });
}

std::vector<ObjectBytes> gather_object_bytes(Communicator& group, const ObjectsToGive& own,
                                             std::span<const ObjectNotice> notices, std::optional<int> root,
                                             CallSite site) {
  std::vector<ObjectBytes> objects;
  std::vector<Bytes> outputs;
  if (!root || *root == group.rank())
    for (const ObjectNotice& notice : notices) objects.emplace_back(notice.bytes);
  for (ObjectBytes& object : objects) outputs.emplace_back(object);
  group.run(
      root ? CollectiveCall::gather(own.bytes(0), outputs, *root) : CollectiveCall::all_gather(own.bytes(0), outputs),
      site);
  return objects;
}

ObjectNotice scatter_notices(Communicator& group, const ObjectsToGive& own, int root, CallSite site) {
  std::vector<ObjectNotice> notices;
  for (std::size_t i = 0; i < static_cast<std::size_t>(group.size()); ++i) notices.push_back(own.notice(i));
  // All wait for each other as soon as one of them must.
  const bool has_references = any_has_references(notices);
  for (ObjectNotice& notice : notices) notice.has_references = has_references ? 1 : 0;
  ObjectNotice mine;
  group.scatter(notices.data(), &mine, sizeof mine, root, site);
  return mine;
}

ObjectBytes scatter_object_bytes(Communicator& group, const ObjectsToGive& own, const ObjectNotice& notice, int root,
                                 CallSite site) {
  std::vector<ConstBytes> inputs;
  for (std::size_t i = 0; i < own.encoded.size(); ++i) inputs.push_back(own.bytes(i));
  ObjectBytes object(notice.bytes);
  group.run(CollectiveCall::scatter(inputs, object, root), site);
  return object;
}

ObjectBytes broadcast_object_bytes(Communicator& group, const ObjectsToGive& own, const ObjectNotice& notice, int root,
                                   CallSite site) {
  ObjectBytes object(notice.bytes);
  if (group.rank() == root) std::copy_n(own.bytes(0).data(), object.size(), object.data());
  group.broadcast(object.data(), object.size(), root, site);
  return object;
}

void send_encoded(Communicator& group, Encoded encoded, const ObjectType& type, int destination, int tag,
                  CallSite site) {
  ObjectsToGive::check_references(group, encoded);
  const ObjectNotice notice{
      .bytes = encoded.bytes.size(), .has_references = encoded.references.empty() ? 0u : 1u, .type = type};
  encoded.bytes.append(reinterpret_cast<const char*>(&notice), sizeof notice);
  group.send(std::span(encoded.bytes), destination, tag, site);
  // Until then this rank holds what the value refers to.
  if (!encoded.references.empty()) group.recv(std::span<std::byte>(), destination, kReplyTag, site);
}

ReceivedObject recv_encoded(Communicator& group, int source, int tag, CallSite site) {
  ReceivedObject object{.received = {}, .bytes = {}, .notice = {}};
  object.received = group.recv_any_size(object.bytes, source, tag, site);
  const std::size_t sent = object.bytes.size();
  if (sent >= sizeof object.notice) {
    object.bytes.resize(sent - sizeof object.notice);
    std::memcpy(&object.notice, object.bytes.data() + object.bytes.size(), sizeof object.notice);
  }
  // Of any other message these bytes say something else.
  if (sent < sizeof object.notice || object.notice.bytes != object.bytes.size() || object.notice.failed != 0 ||
      object.notice.has_references > 1)
    throw UsageError(
        fmt::format("group \"{}\": recv_object at {}: rank {} sent a message of {} bytes (tag {}), which is not an "
                    "object: use send_object there, or recv here",
                    group.group().name, site.text(), object.received.source, sent, object.received.tag));
  return object;
}

void reply_to(Communicator& group, const ReceivedObject& object, CallSite site) {
  if (object.notice.has_references != 0)
    group.send(std::span<const std::byte>(), object.received.source, kReplyTag, site);
}

}  // namespace retinue::detail

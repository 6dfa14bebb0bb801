#pragma once

#include <cstdint>
#include <exception>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <typeinfo>
#include <utility>
#include <vector>

#include "retinue/collective/communicator.h"
#include "retinue/ipc/archive.h"
#include "retinue/ipc/message_codec.h"

/// What collectives of objects (retinue/collective/objects.h) are made of.
namespace retinue::detail {

/// A type that ranks compare.
struct ObjectType {
  ObjectType() = default;
  ObjectType(const std::type_info& type, std::uint64_t hash);

  std::uint64_t hash = 0;
  char name[64] = {};  ///< As much of it as there is room for.
};

template <class T>
ObjectType object_type() {
  return {typeid(T), type_hash<T>()};
}

/// What a rank tells the others before it gives its object.
struct ObjectNotice {
  std::uint64_t bytes = 0;
  std::uint64_t failed = 0;          ///< It has nothing to give.
  std::uint64_t has_references = 0;  ///< It must be held until all have read it.
  ObjectType type = {};
};

/// Archived values of this rank, or the exception that there was instead.
struct ObjectsToGive {
  explicit ObjectsToGive(const ObjectType& of) : type(of) {}

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

  ObjectType type;
  std::vector<Encoded> encoded;
  std::exception_ptr error;
};

/// Makes objects of bytes, and keeps what went wrong until the givers may go on.
class ObjectReader {
 public:
  ObjectReader(std::string_view call, const Communicator& group, const CallSite& site)
      : call_(call), group_(group), site_(site) {}

  /// What `giver` gives, of that type.
  template <class T>
  void read(std::span<const std::byte> bytes, const ObjectType& type, int giver, T& value) {
    if (error_) return;  // The first says enough.
    if (const ObjectType wanted = object_type<T>(); type.hash != wanted.hash) return refuse(type, giver, wanted);
    try {
      decode_value({reinterpret_cast<const char*>(bytes.data()), bytes.size()}, value);
    } catch (const cereal::Exception& error) {
      refuse(type, giver, std::string("cannot read it: ") + error.what());
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
  void refuse(const ObjectType& type, int giver, const ObjectType& wanted);
  void refuse(const ObjectType& type, int giver, std::string_view why);

  std::string_view call_;
  const Communicator& group_;
  CallSite site_;
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

void send_encoded(Communicator& group, Encoded encoded, const ObjectType& type, int destination, int tag,
                  CallSite site);
struct ReceivedObject {
  Received received;
  ObjectBytes bytes;
  ObjectNotice notice;
};
ReceivedObject recv_encoded(Communicator& group, int source, int tag, CallSite site);
/// Lets the sender go on.
void reply_to(Communicator& group, const ReceivedObject& object, CallSite site);

template <class T>
std::vector<T> gather_objects(std::string_view call, Communicator& group, const T& value, std::optional<int> root,
                              CallSite site) {
  if (root) check_root(call, group, *root);
  ObjectsToGive own(object_type<T>());
  own.add(group, value);
  std::vector<ObjectNotice> notices(static_cast<std::size_t>(group.size()));
  const ObjectNotice notice = own.notice(0);
  group.all_gather(&notice, notices.data(), sizeof notice, site);
  check_notices(call, own, notices, 0);
  const auto bytes = gather_object_bytes(group, own, notices, root, site);
  const ReadScope scope;
  std::vector<T> values(bytes.size());
  ObjectReader reader(call, group, site);
  for (std::size_t i = 0; i < bytes.size(); ++i) reader.read(bytes[i], notices[i].type, static_cast<int>(i), values[i]);
  reader.finish(group, any_has_references(notices), site);
  return values;
}

}  // namespace retinue::detail

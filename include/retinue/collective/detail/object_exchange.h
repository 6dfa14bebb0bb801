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
#include "retinue/ipc/detail/message_codec.h"

/// The building blocks of object collectives (retinue/collective/objects.h).
namespace retinue::detail {

/// A type that ranks compare.
struct ObjectType {
  ObjectType() = default;
  ObjectType(const std::type_info& type, std::uint64_t hash);

  std::uint64_t hash = 0;
  char name[64] = {};  ///< As much of the name as fits.
};

template <class T>
ObjectType object_type() {
  return {typeid(T), type_hash<T>()};
}

/// The notice that a rank gives the others before its object.
struct ObjectNotice {
  std::uint64_t bytes = 0;
  std::uint64_t failed = 0;          ///< The rank has no object to give.
  std::uint64_t has_references = 0;  ///< The object must be held until all have read it.
  ObjectType type = {};
};

/// This rank's archived values, or the exception thrown instead.
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
  /// Checks references. Errors: UsageError for references to memory that the group doesn't share.
  static void check_references(const Communicator& group, const Encoded& value);
  void check_count(std::size_t count, int wanted);
  ObjectNotice notice(std::size_t index) const;
  ConstBytes bytes(std::size_t index) const;

  ObjectType type;
  std::vector<Encoded> encoded;
  std::exception_ptr error;
};

/// A reader that makes objects of bytes, and keeps an error until the givers may continue.
class ObjectReader {
 public:
  ObjectReader(std::string_view call, const Communicator& group, const CallSite& site)
      : call_(call), group_(group), site_(site) {}

  /// Reads what `giver` gives, of that type.
  template <class T>
  void read(std::span<const std::byte> bytes, const ObjectType& type, int giver, T& value) {
    if (error_) return;  // The first error says enough.
    if (const ObjectType wanted = object_type<T>(); type.hash != wanted.hash) return refuse(type, giver, wanted);
    try {
      decode_value({reinterpret_cast<const char*>(bytes.data()), bytes.size()}, value);
    } catch (const cereal::Exception& error) {
      refuse(type, giver, std::string("cannot read it: ") + error.what());
    } catch (...) {
      error_ = std::current_exception();
    }
  }
  /// Lets the givers continue, then throws the error, if any.
  void finish(Communicator& group, bool has_references, CallSite site) {
    if (has_references) group.barrier(site);
    check();
  }
  /// Throws the error, if any.
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

/// Checks the notices of the ranks from `first_rank` on. Errors: the exception that archiving this rank's value threw;
/// UsageError that names another rank whose value failed.
void check_notices(std::string_view call, const ObjectsToGive& own, std::span<const ObjectNotice> notices,
                   int first_rank);
void check_root(std::string_view call, const Communicator& group, int root);
bool any_has_references(std::span<const ObjectNotice> notices);

using ObjectBytes = std::vector<std::byte>;
/// Returns all ranks' objects at `root`, or at all ranks if there is no root; empty elsewhere.
std::vector<ObjectBytes> gather_object_bytes(Communicator& group, const ObjectsToGive& own,
                                             std::span<const ObjectNotice> notices, std::optional<int> root,
                                             CallSite site);
/// Return this rank's notice of those for the root's objects, then its object.
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
/// Lets the sender continue.
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

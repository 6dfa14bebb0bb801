#pragma once

#include <cstddef>
#include <cstdint>
#include <set>
#include <string>
#include <string_view>

#include "store/frame.h"
#include "store/key_table.h"

/// The file of a FileStore: kLogMagic, then records, each
///   u32 bytes of the body; u64 checksum (the first of SHA-256 over these four bytes and the body); the body, a Frame's
namespace retinue {

inline constexpr std::string_view kLogMagic = "retinue-file-1\n";
inline constexpr std::size_t kRecordHead = 12;
inline constexpr std::int64_t kMostMembers = 1 << 24;

enum class Record : std::uint8_t {
  kBegin = 1,  ///< The first. Number: the world's size, 0: unknown. String: the job.
  kJoin,       ///< Number: the member, counted from 0.
  kLeave,      ///< Number: the member.
  kSet,        ///< Strings: key, value.
  kDelete,     ///< String: key.
  kRefusal,    ///< Of a process that counts another number of members. Number: that one.
};

/// Errors: UsageError if it has 4 GiB.
std::string encode_record(Record kind, std::int64_t number, std::vector<std::string> strings);
/// How a file begins.
std::string encode_beginning(std::int64_t world_size, const std::string& job);

/// What the records of a file say, one after the other.
class LogState {
 public:
  enum class End : std::uint8_t {
    kWhole,
    kTorn,     ///< The last record is not whole: who wrote it was killed.
    kDamaged,  ///< Something else than such records is in the file.
  };

  /// Takes `bytes`, which follow what was taken, as far as they are whole records.
  End take(std::string_view bytes);
  std::uint64_t taken_bytes() const { return taken_bytes_; }

  bool has_begun() const { return has_begun_; }
  std::int64_t world_size() const { return world_size_; }
  const std::string& job() const { return job_; }
  std::int64_t joined() const { return joined_; }
  /// Members that have joined and not left.
  const std::set<std::int64_t>& present() const { return present_; }
  /// How many members a process counted that was refused for it, while not all had joined; 0: there was none.
  std::int64_t refused_size() const { return refused_size_; }
  const KeyTable& table() const { return table_; }

 private:
  bool apply(Frame record);
  End take_record(std::string_view& rest);

  std::uint64_t taken_bytes_ = 0;
  bool has_begun_ = false;
  std::int64_t world_size_ = 0;
  std::string job_;
  std::int64_t joined_ = 0;
  std::set<std::int64_t> present_;
  std::int64_t refused_size_ = 0;
  KeyTable table_;
};

}  // namespace retinue

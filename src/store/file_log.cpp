#include "store/file_log.h"

#include <openssl/evp.h>

#include <array>
#include <optional>
#include <utility>

#include "retinue/base/error.h"
#include "store/little_endian.h"

namespace retinue {
namespace {

std::uint64_t checksum(std::string_view head, std::string_view body) {
  std::string text(head);
  text += body;
  std::array<char, EVP_MAX_MD_SIZE> digest;
  if (EVP_Digest(text.data(), text.size(), reinterpret_cast<unsigned char*>(digest.data()), nullptr, EVP_sha256(),
                 nullptr) != 1)
    throw Error("OpenSSL cannot compute SHA-256: see its configuration (openssl.cnf)");
  return number_at<std::uint64_t>({digest.data(), digest.size()});
}

}  // namespace

std::string encode_record(Record kind, std::int64_t number, std::vector<std::string> strings) {
  const std::string frame = encode({static_cast<std::uint8_t>(kind), number, std::move(strings)});
  const std::string_view head = std::string_view(frame).substr(0, kFrameHead);
  const std::string_view body = std::string_view(frame).substr(kFrameHead);
  std::string record(head);
  put_number(record, checksum(head, body));
  record += body;
  return record;
}

std::string encode_beginning(std::int64_t world_size, const std::string& job) {
  return std::string(kLogMagic) + encode_record(Record::kBegin, world_size, {job});
}

LogState::End LogState::take(std::string_view bytes) {
  std::string_view rest = bytes;
  if (taken_bytes_ == 0 && !rest.empty()) {
    const std::size_t beginning = std::min(rest.size(), kLogMagic.size());
    if (rest.substr(0, beginning) != kLogMagic.substr(0, beginning)) return End::kDamaged;
    if (beginning < kLogMagic.size()) return End::kTorn;
    // Taken with the first record only, so that a file which was hardly begun is begun anew.
    std::string_view after = rest.substr(kLogMagic.size());
    if (after.empty()) return End::kTorn;
    if (const End end = take_record(after); end != End::kWhole) return end;
    taken_bytes_ += rest.size() - after.size();
    rest = after;
  }
  while (!rest.empty()) {
    const std::size_t before = rest.size();
    if (const End end = take_record(rest); end != End::kWhole) return end;
    taken_bytes_ += before - rest.size();
  }
  return End::kWhole;
}

LogState::End LogState::take_record(std::string_view& rest) {
  if (rest.size() < kRecordHead) return End::kTorn;
  const auto bytes = number_at<std::uint32_t>(rest);
  if (bytes < kFrameLeast) return End::kDamaged;
  if (bytes > rest.size() - kRecordHead) return End::kTorn;
  const std::string_view body = rest.substr(kRecordHead, bytes);
  if (number_at<std::uint64_t>(rest.substr(kFrameHead)) != checksum(rest.substr(0, kFrameHead), body)) {
    // A host that crashed may have kept the file's size and not what was last in it.
    return body.size() == rest.size() - kRecordHead ? End::kTorn : End::kDamaged;
  }
  std::optional<Frame> record = decode(body);
  if (!record || !apply(*std::move(record))) return End::kDamaged;
  rest.remove_prefix(kRecordHead + bytes);
  return End::kWhole;
}

bool LogState::apply(Frame record) {
  const Record kind{record.kind};
  const std::size_t strings = record.strings.size();
  if (has_begun_ == (kind == Record::kBegin)) return false;
  switch (kind) {
    case Record::kBegin:
      if (strings != 1 || record.number < 0 || record.number > kMostMembers) return false;
      has_begun_ = true;
      world_size_ = record.number;
      job_ = record.strings[0];
      return true;
    case Record::kJoin:
      if (strings != 0 || record.number != joined_ || joined_ == world_size_) return false;
      present_.insert(joined_++);
      return true;
    case Record::kLeave:
      return strings == 0 && present_.erase(record.number) == 1;
    case Record::kSet:
      if (strings != 2) return false;
      table_.set(record.strings[0], record.strings[1]);
      return true;
    case Record::kDelete:
      return strings == 1 && table_.erase(record.strings[0]);
    case Record::kRefusal:
      if (strings != 0 || record.number < 1) return false;
      refused_size_ = record.number;
      return true;
  }
  return false;
}

}  // namespace retinue

#include "retinue/ipc/detail/value_archive.h"

#include <algorithm>

#include "retinue/ipc/job_memory.h"

namespace retinue::detail {
namespace {

constexpr const char* kEndsTooEarly = "an archived value ends too early";
constexpr std::size_t kMostRows = 1024;

SharedBlock row_of(const BlockHandle& handle, std::span<const SharedBlock> held) {
  const auto found = std::ranges::find(held, handle, &SharedBlock::handle);
  return found != held.end() ? *found : SharedBlock::hold(JobMemory::current(), handle);
}

thread_local int read_scopes = 0;

}  // namespace

ReadScope::ReadScope() noexcept {
  ++read_scopes;
}

ReadScope::~ReadScope() {
  --read_scopes;
}

bool ReadScope::is_any() noexcept {
  return read_scopes != 0;
}

void take_back(Encoded& encoded) noexcept {
  encoded.references.clear();
  for (auto undo = encoded.undo.rbegin(); undo != encoded.undo.rend(); ++undo) (*undo)();
  encoded.undo.clear();
}

bool ValueOutput::write_block(const void* data, std::size_t bytes) {
  if (JobMemory::current_or_null() == nullptr || rows_.size() == kMostRows) return false;
  const SharedBlock block = SharedBlock::allocate(bytes);
  std::memcpy(block.data(), data, bytes);
  rows_.push_back({encoded_.bytes.size(), block.handle()});
  refer_to(block);
  return true;
}

/// Behind all else: the rows, then how many they are.
void ValueOutput::write_row_blocks() {
  const auto count = static_cast<std::uint32_t>(rows_.size());
  encoded_.bytes.append(reinterpret_cast<const char*>(rows_.data()), rows_.size() * sizeof(RowBlock));
  encoded_.bytes.append(reinterpret_cast<const char*>(&count), sizeof count);
}

void ValueInput::find_row_blocks(std::span<const SharedBlock> held) {
  std::uint32_t count = 0;
  if (left_.size() < sizeof count) throw cereal::Exception(kEndsTooEarly);
  std::memcpy(&count, left_.data() + left_.size() - sizeof count, sizeof count);
  left_.remove_suffix(sizeof count);
  if (count > left_.size() / sizeof(RowBlock)) throw cereal::Exception(kEndsTooEarly);
  std::string_view bytes = left_.substr(0, left_.size() - count * sizeof(RowBlock));
  const std::string_view table = left_.substr(bytes.size());
  std::size_t position = 0;
  for (std::size_t i = 0; i < count; ++i) {
    RowBlock row;
    std::memcpy(&row, table.data() + i * sizeof row, sizeof row);
    if (row.position < position || row.position > position + bytes.size())
      throw cereal::Exception("the rows of an archived value are out of order");
    const std::string_view before = bytes.substr(0, row.position - position);
    bytes.remove_prefix(before.size());
    position = row.position;
    (parts_.empty() ? left_ : parts_.back().behind) = before;
    parts_.push_back({row_of(row.block, held), {}});
    bytes_behind_ += row.block.bytes;
  }
  (parts_.empty() ? left_ : parts_.back().behind) = bytes;
  for (const Part& part : parts_) bytes_behind_ += part.behind.size();
}

bool ValueInput::go_on() {
  if (next_part_ == parts_.size()) return false;
  const Part& part = parts_[next_part_];
  if (is_in_row_) {
    left_ = part.behind;
    ++next_part_;
  } else {
    left_ = {reinterpret_cast<const char*>(part.row.data()), part.row.bytes()};
  }
  is_in_row_ = !is_in_row_;
  bytes_behind_ -= left_.size();
  return true;
}

void ValueInput::read_on(void* data, std::size_t bytes) {
  if (bytes > left_.size() + bytes_behind_) throw cereal::Exception(kEndsTooEarly);
  auto* to = static_cast<char*>(data);
  while (bytes > 0) {
    const std::size_t part = std::min(bytes, left_.size());
    to = std::copy_n(left_.data(), part, to);
    left_.remove_prefix(part);
    bytes -= part;
    if (left_.empty() && bytes > 0 && !go_on()) throw cereal::Exception(kEndsTooEarly);
  }
}

const std::byte* ValueInput::next_row_block(std::size_t bytes) {
  if (!left_.empty() || bytes == 0) return nullptr;
  // Past the end of the row that was read last, to one of that length.
  if (is_in_row_ && next_part_ < parts_.size() && parts_[next_part_].behind.empty()) go_on();
  if (is_in_row_ || next_part_ == parts_.size() || parts_[next_part_].row.bytes() != bytes) return nullptr;
  const std::byte* const row = parts_[next_part_].row.data();
  go_on();
  left_ = {};
  return row;
}

}  // namespace retinue::detail

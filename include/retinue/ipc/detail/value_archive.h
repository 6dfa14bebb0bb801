#pragma once

#include <cereal/cereal.hpp>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "retinue/ipc/detail/encoded.h"
#include "retinue/ipc/shared_block.h"

/// The archives that values are sent in. They write numbers as they are in memory, because both sides are one build on
/// one machine. Not used directly.
namespace retinue::detail {

class ValueOutput : public cereal::OutputArchive<ValueOutput, cereal::AllowEmptyClassElision> {
 public:
  explicit ValueOutput(Purpose purpose = Purpose::kValue) : OutputArchive(this), purpose_(purpose) {}
  /// For a message. `announce` is called when the message will be there in some 100 us.
  explicit ValueOutput(std::function<void()> announce)
      : OutputArchive(this), purpose_(Purpose::kMessage), announce_(std::move(announce)) {
    encoded_.bytes.reserve(kUsualMessage);
  }

  ~ValueOutput() override {
    if (!encoded_.undo.empty()) take_back(encoded_);  // Nobody took it, because something threw.
  }
  ValueOutput(const ValueOutput&) = delete;
  ValueOutput& operator=(const ValueOutput&) = delete;

  Purpose purpose() const { return purpose_; }
  /// Call it after the archived object was changed; `undo` must not throw.
  void add_undo(std::function<void()> undo) { encoded_.undo.push_back(std::move(undo)); }
  /// Call it before work of that length.
  void announce() const {
    if (announce_) announce_();
  }

  void write(const void* data, std::size_t bytes) {
    if (bytes >= kLongRow && has_row_blocks(purpose_) && write_block(data, bytes)) return;
    if (bytes != 0) encoded_.bytes.append(static_cast<const char*>(data), bytes);
  }
  void refer_to(const SharedBlock& block) { encoded_.references.push_back(block); }
  /// Keeps `remains`, `bytes` bytes of a message, as long as the Encoded lives, unless they would be too many.
  void leave_behind(std::shared_ptr<void> remains, std::size_t bytes) {
    if (purpose_ != Purpose::kMessage || bytes > may_be_left_behind_) return;
    may_be_left_behind_ -= bytes;
    encoded_.remains.push_back(std::move(remains));
  }
  Encoded take() && {
    if (has_row_blocks(purpose_)) write_row_blocks();
    return std::move(encoded_);
  }

 private:
  static constexpr std::size_t kUsualMessage = 200;  ///< Bytes, for which it allocates once.
  /// The number of bytes from which a block is cheaper than two more copies.
  static constexpr std::size_t kLongRow = std::size_t{256} << 10;

  /// Returns false without a Runtime, and after many rows, because each takes one of the blocks of job memory.
  bool write_block(const void* data, std::size_t bytes);
  void write_row_blocks();

  Encoded encoded_;
  std::vector<RowBlock> rows_;
  Purpose purpose_;
  std::function<void()> announce_;
  std::size_t may_be_left_behind_ = std::size_t{256} << 20;  ///< More would be missing elsewhere.
};

/// While one lives, locks and their like that this thread default-constructs are empty handles until they are read.
class ReadScope {
 public:
  ReadScope() noexcept;
  ~ReadScope();
  ReadScope(const ReadScope&) = delete;
  ReadScope& operator=(const ReadScope&) = delete;

  static bool is_any() noexcept;
};

/// An archive that reads, in place, what ValueOutput wrote for the same purpose.
/// Errors: cereal::Exception if it ends too early; UsageError if it refers to a block that no longer exists.
class ValueInput : public cereal::InputArchive<ValueInput, cereal::AllowEmptyClassElision> {
 public:
  explicit ValueInput(std::string_view bytes, Purpose purpose = Purpose::kValue) : InputArchive(this), left_(bytes) {
    if (has_row_blocks(purpose)) find_row_blocks({});
  }
  /// The caller already holds the rows.
  ValueInput(const Encoded& encoded, Purpose purpose) : InputArchive(this), left_(encoded.bytes) {
    if (has_row_blocks(purpose)) find_row_blocks(encoded.references);
  }

  void read(void* data, std::size_t bytes) {
    if (bytes > left_.size()) return read_on(data, bytes);
    if (bytes != 0) std::memcpy(data, left_.data(), bytes);
    left_.remove_prefix(bytes);
  }
  /// Returns values as one write() wrote them, valid as long as this object lives: in place if they are in a block of
  /// their own, else as a copy.
  template <class T>
  std::span<const T> read_row(std::size_t count) {
    if (count > (left_.size() + bytes_behind_) / sizeof(T)) throw cereal::Exception("an archived row ends too early");
    const void* row = next_row_block(count * sizeof(T));
    if (row == nullptr && count != 0) {
      const auto copy = std::make_shared<T[]>(count);  // Aligned, unlike data inside the archive.
      read(copy.get(), count * sizeof(T));
      row = copy.get();
      copies_.push_back(copy);
    }
    return {static_cast<const T*>(row), count};
  }
  /// Refuses a container's length that its bytes can't have, because it would only fill memory.
  void check_length(std::uint64_t length) const {
    constexpr std::uint64_t kOfEmptyElements = std::uint64_t{1} << 16;
    if (length > left_.size() + bytes_behind_ && length > kOfEmptyElements)
      throw cereal::Exception("an archived value names more elements than it has bytes");
  }

 private:
  /// A row in a block, and what comes after it up to the next row.
  struct Part {
    SharedBlock row;
    std::string_view behind;
  };

  /// `held`: blocks that may include the rows; other rows are held from the job's memory.
  void find_row_blocks(std::span<const SharedBlock> held);
  /// Reads data that continues into the next parts.
  void read_on(void* data, std::size_t bytes);
  /// Makes the next row, or what is behind it, the data left to read. Returns false if nothing follows.
  bool go_on();
  /// Returns null if the next data isn't a row of so many bytes.
  const std::byte* next_row_block(std::size_t bytes);

  std::string_view left_;
  std::vector<Part> parts_;
  std::size_t next_part_ = 0;
  bool is_in_row_ = false;
  std::size_t bytes_behind_ = 0;  ///< Bytes left in later parts.
  std::vector<std::shared_ptr<const void>> copies_;
};

template <class T>
std::enable_if_t<std::is_arithmetic_v<T>> CEREAL_SAVE_FUNCTION_NAME(ValueOutput& output, const T& number) {
  output.write(&number, sizeof number);
}
template <class T>
std::enable_if_t<std::is_arithmetic_v<T>> CEREAL_LOAD_FUNCTION_NAME(ValueInput& input, T& number) {
  if constexpr (std::is_same_v<T, bool>) {
    std::uint8_t byte = 0;  // A value other than 0 and 1 in a bool would be undefined.
    input.read(&byte, sizeof byte);
    number = byte != 0;
  } else {
    input.read(&number, sizeof number);
  }
}

template <class T>
void CEREAL_SAVE_FUNCTION_NAME(ValueOutput& output, const cereal::BinaryData<T>& data) {
  output.write(data.data, static_cast<std::size_t>(data.size));
}
template <class T>
void CEREAL_LOAD_FUNCTION_NAME(ValueInput& input, cereal::BinaryData<T>& data) {
  input.read(data.data, static_cast<std::size_t>(data.size));
}

template <class T>
void CEREAL_SAVE_FUNCTION_NAME(ValueOutput& output, const cereal::NameValuePair<T>& pair) {
  output(pair.value);
}
template <class T>
void CEREAL_LOAD_FUNCTION_NAME(ValueInput& input, cereal::NameValuePair<T>& pair) {
  input(pair.value);
}

template <class T>
void CEREAL_SAVE_FUNCTION_NAME(ValueOutput& output, const cereal::SizeTag<T>& tag) {
  output(static_cast<std::uint64_t>(tag.size));
}
template <class T>
void CEREAL_LOAD_FUNCTION_NAME(ValueInput& input, cereal::SizeTag<T>& tag) {
  std::uint64_t length = 0;
  input(length);
  input.check_length(length);
  tag.size = static_cast<std::decay_t<T>>(length);
}

}  // namespace retinue::detail

CEREAL_REGISTER_ARCHIVE(retinue::detail::ValueOutput)
CEREAL_REGISTER_ARCHIVE(retinue::detail::ValueInput)
CEREAL_SETUP_ARCHIVE_TRAITS(retinue::detail::ValueInput, retinue::detail::ValueOutput)

#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <span>
#include <vector>

#include "collective/elements.h"
#include "collective/pairs.h"
#include "collective/reference.h"
#include "retinue/collective/communicator.h"

namespace retinue::test {

/// Where the ranks' buffers lie.
enum class Place { kPrivate, kPrivateUnaligned, kJob, kJobUnaligned, kMixed };
constexpr Place kPlaces[] = {Place::kPrivate, Place::kPrivateUnaligned, Place::kJob, Place::kJobUnaligned,
                             Place::kMixed};

/// A buffer in the memory that `place` names for this rank, with guards on both sides.
class PlacedBuffer {
 public:
  PlacedBuffer(const JobGroup& group, std::size_t bytes, Place place) : group_(group), bytes_(bytes) {
    const bool in_job =
        place == Place::kJob || place == Place::kJobUnaligned || (place == Place::kMixed && group.rank % 2 == 0);
    const bool unaligned = place == Place::kPrivateUnaligned || place == Place::kJobUnaligned;
    const std::size_t shift = kGuard + (unaligned ? 1 + 2 * static_cast<std::size_t>(group.rank) : 0);
    std::byte* base;
    if (in_job) {
      block_ = group.memory->allocate(shift + bytes + kGuard);
      base = group.memory->at(block_.offset);
    } else {
      own_.resize(shift + bytes + kGuard);
      base = own_.data();
    }
    data_ = base + shift;
    std::memset(data_ - kGuard, kGuardByte, kGuard);
    std::memset(data_ + bytes, kGuardByte, kGuard);
  }
  ~PlacedBuffer() {
    EXPECT_TRUE(is_guard(data_ - kGuard)) << "written before the buffer";
    EXPECT_TRUE(is_guard(data_ + bytes_)) << "written behind the buffer";
    if (block_) group_.memory->release(block_);
  }
  PlacedBuffer(const PlacedBuffer&) = delete;
  PlacedBuffer& operator=(const PlacedBuffer&) = delete;

  std::byte* data() const { return data_; }

 private:
  static constexpr std::size_t kGuard = 64;
  static constexpr int kGuardByte = 0x5a;

  static bool is_guard(const std::byte* bytes) {
    std::byte guard[kGuard];
    std::memset(guard, kGuardByte, kGuard);
    return std::memcmp(bytes, guard, kGuard) == 0;
  }

  const JobGroup& group_;
  std::size_t bytes_;
  BlockHandle block_;
  std::vector<std::byte> own_;
  std::byte* data_;
};

/// `to` needs no alignment.
template <typename T>
void write_elements(std::byte* to, std::span<const T> elements) {
  if (!elements.empty()) std::memcpy(to, elements.data(), elements.size_bytes());
}

/// How many of `bytes` aren't the first that `rank` gives.
inline std::size_t wrong_bytes(Bytes bytes, std::uint64_t seed, int rank) {
  return count_wrong<std::uint8_t>(bytes.data(), elements<std::uint8_t>(seed, rank, 0, bytes.size()));
}

/// All-reduces `count` elements and compares every bit with the serial loop.
template <typename T>
void check_all_reduce(Communicator& communicator, ReduceOp op, std::size_t count, Place place, std::uint64_t seed) {
  const PlacedBuffer buffer(communicator.group(), count * sizeof(T), place);
  write_elements<T>(buffer.data(), elements<T>(seed, communicator.rank(), 0, count));
  communicator.all_reduce(buffer.data(), count, DtypeOf<T>::value, op);
  EXPECT_EQ(count_wrong<T>(buffer.data(), reduced_elements<T>(op, seed, communicator.size(), 0, count)), 0u)
      << name_of(DtypeOf<T>::value) << " " << name_of(op) << " count " << count << " place " << static_cast<int>(place);
}

}  // namespace retinue::test

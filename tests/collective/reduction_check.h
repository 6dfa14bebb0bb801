#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
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
    std::fill_n(data_ - kGuard, kGuard, std::byte{0x5a});
    std::fill_n(data_ + bytes, kGuard, std::byte{0x5a});
  }
  ~PlacedBuffer() {
    for (std::size_t i = 0; i < kGuard; ++i) {
      EXPECT_EQ(data_[-1 - static_cast<std::ptrdiff_t>(i)], std::byte{0x5a}) << "written before the buffer";
      EXPECT_EQ(data_[bytes_ + i], std::byte{0x5a}) << "written behind the buffer";
    }
    if (block_) group_.memory->release(block_);
  }
  PlacedBuffer(const PlacedBuffer&) = delete;
  PlacedBuffer& operator=(const PlacedBuffer&) = delete;

  std::byte* data() const { return data_; }

 private:
  static constexpr std::size_t kGuard = 64;

  const JobGroup& group_;
  std::size_t bytes_;
  BlockHandle block_;
  std::vector<std::byte> own_;
  std::byte* data_;
};

/// All-reduces `count` elements and compares every bit with the serial loop.
template <typename T>
void check_all_reduce(Communicator& communicator, ReduceOp op, std::size_t count, Place place, std::uint64_t seed) {
  const PlacedBuffer buffer(communicator.group(), count * sizeof(T), place);
  for (std::size_t i = 0; i < count; ++i) {
    const T value = element<T>(seed, communicator.rank(), i);
    std::memcpy(buffer.data() + i * sizeof(T), &value, sizeof value);
  }
  communicator.all_reduce(buffer.data(), count, DtypeOf<T>::value, op);
  std::vector<T> by_rank(static_cast<std::size_t>(communicator.size()));
  for (std::size_t i = 0; i < count; ++i) {
    for (int rank = 0; rank < communicator.size(); ++rank)
      by_rank[static_cast<std::size_t>(rank)] = element<T>(seed, rank, i);
    T result;
    std::memcpy(static_cast<void*>(&result), buffer.data() + i * sizeof(T), sizeof result);
    if (same(result, reference(op, by_rank))) continue;
    ADD_FAILURE() << name_of(DtypeOf<T>::value) << " " << name_of(op) << " count " << count << " place "
                  << static_cast<int>(place) << ": element " << i << " differs";
    return;
  }
}

}  // namespace retinue::test

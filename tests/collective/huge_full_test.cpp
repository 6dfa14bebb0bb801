// Buffers of more than 4 GiB: their bytes, and elements, don't fit 32 bits. Two ranks need 9 GiB and more.
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <memory>
#include <string>

#include "collective/elements.h"
#include "retinue/collective/communicator.h"
#include "retinue/ipc/job_memory.h"
#include "support/ranks.h"

namespace retinue::test {
namespace {

constexpr std::size_t kGiB = std::size_t{1} << 30;
constexpr std::size_t kBytes = 4 * kGiB + 12345;
constexpr std::size_t kNeededBytes = 11 * kGiB;

std::size_t available_bytes() {
  std::ifstream file("/proc/meminfo");
  std::string name;
  std::size_t kib = 0;
  while (file >> name >> kib) {
    if (name == "MemAvailable:") return kib << 10;
    file.ignore(100, '\n');
  }
  return 0;
}

/// Zeros, in job memory or in this process's own, of which no page is there before it is touched.
class HugeBuffer {
 public:
  HugeBuffer(const JobGroup& group, std::size_t bytes, bool in_job) : group_(group) {
    if (in_job) {
      block_ = group.memory->allocate(bytes);
      data_ = group.memory->at(block_.offset);
    } else {
      own_.reset(static_cast<std::byte*>(std::calloc(bytes, 1)));
      data_ = own_.get();
    }
  }
  ~HugeBuffer() {
    if (block_) group_.memory->release(block_);
  }
  HugeBuffer(const HugeBuffer&) = delete;
  HugeBuffer& operator=(const HugeBuffer&) = delete;
  std::byte* data() const { return data_; }

 private:
  struct Free {
    void operator()(std::byte* data) const { std::free(data); }
  };

  const JobGroup& group_;
  BlockHandle block_;
  std::unique_ptr<std::byte, Free> own_;
  std::byte* data_;
};

/// Calls visit(i) for places in all of `bytes` bytes: around multiples of 1 GiB, at both ends, and here and there.
template <typename Visit>
void for_each_place(std::size_t bytes, Visit visit) {
  for (std::size_t at = 0; at <= bytes; at += kGiB / 2)
    for (std::size_t i = at < 64 ? 0 : at - 64; i < std::min(at + 64, bytes); ++i) visit(i);
  for (std::size_t i = 64; i + 64 < bytes; i += 999'983) visit(i);
  for (std::size_t i = bytes - 64; i < bytes; ++i) visit(i);
}

std::byte byte_of(int rank, std::size_t i) {
  return static_cast<std::byte>(hash(3, rank, i) | 1);  // Not what untouched memory holds.
}

void fill(std::byte* data, std::size_t bytes, int rank) {
  for_each_place(bytes, [&](std::size_t i) { data[i] = byte_of(rank, i); });
}

template <typename Wanted>
void expect_places(const std::byte* data, std::size_t bytes, Wanted wanted) {
  std::size_t wrong = 0;
  for_each_place(bytes, [&](std::size_t i) { wrong += data[i] != wanted(i); });
  EXPECT_EQ(wrong, 0u);
  // Between the places there is nothing.
  std::size_t nonzero = 0;
  for (std::size_t i = 500'000; i + 64 < bytes; i += std::size_t{7} * 999'983)
    if (i % (kGiB / 2) > 64 && i % (kGiB / 2) < kGiB / 2 - 64 && (i - 64) % 999'983 != 0)
      nonzero += data[i] != std::byte{};
  EXPECT_EQ(nonzero, 0u);
}

class Huge : public testing::TestWithParam<bool> {
 protected:
  void SetUp() override {
    if (is_sanitized()) GTEST_SKIP() << "a sanitizer needs several times the memory";
    const std::size_t available = available_bytes();
    if (available < kNeededBytes)
      GTEST_SKIP() << "needs " << kNeededBytes / kGiB << " GiB of memory, and " << available / kGiB << " are available";
  }

  /// Calls body(communicator, buffer of `bytes` bytes) on two ranks.
  template <typename Body>
  static void run(std::size_t bytes, Body body) {
    run_ranks(2,
              [&](const JobGroup& group) {
                Communicator communicator(group);
                const HugeBuffer buffer(group, bytes, GetParam());
                body(communicator, buffer.data());
              },
              {.timeout = std::chrono::minutes(20), .memory_bytes = kNeededBytes});
  }
};
INSTANTIATE_TEST_SUITE_P(InJobMemory, Huge, testing::Bool());

TEST_P(Huge, IsReduced) {
  run(kBytes, [](Communicator& group, std::byte* data) {
    fill(data, kBytes, group.rank());
    group.all_reduce(data, kBytes, Dtype::kUint8, ReduceOp::kBitXor);
    expect_places(data, kBytes, [](std::size_t i) { return byte_of(0, i) ^ byte_of(1, i); });
  });
}

TEST_P(Huge, IsBroadcast) {
  run(kBytes, [](Communicator& group, std::byte* data) {
    if (group.rank() == 1) fill(data, kBytes, 1);
    group.broadcast(data, kBytes, 1);
    expect_places(data, kBytes, [](std::size_t i) { return byte_of(1, i); });
  });
}

TEST_P(Huge, IsGathered) {
  constexpr std::size_t kPart = 2 * kGiB + 4321;
  run(2 * kPart, [](Communicator& group, std::byte* data) {
    std::byte* const own = data + static_cast<std::size_t>(group.rank()) * kPart;
    fill(own, kPart, group.rank());
    group.all_gather(own, data, kPart);
    for (const int rank : {0, 1})
      expect_places(data + static_cast<std::size_t>(rank) * kPart, kPart,
                    [&](std::size_t i) { return byte_of(rank, i); });
  });
}

TEST_P(Huge, IsSent) {
  run(kBytes, [](Communicator& group, std::byte* data) {
    if (group.rank() == 0) {
      fill(data, kBytes, 0);
      group.send(std::span(data, kBytes), 1);
    } else {
      EXPECT_EQ(group.recv(std::span(data, kBytes), 0).bytes, kBytes);
      expect_places(data, kBytes, [](std::size_t i) { return byte_of(0, i); });
    }
  });
}

}  // namespace
}  // namespace retinue::test

#pragma once

#include <cereal/cereal.hpp>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "fuzz/targets.h"
#include "retinue/base/error.h"
#include "retinue/ipc/job_memory.h"
#include "retinue/ipc/shared_block.h"

namespace retinue::fuzz {

/// Takes an input apart; what is missing at its end reads as zero.
class Input {
 public:
  explicit Input(Bytes bytes) : left_(bytes) {}

  template <class Number>
  Number number() {
    Number value = 0;
    const Bytes bytes = take(sizeof value);
    std::memcpy(&value, bytes.data(), bytes.size());
    return value;
  }
  Bytes take(std::size_t most) {
    const Bytes taken = left_.first(std::min(most, left_.size()));
    left_ = left_.subspan(taken.size());
    return taken;
  }
  Bytes rest() { return take(left_.size()); }
  bool is_empty() const { return left_.empty(); }

 private:
  Bytes left_;
};

/// Must hold whatever the input was.
inline void require(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "fuzz: %s\n", what);
  std::abort();
}

/// What an object that was overwritten may refuse.
template <class Body>
void attempt(Body body) {
  try {
    body();
  } catch (const Error&) {
    // Closed, or what is there can't be.
  } catch (const cereal::Exception&) {
    // Nor can a message.
  }
}

/// The job that all inputs meet: some blocks, which handles in an input may name.
class Job {
 public:
  static Job& instance();

  const std::shared_ptr<JobMemory>& memory() const { return memory_; }
  /// The input with every "HNDL" made a handle, so that corpora outlive changes of the layout: of block [4], in which
  /// field [5] (1: generation, 2: index, 3: offset, 4: bytes) is greater by the number at [8].
  std::string with_handles(Bytes input) const;
  /// That it is one of the job's blocks, or nothing.
  void check(const SharedBlock& block) const;

 private:
  Job();

  std::shared_ptr<JobMemory> memory_;
  std::vector<SharedBlock> blocks_;
};

/// Bytes of job memory that an input overwrites in places: {offset as 16 bits, count as 8 bits, bytes} again and again.
void overwrite(Input& input, std::span<std::byte> memory);

/// `body` allocates as much as it frees.
template <class Body>
void without_leaks(Body body) {
  const std::size_t before = Job::instance().memory()->allocated_bytes();
  body();
  require(Job::instance().memory()->allocated_bytes() == before, "a block was left, or freed twice");
}

}  // namespace retinue::fuzz

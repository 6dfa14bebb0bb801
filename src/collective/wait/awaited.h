#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>

#include "collective/board/board.h"

namespace retinue {

/// Words that must all reach a target: one per member, at equal distances, for the ranks from `first` to before `last`.
struct WordSet {
  const std::byte* base;  ///< Rank 0's word.
  int first;
  int last;

  const std::atomic<std::uint64_t>& word(int rank) const {
    return *reinterpret_cast<const std::atomic<std::uint64_t>*>(base + static_cast<std::size_t>(rank) * sizeof(Member));
  }

  /// Moves `late` to the first rank whose word is below `target`; true if there is none.
  bool advance(std::uint64_t target, int& late) const {
    // Sequentially consistent for who is about to park: see Waiter.
    while (word(late).load(std::memory_order_seq_cst) >= target)
      if (++late == last) return true;
    return false;
  }
};

/// Who must act for a wait to end.
enum class Needs : std::uint8_t {
  kEachLate,  ///< Each member that is late.
  kAnyLate,   ///< One of them.
  kUnknown,   ///< Perhaps none of them: another thread of this process may end it.
};

/// What a member waits for, where that is more than words.
class Awaited {
 public:
  /// Whether it has come; may do what it takes.
  virtual bool arrived() = 0;
  /// Whether it depends on this member.
  virtual bool is_late(int rank) const = 0;
  /// Whether others are told so; of several things to wait for only one may be what is needed.
  virtual bool is_reported_late(int rank) const { return is_late(rank); }
  /// Whether it cannot come any more, because this member is lost.
  virtual bool is_in_vain_without(int rank) const { return is_late(rank); }
  /// For Member::parked_for: who must ring. Where that changes, who is about to park looks again.
  virtual std::uint32_t bell_ringer() const { return kAnybody; }
  virtual Needs needs() const { return Needs::kEachLate; }
  /// Whether it ends by itself before the group's timeout, without an error.
  virtual bool has_own_deadline() const { return false; }
  /// Whether it is for a message, and not for a collective.
  virtual bool is_for_message() const { return false; }
  /// As "waits to send 8 bytes to rank 1 (tag 0) at train.cpp:12"; empty: it is for the member's newest collective.
  virtual std::string describe() const { return {}; }

 protected:
  ~Awaited() = default;
};

/// Words that must all reach a target; the late ones one after the other, from `late` on.
class AwaitedWords final : public Awaited {
 public:
  AwaitedWords(const WordSet& words, std::uint64_t target, int late) : words_(words), target_(target), late_(late) {}

  bool arrived() override { return late_ == words_.last || words_.advance(target_, late_); }
  bool is_late(int rank) const override {
    return rank >= late_ && rank < words_.last && words_.word(rank).load(std::memory_order_acquire) < target_;
  }
  std::uint32_t bell_ringer() const override { return static_cast<std::uint32_t>(late_) + 1; }

 private:
  WordSet words_;
  std::uint64_t target_;
  int late_;
};

}  // namespace retinue

#pragma once

#include <cstdint>
#include <utility>

#include "retinue/ipc/archive.h"
#include "retinue/ipc/shared_block.h"

namespace retinue {

/// The kind of object in a block, so that one object never arrives as another.
enum class SyncKind : std::uint32_t {
  kLock = 1,
  kRLock = 2,
  kSemaphore = 3,
  kBoundedSemaphore = 4,
  kEvent = 5,
  kCondition = 6,
  kBarrier = 7,
};

namespace detail {

/// The base of locks, events and their like: each is a handle of an object in a block of its own. Copies, and handles
/// that arrive where one was sent, refer to the same object. Not used directly.
class SyncHandle {
 public:
  // No moves: `return lock;` inside a lock_guard would leave the guard an empty handle, and the lock locked for ever.
  SyncHandle(const SyncHandle&) = default;
  SyncHandle& operator=(const SyncHandle&) = default;

  /// Returns false if the handle is empty.
  explicit operator bool() const noexcept { return static_cast<bool>(block_); }
  friend bool operator==(const SyncHandle& a, const SyncHandle& b) noexcept { return a.block_ == b.block_; }

  template <class Archive>
  void save(Archive& archive) const {
    archive(block_);
  }
  /// Errors: UsageError if an object of another kind arrives.
  template <class Archive>
  void load(Archive& archive) {
    SharedBlock block;
    archive(block);
    check(block);
    block_ = std::move(block);
  }

 protected:
  explicit SyncHandle(SyncKind kind) noexcept : kind_(kind) {}

  /// Returns whether a default constructor makes an object: if this process has a job, and the object isn't to be read.
  static bool is_to_be_made() noexcept;

  SharedBlock block_;

 private:
  void check(const SharedBlock& block) const;

  SyncKind kind_;
};

}  // namespace detail
}  // namespace retinue

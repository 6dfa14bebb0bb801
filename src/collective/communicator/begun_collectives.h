#pragma once

#include <deque>
#include <exception>
#include <string>
#include <vector>

#include "collective/algorithms/paths.h"
#include "collective/diagnosis/call_log.h"
#include "collective/session/operation.h"
#include "collective/session/session.h"

namespace retinue {

/// A collective that was begun. `what`, and lists of parts in it, may be gone when it goes on: it has copies.
class CollectiveOperation final : public Operation {
 public:
  /// Errors: UsageError for what no group could do.
  CollectiveOperation(OperationDriver& engine, const Session& session, const CollectiveCall& what, CallSite site);
  ~CollectiveOperation() override { drop_unless_done(); }

  bool is_late(int rank) const override { return session_.awaits(rank); }
  bool is_under_way() const override { return all_have_come_; }
  std::string describe() const override { return "waits in " + name(); }
  /// As "all_reduce, started at train.cpp:12".
  std::string name() const;
  const Call& call() const { return call_; }
  void note_that_all_have_come() { all_have_come_ = true; }

 private:
  static CollectiveCall with_own_lists(CollectiveCall what, std::vector<ConstBytes>& inputs,
                                       std::vector<Bytes>& outputs);

  const Session& session_;
  std::vector<ConstBytes> inputs_;
  std::vector<Bytes> outputs_;
  CollectiveCall what_;
  Call call_;
  bool all_have_come_ = false;
};

/// Collectives that were begun, in the order in which they were: the first is under way, its successor begins when it
/// has ended. There is no helper thread: advance() does what can be done without waiting.
///
/// Threads: one at a time.
class BegunCollectives {
 public:
  BegunCollectives(Session& session, CallLog& log, EndedOperations& ended)
      : session_(session), log_(log), ended_(ended) {}

  bool empty() const { return operations_.empty(); }
  /// Whether the first's line is published.
  bool has_published() const { return stage_ != Stage::kQueued; }
  /// The collective that the operation is, of those that have not ended; or null.
  const CollectiveOperation* find(const Operation& operation) const;
  /// The one that was begun first, of those that have not ended, and the one that was begun last.
  CollectiveOperation& first() { return *operations_.front(); }
  CollectiveOperation& last() { return *operations_.back(); }

  /// This member's line is published at once, where none is before it and publishing needs no wait.
  void start(CollectiveOperation& operation);
  void advance();
  /// Ends all with `error`.
  void fail_all(const std::exception_ptr& error);

 private:
  enum class Stage { kQueued, kPublished, kOnItsPath };

  void publish(const Call& call);
  /// Returns whether it has ended.
  bool go_on(CollectiveOperation& operation);
  void end_first(std::exception_ptr error);

  Session& session_;
  CallLog& log_;
  EndedOperations& ended_;
  std::deque<CollectiveOperation*> operations_;
  Stage stage_ = Stage::kQueued;  ///< Of the first.
  Steps steps_;
};

}  // namespace retinue

#pragma once

#include <chrono>
#include <cstdint>
#include <exception>
#include <string>
#include <vector>

#include "collective/board.h"
#include "collective/buffer_list.h"
#include "collective/call.h"
#include "collective/kernels.h"
#include "collective/pointer_lists.h"
#include "collective/rendezvous.h"
#include "collective/select.h"
#include "collective/waiter.h"
#include "ipc/crash_point.h"
#include "retinue/collective/options.h"
#include "retinue/ipc/job_group.h"

namespace retinue {

class Reporter;
struct Lane;

/// One member's part in a group: publishes its lines, waits for the others', turns trouble into errors.
///
/// Threads: one at a time.
class Session {
 public:
  /// Joins the board and waits for all members.
  Session(JobGroup group, const CommunicatorOptions& options);
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  /// Publishes the line of the next call. Waits only where it would write over what others, far behind, still read.
  void publish(const Call& call);

  /// Whether publish() would wait for nobody.
  bool can_publish(const Call& call);
  /// Whether all members published the line of this call.
  bool all_have_come();

  /// Waits for these members' lines and checks that they agree with this one's.
  Arrival await_arrival(const Call& call, RankRange ranks);
  /// The same of all, in earlier calls, too.
  Arrival await_arrival(const Call& call) { return await_arrival(call, {0, size()}); }
  bool has_line(int rank) const { return line(rank).sequence.load(std::memory_order_acquire) >= sequence_; }
  /// Of a line that is there: whether it is this member's too, but for where the data are.
  bool has_same_line(int rank) const;
  /// Waits until one of them has come to this call.
  void await_any_line(const std::vector<int>& ranks, JobDeadline deadline);
  JobDeadline deadline() const { return JobDeadline::after(memory().header(), waiter_.timeout()); }
  /// Of a line that was awaited: whether its member's data are in it, or in staging, and it leaves at once.
  bool gives_at_once(const Call& call, int giver) const;

  /// Marks `step` of this call, counted from 1, as done, and all before it.
  void post(std::uint64_t step) {
    RETINUE_CRASH_POINT();
    own_.progress.store(sequence_ << kStepBits | step, std::memory_order_seq_cst);
    RETINUE_CRASH_POINT();
    waiter_.posted();
  }
  /// Waits until these members posted `step`; where Steps are put aside, looks, and keeps in mind what is awaited.
  bool has_posted(RankRange ranks, std::uint64_t step);
  /// To be called before this member touches the others' buffers, until it posts the call's first step. Fails where one
  /// of them failed in this call: its buffer may be its caller's again.
  void enter();
  /// The same after it, before it posts, for data of `giver`. It may have been killed, and its memory be another's now;
  /// and it waits for this member, but not for ever.
  void check_giver(int giver);
  /// After enter() and a wait for those who may have been at this member's buffers. Fails where one of them failed:
  /// they posted all the same.
  void check_release();
  /// Whether what put them aside has come.
  bool can_go_on() { return awaited_.arrived(); }
  /// Whether a call that was begun and is this member's newest waits for that rank.
  bool awaits(int rank) const { return awaited_.is_late(rank); }
  /// Such a call can't be waited for any longer. Throws why.
  [[noreturn]] void fail_begun(Waiter::Outcome outcome);
  void note_opening() { board_.header().opening_calls.store(sequence_, std::memory_order_relaxed); }
  /// This member's part in the call is over, and all went well.
  void end_call() { is_in_call_ = false; }

  int rank() const noexcept { return group_.rank; }
  int size() const noexcept { return board_.size(); }
  const JobGroup& group() const noexcept { return group_; }
  const JobMemory& memory() const noexcept { return *group_.memory; }
  /// Copies into staging or a chunk, for the others to read.
  void fill_shared(std::byte* to, const void* data, std::size_t bytes) const;
  const Board& board() const noexcept { return board_; }
  const Line& line(int rank) const { return board_.member(rank).lines[sequence_ % kLines]; }
  std::uint8_t place(int rank) const { return place_of(line(rank).head.load(std::memory_order_relaxed)); }
  const std::byte* stage(int rank) const {
    return (place(rank) & kInSmallStage) != 0 ? board_.small_stage(rank, sequence_) : board_.stage(rank, sequence_);
  }
  /// Where the root's result of a reduce goes, in job memory; for calls whose data are there.
  std::uint64_t output_offset(int rank) const { return line(rank).inline_data[0].load(std::memory_order_relaxed); }
  PointerLists& scratch() { return scratch_; }
  /// Where collectives of this group change their path: the same on all members, who change it at the same calls.
  const PathTable& paths() const { return paths_; }
  TableSource paths_source() const { return paths_source_; }
  void set_paths(const PathTable& paths, TableSource source);
  /// Of this call, if it is an all_reduce_coalesced.
  const BufferList& buffers() const { return buffers_; }
  Waiter& waiter() noexcept { return waiter_; }
  const Waiter& waiter() const noexcept { return waiter_; }

  /// Errors: those that broke the group.
  void check_usable();
  /// The lane from this member to another: empty, and not there yet. Errors: SharedMemoryExhausted.
  Lane& make_lane(int receiver);
  /// The first `count` arrays of scratch's `sources`, with the factors of their ranks.
  ReduceSources reduce_sources(int count, ReduceOp op);
  void set_timeout(std::chrono::nanoseconds timeout) { waiter_.set_timeout(timeout); }

  /// `giver` gives another number of bytes than this member takes. Who doesn't wait for it learns that in a later call.
  [[noreturn]] void fail_sizes(int giver, std::size_t given, std::size_t wanted);
  /// A message can't be sent or received: the group is of no use any more, unless it was none before. Doesn't throw.
  void fail_message(const std::string& text);
  /// The function by which this member reduces threw `error`. Throws that.
  [[noreturn]] void fail_by(std::exception_ptr error);
  /// Fails where another failed so far. To be called now and then by who takes its time at the others' buffers.
  void check_members() {
    if (has_failed_member()) fail_poisoned();
  }
  /// Whether this member failed, or another told that it did.
  bool is_broken() const { return failure_ != nullptr || is_poisoned(); }
  /// After a wait for a message that didn't end well. `wait`: as "waits to send 8 bytes to rank 1".
  /// `timeout`: that passed, if it did.
  [[noreturn]] void fail_waiting(Waiter::Outcome outcome, const Awaited& awaited, const std::string& wait,
                                 std::chrono::nanoseconds timeout);
  const std::exception_ptr& failure() const { return failure_; }

  /// Makes every later call fail, because one was begun and never finished.
  void abandon();

 private:
  friend class PutAside;
  bool is_poisoned() const { return board_.header().poison.state.load(std::memory_order_seq_cst) != Poison::kNone; }
  /// Whether a member failed in this call or before: its buffers may be its caller's again.
  bool has_failed_member() const;
  WordSet line_sequences(std::uint64_t sequence, RankRange ranks) const;
  /// Which call all must have published before this member publishes `sequence`; 0: that is so already.
  std::uint64_t call_before(std::uint64_t sequence) const;
  /// Waits until all members have published `sequence`, and so are done with what was before it; checks all up to it.
  void await_agreement(std::uint64_t sequence);
  /// Of calls that all have published: fails where they differ, as far as nobody else has looked.
  void check_calls_until(std::uint64_t sequence);
  bool same_functions(RankRange ranks) const;
  WordSet progress_words(RankRange ranks) const;
  /// Where this member may stage so much for its call.
  std::byte* own_stage(std::size_t bytes);
  /// Copies the data into staging if they belong there; says where they are.
  std::uint8_t stage_data(const Call& call);
  std::uint8_t stage_parts(const Call& call);
  std::uint8_t stage_buffers(const Call& call);
  /// Fails where members of an all_reduce_coalesced have different lists of buffers.
  void check_buffers();

  [[noreturn]] void fail(Waiter::Outcome outcome, const WordSet& words, std::uint64_t target);
  [[noreturn]] void fail(Waiter::Outcome outcome, const Awaited& awaited, const Reporter& report,
                         std::chrono::nanoseconds timeout);
  [[noreturn]] void fail_mismatch(std::uint64_t sequence);
  [[noreturn]] void fail_poisoned();
  /// Throws why the group failed; before that it waits until no living member may touch this one's buffers, because the
  /// caller may free them then. A member that is stopped for long is not waited for.
  [[noreturn]] void leave();
  void await_nobody_inside();
  /// First of all that a failing member does.
  void note_failed_call();
  /// Makes this and every later call fail, here and, unless somebody has told them of a failure before, on the others.
  void break_group(FailureKind kind, const std::string& text, const std::vector<int>& ranks);
  /// The same, unless somebody broke it before: then for that one's reason.
  void break_group_once(FailureKind kind, const std::string& text, const std::vector<int>& ranks);
  void tell(FailureKind kind, const std::string& text, const std::vector<int>& ranks);
  void set_failure_from_poison();
  void set_failure(FailureKind kind, const std::string& text, const std::vector<int>& ranks);

  JobGroup group_;
  JoinedBoard joined_;
  Board board_;
  Member& own_;
  Waiter waiter_;
  PointerLists scratch_;
  PathTable paths_;
  TableSource paths_source_;
  BufferList buffers_;
  std::uint64_t sequence_ = 0;
  std::uint64_t agreed_ = 0;  ///< All members have published this call, and those before it were the same on all.
  bool is_in_call_ = false;
  bool puts_aside_ = false;
  AwaitedWords awaited_{{nullptr, 0, 0}, 0, 0};  ///< By the newest call, if it was begun.
  SiteWriter sites_[kLines];
  NameWriter names_[kLines];
  std::exception_ptr failure_;
};

}  // namespace retinue

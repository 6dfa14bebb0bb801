#pragma once

#include <chrono>
#include <cstdint>
#include <exception>
#include <string>
#include <vector>

#include "collective/board/board.h"
#include "collective/board/places.h"
#include "collective/board/pointer_lists.h"
#include "collective/board/rendezvous.h"
#include "collective/board/stage_ring.h"
#include "collective/call/buffer_list.h"
#include "collective/call/call.h"
#include "collective/call/select.h"
#include "collective/kernels/kernels.h"
#include "collective/wait/waiter.h"
#include "os/testing/crash_point.h"
#include "retinue/collective/options.h"
#include "retinue/ipc/job_group.h"

namespace retinue {

class Reporter;
struct Channel;

/// One member's part in a group: publishes its lines, waits for the others', turns trouble into errors.
///
/// Threads: one at a time.
class Session {
 public:
  /// Joins the board and waits for all members.
  Session(JobGroup group, const CommunicatorOptions& options, const CallSite& site = {});
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  /// Publishes the line of the next call. Waits only where it would write over what others, far behind, still read.
  void publish(const Call& call);
  /// Whether publish() would wait for nobody.
  bool can_publish(const Call& call);
  /// Whether all members published the line of this call.
  bool all_have_come();

  /// Waits for these members' lines and checks that they agree with this one's; of all: in earlier calls, too.
  Arrival await_arrival(const Call& call, RankRange ranks);
  Arrival await_arrival(const Call& call) { return await_arrival(call, {0, size()}); }
  /// Waits until one of them has come to this call.
  void await_any_line(const std::vector<int>& ranks, JobDeadline deadline);
  /// Waits for the lines of all members that aren't lost, and fails naming all that are missing: the lost ones, too.
  void await_all_who_can_come();
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
  /// The same after it, before it posts: `giver` may have been killed, and its memory be another's by now.
  void check_giver(int giver);
  bool can_go_on() { return awaited_.arrived(); }
  /// Whether a call that was begun and is this member's newest waits for that rank.
  bool awaits(int rank) const { return awaited_.is_late(rank); }
  /// Such a call can't be waited for any longer, or not longer than `timeout`. Throws why.
  [[noreturn]] void fail_begun(Waiter::Outcome outcome, std::chrono::nanoseconds timeout);
  void note_opening() { board_.header().opening_calls.store(sequence_, std::memory_order_relaxed); }
  /// This member's part in the call is over, and all went well.
  void end_call() { is_in_call_ = false; }

  int rank() const noexcept { return group_.rank; }
  int size() const noexcept { return board_.size(); }
  std::uint64_t sequence() const noexcept { return sequence_; }
  const JobGroup& group() const noexcept { return group_; }
  const JobMemory& memory() const noexcept { return *group_.memory; }
  /// Copies into staging or a chunk, for the others to read.
  void fill_shared(std::byte* to, const void* data, std::size_t bytes) const;
  const Board& board() const noexcept { return board_; }
  const Places& places() const noexcept { return places_; }
  /// Whether members look for the lines of such a call in their leader's copies first.
  bool relays(const Call& call) const;
  const LineData& line(int rank) const {
    return relayed_ != nullptr ? relayed_[rank] : board_.member(rank).lines[sequence_ % kLines];
  }
  std::uint8_t place(int rank) const { return place_of(line(rank).head.load(std::memory_order_relaxed)); }
  const std::byte* stage(int rank) const { return board_.staging(rank) + staged_at(line(rank)); }
  StageRing& staging() { return staging_; }
  PointerLists& scratch() { return scratch_; }
  /// Where collectives of this group change their path: the same on all members, who change it at the same calls.
  const PathTable& paths() const { return paths_.table; }
  TableSource paths_source() const { return paths_.source; }
  void set_paths(const ChosenTable& paths) { paths_ = paths; }
  /// Of this call, if it is an all_reduce_coalesced.
  const BufferList& buffers() const { return buffers_; }
  Waiter& waiter() noexcept { return waiter_; }
  const Waiter& waiter() const noexcept { return waiter_; }
  /// Errors: those that broke the group.
  void check_usable();
  /// The channel from this member to another: empty, and not there yet. Errors: SharedMemoryExhausted.
  Channel& make_channel(int receiver);
  /// The first `count` arrays of scratch's `sources`, with the factors of their ranks.
  ReduceSources reduce_sources(int count, ReduceOp op);
  /// `giver` gives another number of bytes than this member takes. Who doesn't wait for it learns that in a later call.
  [[noreturn]] void fail_sizes(int giver, std::size_t given, std::size_t wanted);
  /// A message can't be sent or received: the group is of no use any more, unless it was none before. Doesn't throw.
  void fail_message(const std::string& text);
  void drop_message(const std::string& wait);  ///< The same, of one that "waits to send 8 bytes to rank 1".
  /// The function by which this member reduces threw `error`. Throws that.
  [[noreturn]] void fail_by(std::exception_ptr error);
  /// In a handler of what a call threw, for what others don't throw as well, as for want of memory: they are told.
  void fail_by_surprise() noexcept;
  /// Fails where another failed so far. To be called now and then by who takes its time at the others' buffers, and
  /// after a wait for those who may have been at this member's: who failed posted all the same.
  void check_members();
  /// Whether this member failed, or another told that it did.
  bool is_broken() const { return failure_ != nullptr || is_poisoned(); }
  /// After a wait for a message that didn't end well. `wait`: as above. `timeout`: that passed, if it did.
  [[noreturn]] void fail_waiting(Waiter::Outcome outcome, const Awaited& awaited, const std::string& wait,
                                 std::chrono::nanoseconds timeout);
  const std::exception_ptr& failure() const { return failure_; }

  /// Makes every later call fail, because what was begun, as "all_reduce, started at a.cpp:1", will never be finished.
  void abandon(const std::string& begun, const std::string& how);
  /// Whether this process was forked by fork() from the member's: it may neither call nor take leave for it.
  bool is_in_a_fork() const { return !memory().is_of_this_process(); }
  /// After a failure: until nobody who lives may be at this member's buffers of the call that it is in.
  void await_nobody_inside();

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
  /// Where this member may stage so much for its call, once.
  std::byte* own_stage(std::size_t bytes);
  /// Whether all lines of this call came so, in the time in which members that come together do.
  bool arrive_by_relay(const Call& call);
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
  [[noreturn]] void fail_interrupted(const Reporter& report);
  /// Throws why the group failed, once nobody is at this member's buffers: the caller may free them then.
  [[noreturn]] void leave();
  /// First of all that a failing member does.
  void note_failed_call();
  /// Makes this and every later call fail, here and, unless somebody has told them of a failure before, on the others.
  void break_group(FailureKind kind, const std::string& text, const std::vector<int>& ranks);
  /// The same, unless somebody broke it before: then for that one's reason.
  void break_group_once(FailureKind kind, const std::string& text, const std::vector<int>& ranks);
  void set_failure_from_poison();
  void set_failure(FailureKind kind, const std::string& text, const std::vector<int>& ranks);

  JobGroup group_;
  JoinedBoard joined_;
  Board board_;
  Member& own_;
  Waiter waiter_;
  PointerLists scratch_;
  Places places_;
  const LineData* relayed_ = nullptr;  ///< The lines of this call, where they came by a relay.
  ChosenTable paths_;
  BufferList buffers_;
  std::uint64_t sequence_ = 0;
  StageRing staging_;
  std::uint64_t agreed_ = 0;  ///< All members have published this call, and those before it were the same on all.
  bool is_in_call_ = false;
  bool puts_aside_ = false;
  AwaitedWords awaited_{{nullptr, 0, 0}, 0, 0};  ///< By the newest call, if it was begun.
  SiteWriter sites_[kLines];
  NameWriter names_[kLines];
  std::exception_ptr failure_;
};

}  // namespace retinue

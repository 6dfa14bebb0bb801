#include "retinue/collective/communicator.h"

#include <fmt/format.h>

#include <optional>
#include <utility>
#include <vector>

#include "collective/algorithms/path_probe.h"
#include "collective/algorithms/paths.h"
#include "collective/call/select.h"
#include "collective/communicator/message_calls.h"
#include "collective/communicator/one_caller.h"
#include "collective/engine/engine_group.h"
#include "collective/session/session.h"
#include "retinue/collective/explain.h"
#include "retinue/ipc/detail/blocked_time.h"

namespace retinue {

/// Members that share memory.
class SharingMembers {
 public:
  SharingMembers(JobGroup group, const CommunicatorOptions& options, const CallSite& site, OneCaller& callers)
      : session_(std::move(group), options, site), engine_(session_, callers), messages_(session_, engine_) {
    measure_paths(session_, [&](const CollectiveCall& call) { run(call, site.inside(OuterCall::kOpening)); });
    session_.note_opening();
    engine_.log().open(session_.sequence());
  }

  Session& session() { return session_; }
  OperationEngine& engine() { return engine_; }
  MessageCalls& messages() { return messages_; }

  void run(const CollectiveCall& what, CallSite site) {
    run(what, site, [] {});
  }

  void monitored_barrier(const MonitoredBarrierOptions& options, CallSite site) {
    const TimeoutScope scope(session_.waiter(), options.timeout);
    run(CollectiveCall::barrier(), site.inside(OuterCall::kMonitoredBarrier), [&] {
      if (options.wait_all_ranks) session_.await_all_who_can_come();
    });
  }

 private:
  /// Another timeout for one call, if it has one: a deadline of its own, by which its caller finds out who is missing.
  class TimeoutScope {
   public:
    TimeoutScope(Waiter& waiter, std::optional<std::chrono::nanoseconds> timeout)
        : waiter_(waiter), before_(waiter.timeout()) {
      if (!timeout) return;
      waiter_.set_timeout(*timeout);
      waiter_.long_wait().set_has_own_deadline(true);
    }
    ~TimeoutScope() {
      waiter_.set_timeout(before_);
      waiter_.long_wait().set_has_own_deadline(false);
    }
    TimeoutScope(const TimeoutScope&) = delete;
    TimeoutScope& operator=(const TimeoutScope&) = delete;

   private:
    Waiter& waiter_;
    std::chrono::nanoseconds before_;
  };

  template <typename Published>
  void run(const CollectiveCall& what, CallSite site, Published published) {
    const Call call = checked_call(what, session_.rank(), session_.size(), site);
    engine_.finish_collectives();
    CallLog& log = engine_.log();
    try {
      const std::uint64_t started = log.now();
      session_.publish(call);
      log.begin(call, session_.sequence(), started);
      published();
      const bool all_taken = take_in_arrival_order(session_, call);
      const Arrival arrival = arrive(call);
      if (!all_taken) take_path(session_, call, arrival).go_on();
    } catch (...) {
      log.fail();
      session_.fail_by_surprise();
      engine_.after_collective();  // Messages under way learn of a failure.
      throw;
    }
    session_.end_call();
    log.end();
    engine_.after_collective();
  }

  /// Waits for those without whom this member can't be done with the call.
  Arrival arrive(const Call& call) {
    const RankRange needed = needed_lines(call, session_.rank(), session_.size());
    const bool all = needed.last - needed.first == session_.size();
    if (all || (is_reduction(call.shape.kind) && !all_stage_first(session_.paths(), call, session_.size())))
      return session_.await_arrival(call);
    const Arrival arrival = session_.await_arrival(call, needed);
    const Path path = select_path(call, session_.size(), arrival);
    return path == Path::kDirect || path == Path::kChunked ? session_.await_arrival(call) : arrival;
  }

  Session session_;
  OperationEngine engine_;
  MessageCalls messages_;
};

namespace {

void check_timeout(std::chrono::nanoseconds timeout) {
  if (timeout <= std::chrono::nanoseconds(0)) throw UsageError("Communicator: the timeout must be greater than 0");
}

const CommunicatorOptions& checked(const CommunicatorOptions& options) {
  check_timeout(options.timeout);
  if (options.late_after && *options.late_after < std::chrono::nanoseconds(0))
    throw UsageError("Communicator: late_after is negative; use 0 to report no late ranks");
  return options;
}

}  // namespace

class Communicator::Impl {
 public:
  Impl(JobGroup group, const CommunicatorOptions& options, const CallSite& site)
      : callers_(group.name), sharing_(std::in_place, std::move(group), checked(options), site, callers_) {}
  Impl(std::unique_ptr<Engine> engine, const EngineMembers& members, const CommunicatorOptions& options)
      : callers_(members.name), apart_(std::in_place, std::move(engine), members, checked(options)) {
    group_.name = members.name;
    group_.rank = members.rank;
  }

  bool is_sharing() const { return sharing_.has_value(); }
  int size() { return sharing_ ? sharing_->session().size() : apart_->size(); }
  const JobGroup& group() { return sharing_ ? sharing_->session().group() : group_; }

  Request start(const CollectiveCall& call, CallSite site) {
    OperationEngine& engine = sharing(name_of(call.kind)).engine();
    const OneCaller::Scope scope(callers_, call.kind, site);
    const detail::BlockedScope blocked;
    return engine.start(call, site);
  }

  /// Calls `make` with what sends and receives. `name`: a literal, as "send".
  template <typename Make>
  auto with_messages(const char* name, const CallSite& site, Make make) {
    MessageCalls& messages = sharing(name).messages();
    const OneCaller::Scope scope(callers_, name, site);
    const detail::BlockedScope blocked;
    return make(messages);
  }

  /// For what only such members can do. Errors: UsageError for others.
  SharingMembers& sharing(std::string_view call) {
    if (!sharing_)
      throw UsageError(fmt::format(
          "{}: the ranks of group \"{}\" share no memory, which this call needs: make a group of the ranks of one host",
          call, group_.name));
    return *sharing_;
  }

  void run(const CollectiveCall& call, CallSite site) {
    const OneCaller::Scope scope(callers_, call.kind, site);
    const detail::BlockedScope blocked;
    sharing_ ? sharing_->run(call, site) : apart_->run(call, site);
  }

  void set_timeout(std::chrono::nanoseconds timeout) {
    if (sharing_) return sharing_->session().waiter().set_timeout(timeout);
    apart_->set_timeout(timeout);
  }

  void monitored_barrier(const MonitoredBarrierOptions& options, CallSite site) {
    const OneCaller::Scope scope(callers_, "monitored_barrier", site);
    const detail::BlockedScope blocked;
    sharing_ ? sharing_->monitored_barrier(options, site) : apart_->monitored_barrier(options, site);
  }

  bool is_crowded() { return !sharing_ || sharing_->session().waiter().is_crowded(); }
  void interrupt() {
    if (sharing_) sharing_->engine().interrupt();
  }

 private:
  OneCaller callers_;
  std::optional<SharingMembers> sharing_;
  std::optional<EngineGroup> apart_;  ///< Of members that share none.
  JobGroup group_;
};

void run_alone(const CollectiveCall& call) {
  const Call checked = checked_call(call, 0, 1, {"", 0});
  if (checked.pattern.result != Pattern::Result::kNothing) run_alone(checked);
}

Communicator::Communicator(JobGroup group, CommunicatorOptions options, CallSite site)
    : impl_(std::make_unique<Impl>(std::move(group), options, site)) {}
Communicator::Communicator(std::unique_ptr<Engine> engine, const EngineMembers& members,
                           const CommunicatorOptions& options)
    : impl_(std::make_unique<Impl>(std::move(engine), members, options)) {}
Communicator::~Communicator() = default;
Communicator::Communicator(Communicator&&) noexcept = default;
Communicator& Communicator::operator=(Communicator&&) noexcept = default;

namespace {

/// What a Communicator that was moved from doesn't have.
template <typename Impl>
Impl& checked(const std::unique_ptr<Impl>& impl) {
  if (impl == nullptr) throw UsageError("this Communicator was moved from and no longer belongs to a group");
  return *impl;
}

}  // namespace

int Communicator::rank() const noexcept {
  return impl_->group().rank;
}
int Communicator::size() const noexcept {
  return impl_->size();
}
bool Communicator::is_crowded() const noexcept {
  return impl_->is_crowded();
}
bool Communicator::shares_memory() const noexcept {
  return impl_->is_sharing();
}
const JobGroup& Communicator::group() const noexcept {
  return impl_->group();
}
void Communicator::set_timeout(std::chrono::nanoseconds timeout) {
  check_timeout(timeout);
  checked(impl_).set_timeout(timeout);
}

void Communicator::interrupt() noexcept {
  if (impl_ != nullptr) impl_->interrupt();
}

void Communicator::run(const CollectiveCall& call, CallSite site) {
  checked(impl_).run(call, site);
}

void Communicator::monitored_barrier(const MonitoredBarrierOptions& options, CallSite site) {
  checked(impl_).monitored_barrier(options, site);
}

Request Communicator::start(const CollectiveCall& call, CallSite site) {
  return checked(impl_).start(call, site);
}

void Communicator::send_bytes(ConstBytes data, int destination, int tag, CallSite site) {
  checked(impl_).with_messages("send", site,
                               [&](MessageCalls& messages) { messages.send(data, destination, tag, site); });
}

Received Communicator::recv_bytes(Bytes buffer, int source, int tag, CallSite site) {
  return checked(impl_).with_messages(
      "recv", site, [&](MessageCalls& messages) { return messages.receive(buffer, nullptr, source, tag, site); });
}

Received Communicator::recv_any_size(std::vector<std::byte>& data, int source, int tag, CallSite site) {
  return checked(impl_).with_messages(
      "recv", site, [&](MessageCalls& messages) { return messages.receive({}, &data, source, tag, site); });
}

Received Communicator::sendrecv_bytes(ConstBytes data, int destination, Bytes buffer, int source, int tag,
                                      CallSite site) {
  return checked(impl_).with_messages("sendrecv", site, [&](MessageCalls& messages) {
    return messages.send_and_receive(P2POp::isend(data, destination, tag), P2POp::irecv(buffer, source, tag), site);
  });
}

Request Communicator::begin(const P2POp& message, CallSite site) {
  return checked(impl_).with_messages(message.kind == P2POp::Kind::kSend ? "isend" : "irecv", site,
                                      [&](MessageCalls& messages) { return messages.start(message, site); });
}

std::vector<Request> Communicator::batch_isend_irecv(std::span<const P2POp> messages, CallSite site) {
  return checked(impl_).with_messages("batch_isend_irecv", site,
                                      [&](MessageCalls& calls) { return calls.start(messages, site); });
}

void detail::check_elements(std::string_view call, std::size_t elements, std::size_t wanted) {
  if (elements != wanted)
    throw UsageError(fmt::format("{}: a buffer holds {} elements, but {} are needed", call, elements, wanted));
}

namespace {

template <class Data>
std::vector<Data> parts_of(std::string_view call, Data data, std::size_t element_bytes,
                           const std::vector<std::size_t>& counts, std::size_t ranks) {
  if (counts.size() != ranks)
    throw UsageError(
        fmt::format("{}: {} counts for a group of {}; give one for each rank", call, counts.size(), ranks));
  const std::size_t elements = data.size() / element_bytes;
  std::vector<Data> parts;
  std::size_t left = elements;
  for (const std::size_t count : counts) {
    if (count > left) break;
    parts.push_back(data.first(count * element_bytes));
    data = data.subspan(count * element_bytes);
    left -= count;
  }
  if (parts.size() != ranks || left != 0)
    throw UsageError(fmt::format("{}: a buffer of {} elements can't be divided into parts of {} elements", call,
                                 elements, fmt::join(counts, ", ")));
  return parts;
}

}  // namespace

std::vector<ConstBytes> detail::input_parts(std::string_view call, ConstBytes data, std::size_t element_bytes,
                                            const std::vector<std::size_t>& counts, std::size_t ranks) {
  return parts_of(call, data, element_bytes, counts, ranks);
}

std::vector<Bytes> detail::output_parts(std::string_view call, Bytes data, std::size_t element_bytes,
                                        const std::vector<std::size_t>& counts, std::size_t ranks) {
  return parts_of(call, data, element_bytes, counts, ranks);
}

void detail::refuse_negative_count(std::string_view call, std::size_t rank) {
  throw UsageError(fmt::format("{}: the count of rank {}'s part is negative", call, rank));
}

std::string detail::name_of_part(const Communicator& parent, std::string_view name, int first_rank) {
  constexpr std::size_t kParentBytes = 80;  // Of groups in groups in groups; names have 200 bytes.
  const Session& session = checked(parent.impl_).sharing("split").session();
  std::string text = session.group().name;
  if (text.size() > kParentBytes) text = text.substr(0, kParentBytes) + "...";
  return fmt::format("{}/{} {}.{}.{}", text, name.empty() ? "group" : name,
                     session.board().header().generation.load(std::memory_order_relaxed), session.sequence(),
                     first_rank);
}

std::string explain_paths(const Communicator& group) {
  const Session& session = checked(group.impl_).sharing("explain_paths").session();
  return explain_paths(session.paths(), session.paths_source(), session.size());
}

}  // namespace retinue

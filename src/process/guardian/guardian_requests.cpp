// Obeying what the program and its ranks ask for.
#include <fmt/format.h>
#include <signal.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <optional>

#include "os/process/process_calls.h"
#include "os/process/process_stat.h"
#include "os/process/spare_descriptors.h"
#include "os/sockets/control_socket.h"
#include "os/testing/fault_point.h"
#include "process/guardian/guardian.h"
#include "process/observe/run_report.h"
#include "retinue/base/error.h"
#include "retinue/os/detail/standard_error.h"

namespace retinue {

void Guardian::receive_requests() {
  for_each_request([this](const ControlMessage& message, std::vector<FileDescriptor>& descriptors, pid_t sender) {
    obey(message, descriptors, sender);
  });
}

void Guardian::for_each_request(const Serve& serve) {
  const DescriptorHeadroom headroom(kLookDescriptors);
  for (;;) {
    ControlMessage message{};
    std::vector<FileDescriptor> descriptors;
    pid_t sender = 0;
    const std::size_t bytes =
        receive_message(setup_.control_receive.get(), &message, sizeof message, descriptors, &sender);
    if (bytes == 0) return;
    if (bytes != sizeof message) continue;
    try {
      serve(message, descriptors, sender);
    } catch (const std::exception& error) {
      // One bad request must not take the job along.
      write_standard_error(fmt::format("retinue: the guardian could not serve a request: {}\n", error.what()));
      if (message.kind == ControlKind::kStart && message.context < kMaxContexts) refuse(message.context, error.what());
    }
  }
}

namespace {

/// None: it is gone.
std::optional<pid_t> parent_of(pid_t pid) {
  const std::optional<ProcessStat> stat = process_stat(pid);
  return stat ? std::optional(stat->parent) : std::nullopt;
}

}  // namespace

GuardedContext* Guardian::find(std::uint32_t index) {
  const auto found = std::find_if(contexts_.begin(), contexts_.end(),
                                  [index](const auto& context) { return context->index() == index; });
  return found == contexts_.end() ? nullptr : found->get();
}

void Guardian::obey(const ControlMessage& message, std::vector<FileDescriptor>& descriptors, pid_t sender) {
  GuardedContext* context = find(message.context);
  switch (message.kind) {
    case ControlKind::kStart:
      keep_report_file(*setup_.memory);  // There is no rank yet when this comes first.
      if (context == nullptr && message.context < kMaxContexts) begin(message, descriptors, sender);
      break;
    case ControlKind::kAdopt:
      if (context != nullptr) adopt(*context, message, descriptors, sender);
      break;
    case ControlKind::kStop:
      if (context != nullptr) context->stop(message.pid != 0 ? message.pid : SIGTERM);
      break;
    case ControlKind::kSignal:
      if (context != nullptr) context->send_signal(message.pid, message.rank);
      break;
    case ControlKind::kLeaving:
      if (context != nullptr) context->expect_exit(message.rank);
      break;
    case ControlKind::kFinish:
      if (context != nullptr)
        end_with_starter(*context, message.rank);
      else if (message.context < kMaxContexts)
        end_unsent(message.context);
      break;
    case ControlKind::kShutdown:
      shutting_down_ = true;
      for (const auto& each : contexts_) end_with_program(*each, message.rank);
      break;
    case ControlKind::kProgramFailed:
      program_report_.begin(process_slot(*setup_.memory, kProgramSlot).crash);
      break;
  }
}

/// The program that started it ends: `how` is kAtOnce, or gives it the time to finish.
void Guardian::end_with_starter(GuardedContext& context, std::uint32_t how) {
  if (how == kAtOnce) return context.stop();
  context.begin_shutdown();
}

/// What ranks started ends with those ranks, which may need it until then.
void Guardian::end_with_program(GuardedContext& context, std::uint32_t how) {
  if (how == kAtOnce || context.parent_slot() == kProgramSlot) end_with_starter(context, how);
}

FileDescriptor Guardian::pidfd_of_forked(const ControlMessage& message, std::vector<FileDescriptor>& descriptors,
                                         pid_t sender) {
  // The caller is the parent of what it forked: for no other process of its choice does the guardian use its own
  // rights.
  const std::optional<pid_t> parent = parent_of(message.pid);
  if (message.pid <= 1 || (parent != sender && (parent || descriptors.empty()))) return {};
  // The descriptor is lost where it exceeds a limit on the way.
  try {
    return descriptors.empty() ? open_pidfd(message.pid) : std::move(descriptors[0]);
  } catch (const SystemError&) {
    kill(message.pid, SIGKILL);
    return {};
  }
}

void Guardian::adopt(GuardedContext& context, const ControlMessage& message, std::vector<FileDescriptor>& descriptors,
                     pid_t sender) {
  fault_point("guardian.adopt", static_cast<int>(message.rank));
  FileDescriptor pidfd = pidfd_of_forked(message, descriptors, sender);
  const pid_t pid = pidfd ? message.pid : 0;
  if (pid != 0) watcher_.add(pid);
  context.adopt(message.rank, pid, std::move(pidfd));
}

/// They wait for the guardian's word, have no mark, and where the program executes something else live on.
void Guardian::kill_ranks_not_adopted() {
  for_each_request([this](const ControlMessage& message, std::vector<FileDescriptor>& descriptors, pid_t sender) {
    if (message.kind != ControlKind::kAdopt) return;
    had_closures_ = true;
    if (const FileDescriptor pidfd = pidfd_of_forked(message, descriptors, sender))
      send_signal_to(pidfd.get(), SIGKILL);
  });
}

/// Its owner ends, and has sent all that it will send: this start was never asked for.
void Guardian::end_unsent(std::uint32_t index) {
  ContextRecord& record = context_record(*setup_.memory, index);
  std::uint32_t reserved = ContextRecord::kReserved;
  if (record.state.compare_exchange_strong(reserved, ContextRecord::kEnded)) notify_context(record);
}

/// Ends a context whose ranks could not be started: they failed, all with the same message.
void Guardian::refuse(std::uint32_t index, const char* reason) {
  if (GuardedContext* begun = find(index); begun != nullptr) return begun->refuse(reason);
  ContextRecord& record = context_record(*setup_.memory, index);
  for (std::uint32_t rank = 0; rank < record.nprocs; ++rank) {
    ProcessSlot& slot = process_slot(*setup_.memory, record.slots[rank]);
    record_failure(slot.crash, "retinue::Error", reason);
    slot.exit_status.store(127 << 8, std::memory_order_relaxed);
    slot.state.store(ProcessState::kDead, std::memory_order_release);
  }
  const std::uint32_t id = record.id;
  record.state.store(ContextRecord::kEnded, std::memory_order_seq_cst);
  notify_context(record);
  end_abandoned(index, id);
}

void Guardian::begin(const ControlMessage& message, std::vector<FileDescriptor>& descriptors, pid_t sender) {
  if (descriptors.empty())
    throw SystemError("the guardian has no file descriptors left for those of the caller (raise ulimit -n)", EMFILE);
  const std::uint32_t parent = context_record(*setup_.memory, message.context).parent_slot;
  if (process_slot(*setup_.memory, parent).state.load(std::memory_order_acquire) == ProcessState::kDead) {
    unfreed_.push_back(message.context);  // Its caller died meanwhile, and nobody waits for it.
    return;
  }
  if (setup_.memory->header().stop_asked.load(std::memory_order_relaxed) != 0) {
    context_record(*setup_.memory, message.context).retrieved.store(1);  // Whoever stops the job knows why.
    return refuse(message.context, "the job is being stopped (by `retinue stop`) and starts no more ranks");
  }
  const bool is_first = contexts_.empty();
  contexts_.push_back(
      std::make_unique<GuardedContext>(setup_.memory, message.context, memory_kills_, child_setup_.credentials));
  GuardedContext& context = *contexts_.back();
  // Job memory holds whatever the sender wrote there: what it may do the kernel knows.
  const ProcessStatus status(sender);
  if (!status.is_known()) {  // It has ended since.
    contexts_.pop_back();
    unfreed_.push_back(message.context);
    return;
  }
  if (const std::string more = context.asks_for_more_than(Credentials::of(status)); !more.empty())
    return refuse(message.context,
                  fmt::format("the start request asks for {}, which its caller does not have", more).c_str());
  fault_point("guardian.begin");
  context.take_descriptors(descriptors);
  context.start_logs(descriptors);
  // A caller that forks its ranks itself tells about them one by one.
  if (context.kind() == StartKind::kClosure) {
    had_closures_ = true;
    if (is_first) memory_kills_.rebase();
    return;
  }
  child_setup_.directory = std::move(descriptors.back());
  descriptors.pop_back();
  child_setup_.standard = std::move(descriptors);
  child_setup_.guardian_fds = own_fds();
  context.start(child_setup_);
  if (is_first) memory_kills_.rebase();  // Its ranks run already, and have not had time to fill the memory.
  child_setup_.standard.clear();
  child_setup_.directory.reset();
  if (shutting_down_) end_with_program(context, kAllRanks);
}

}  // namespace retinue

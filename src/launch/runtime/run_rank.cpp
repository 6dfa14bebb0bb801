#include <dlfcn.h>
#include <stdlib.h>
#include <unistd.h>

#include <cstdio>
#include <iostream>

#include "ipc/memory/context_table.h"
#include "launch/runtime/forked_child.h"
#include "launch/runtime/program_failure.h"
#include "launch/runtime/returned_value.h"
#include "launch/runtime/runtime_impl.h"
#include "launch/runtime/write_profiles.h"
#include "os/sockets/control_socket.h"
#include "os/sync/clock.h"
#include "os/sync/futex.h"
#include "os/testing/fault_point.h"
#include "process/crash/crash_handler.h"
#include "process/crash/exception_report.h"
#include "process/crash/throw_trace.h"
#include "retinue/base/error.h"
#include "retinue/launch/detail/entry.h"

namespace retinue {
namespace {

/// The rank can take part in nothing any more: its peers' waits end now, not when the kernel has torn it down.
void note_finish(ProcessSlot& slot, int exit_code) {
  slot.exit_status.store(exit_code << 8, std::memory_order_relaxed);
  std::uint64_t unset = 0;
  slot.ended_ns.compare_exchange_strong(unset, monotonic_ns());
  slot.state.store(ProcessState::kFinished, std::memory_order_release);
}

/// So that the guardian does not wait for ever for a static destructor that hangs.
void announce_end(const ProcessSlot& slot) {
  try {
    const ControlMessage message{ControlKind::kLeaving, slot.context, static_cast<std::uint32_t>(slot.local_rank), 0};
    send_message(Runtime::current().impl().control_send.get(), &message, sizeof message);
  } catch (const Error&) {
    // Without a guardian nobody waits for this rank, and it dies with it.
  }
}

void note_exit(int status, void* slot) {
  auto& own = *static_cast<ProcessSlot*>(slot);
  if (getpid() != own.pid.load(std::memory_order_relaxed)) return;  // A child that the rank forked.
  if (own.state.load(std::memory_order_relaxed) != ProcessState::kRunning) return;
  note_finish(own, status & 0xff);
  announce_end(own);
}

/// libgomp reads OMP_NUM_THREADS when it is loaded, which a forked rank is too late for. As torchrun, but with the CPUs
/// that there are: ranks share them instead of fighting for them.
void share_cpus(const RankContext& context) {
  int threads = context.cpus_per_rank();
  if (const char* text = std::getenv("OMP_NUM_THREADS"); text != nullptr) {
    threads = std::atoi(text);  // "4,2": for nested regions, too; the first is what can be set here.
    if (threads <= 0) return;   // OpenMP has said what it thinks of it.
  }
  using SetThreads = void (*)(int);
  const auto set_threads = reinterpret_cast<SetThreads>(dlsym(RTLD_DEFAULT, "omp_set_num_threads"));
  if (set_threads != nullptr) set_threads(threads);
}

}  // namespace

void run_rank_body(std::uint32_t slot_index, const detail::RankBody& body, RankOrigin origin) {
  Runtime::Impl& impl = Runtime::current().impl();
  impl.is_rank = true;
  ProcessSlot& slot = process_slot(*impl.memory, slot_index);
  int exit_code = 1;
  try {
    enter_process_slot(*impl.memory, slot_index);
    stop_reporting_own_failure();
    install_crash_handlers(slot.crash);
    enable_throw_trace();
    on_exit(note_exit, &slot);
    fault_point("rank.start", slot.rank);
    std::setvbuf(stdout, nullptr, _IOLBF, 0);  // Ranks share a console: whole lines.
    RankContext context(impl.memory, slot_index);
    share_cpus(context);
    const detail::ReturnedValue returned = body(context);
    end_forked_child(*impl.memory);
    store_returned(*impl.memory, slot, returned);
    exit_code = 0;
  } catch (...) {
    end_forked_child(*impl.memory);
    record_current_exception(slot.crash);
  }
  note_finish(slot, exit_code);
  fault_point("rank.finish", slot.rank);
  std::cout.flush();
  if (origin == RankOrigin::kExecuted) {
    std::fflush(nullptr);  // Before the time that it has to exit begins: who reads it may rest.
    announce_end(slot);
    std::exit(exit_code);
  }
  // Exit handlers and static destructors of the program that was forked are the program's own: a file that it removes
  // at its end is still needed. LibTorch's would also take 0.3 s.
  std::fflush(nullptr);
  write_profiles();
  std::quick_exit(exit_code);
}

void run_function_rank(std::uint32_t slot_index, const StartRequest& request) {
  run_rank_body(
      slot_index,
      [&](RankContext& context) {
        detail::EntryKey key;
        detail::decode_value(request.entry, key);
        const detail::EntryThunk thunk = detail::find_entry(key);
        const JobMemory& memory = *context.memory();
        const std::uint32_t own_context = process_slot(memory, slot_index).context;
        const ArchiveSlice& arguments = request.ranks.at(static_cast<std::size_t>(context.rank())).archive;
        const std::string_view archive = stored_archive(memory, context_record(memory, own_context), arguments);
        return thunk(context, archive);
      },
      request.kind == StartKind::kExecutedFunction ? RankOrigin::kExecuted : RankOrigin::kForked);
}

}  // namespace retinue

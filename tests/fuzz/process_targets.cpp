// What guardian, helper and command read that others wrote.
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cereal/types/map.hpp>
#include <cereal/types/string.hpp>
#include <cereal/types/utility.hpp>
#include <cereal/types/vector.hpp>
#include <chrono>
#include <stdexcept>
#include <string>

#include "fuzz/harness.h"
#include "ipc/memory/context_table.h"
#include "ipc/memory/job_layout.h"
#include "ipc/memory/job_name.h"
#include "ipc/memory/payload.h"
#include "os/sockets/local_socket.h"
#include "process/failure/error_file.h"
#include "process/failure/failure_text.h"
#include "process/guardian/job_socket.h"
#include "process/guardian/start_request.h"
#include "process/observe/job_view.h"
#include "process/symbols/symbolizer.h"

namespace retinue::fuzz {
namespace {

void read_request(const JobMemory& memory, const ContextRecord& record) {
  try {
    const StartRequest request = load_request(memory, record);
    static_cast<void>(request.logs.shows_any());
    for (std::size_t rank = 0; rank < std::min<std::size_t>(request.ranks.size(), 8); ++rank) {
      static_cast<void>(error_file_of(request, rank));
      for (const std::uint32_t bit : {kStdoutBit, kStderrBit})
        static_cast<void>(request.logs.file_of(static_cast<int>(rank), bit) + request.logs.copy_file_of(bit));
      const std::string_view archive = stored_archive(memory, record, request.ranks[rank].archive);
      require(archive.empty() || memory.contains(archive.data(), archive.size()), "arguments outside of job memory");
    }
  } catch (const cereal::Exception&) {
  } catch (const UsageError&) {
    // Refused.
  }
}

}  // namespace

void start_request(Bytes input) {
  const std::string text = Job::instance().with_handles(input);
  JobMemory& memory = *Job::instance().memory();
  without_leaks([&] {
    ContextRecord& record = context_record(memory, 0);
    record.request = store_payload(memory, {text}, {});
    read_request(memory, record);
    memory.release(record.request);
  });
}

void crash_record(Bytes bytes) {
  // In a place of its own, so that a look beyond it is one beyond an allocation.
  const auto slot = std::make_unique<ProcessSlot>();
  slot->state.store(ProcessState::kDead);
  slot->crash.phase.store(2);
  Input input(bytes);
  slot->exit_status.store(input.number<std::int32_t>());
  slot->stop_signal.store(input.number<std::int8_t>());
  slot->crash.kind = static_cast<CrashKind>(input.number<std::uint8_t>());
  slot->crash.stack_phase.store(input.number<std::uint8_t>());
  overwrite(input, std::as_writable_bytes(std::span(slot.get(), 1)).subspan(offsetof(ProcessSlot, pid)));
  const RankOutcome outcome = outcome_of(*slot);
  static_cast<void>(is_failure(outcome));
  static_cast<void>(ending_text(outcome) + failure_text(std::span(&outcome, 1)) + stack_without_names(slot->crash));
  static_cast<void>(outcome_of_crash(slot->crash));
  const ReadErrorReport read = parse_error_file(error_file_text(error_report_of(outcome)));
  require(read.problem.empty(), "an error file of ours that can't be read");
}

void error_file(Bytes input) {
  const std::string_view text(reinterpret_cast<const char*>(input.data()), input.size());
  const ReadErrorReport read = parse_error_file(text);
  if (!read.problem.empty()) return;
  const ReadErrorReport again = parse_error_file(error_file_text(read.report));
  require(again.problem.empty(), "an error file of ours that can't be read");
  require(again.report.type == read.report.type && again.report.message == read.report.message,
          "a failure that changes by being written");
}

void job_socket(Bytes bytes) {
  static JobSocket listening;
  JobMemory& memory = *Job::instance().memory();
  if (listening.fds().empty()) listening.open(memory, /*control_send=*/-1);
  const auto socket = connect_local(job_socket_name(geteuid(), memory.header().job_id), std::chrono::seconds(2));
  require(socket.has_value(), "a socket that lets nobody in");
  Input input(bytes);
  for (int i = 0; i < 4 && !input.is_empty(); ++i) {
    const Bytes packet = input.take(input.number<std::uint8_t>());
    send(socket->get(), packet.data(), packet.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    listening.serve(memory);
  }
  listening.reply_stopped();
  shutdown(socket->get(), SHUT_RDWR);
  listening.serve(memory);
  require(!listening.has_debugger(), "a debugger who is gone");
}

void job_view(Bytes bytes) {
  JobMemory& memory = *Job::instance().memory();
  JobHeader& header = memory.header();
  Input input(bytes);
  // Two contexts with two ranks each; then whatever stands in them.
  ContextRecord& context = header.contexts[1];
  ProcessSlot& first = header.processes[2];
  context.state.store(ContextRecord::kRunning);
  context.nprocs = 2;
  context.slots[0] = 2;
  context.slots[1] = 3;
  first.context = header.processes[3].context = 1;
  const auto which = input.number<std::uint8_t>();
  first.state.store(static_cast<ProcessState>(input.number<std::uint8_t>()));
  const auto slot_bytes = std::as_writable_bytes(std::span(&first, 1)).subspan(offsetof(ProcessSlot, state));
  const auto name_bytes = std::as_writable_bytes(std::span(&header.name_bytes, 1));
  overwrite(input, which % 3 == 0   ? std::as_writable_bytes(std::span(&context, 1))
                   : which % 3 == 1 ? slot_bytes
                                    : std::span(name_bytes.data(), sizeof header.name_bytes + sizeof header.name));
  for (const RankView& view : view_ranks(memory)) require(view.state.size() < 100, "a state that is none");
  require(job_name(header).size() <= sizeof header.name, "a name that is longer than its place");
  static_cast<void>(age_of(memory) + longest_stop_of(memory) + std::chrono::nanoseconds(is_debugged(memory) ? 1 : 0));
  std::memset(static_cast<void*>(&context), 0, sizeof context);
  std::memset(slot_bytes.data(), 0, slot_bytes.size());
  header.name_bytes.store(0);
}

}  // namespace retinue::fuzz

#include "process/observe/current_call.h"

#include <algorithm>

#include "base/site_text.h"
#include "ipc/records/recorded_calls.h"
#include "os/process/process_look.h"

namespace retinue {
namespace {

constexpr std::size_t kLookedAt = 64;

}  // namespace

std::optional<CurrentCall> current_call_of(const JobMemory& memory, std::uint32_t slot) {
  std::vector<RecordedCall> calls = read_calls_since(memory, slot, 1, kLookedAt);
  std::erase_if(calls, [](const RecordedCall& call) { return call.ended_ns != 0; });
  if (calls.empty()) return std::nullopt;
  const auto recorder = read_recorder(memory, slot);
  if (!recorder) return std::nullopt;
  const auto is_collective = [&](const RecordedCall& call) { return !recorder->is_message(call); };
  const auto newest = std::find_if(calls.rbegin(), calls.rend(), is_collective);
  const RecordedCall& call = newest != calls.rend() ? *newest : calls.front();
  const RecordedPlace& place = recorder->site_of(call);
  const std::string file = place.file.substr(place.file.rfind('/') + 1);
  return CurrentCall{.kind = printable(recorder->kind_of(call)),
                     .group = printable(recorder->group_of(call).name),
                     .sequence = call.sequence,
                     .site = file.empty() ? "" : printable(site_text(file, place.line)),
                     .waiting = std::chrono::nanoseconds(recorder->read_ns - call.started_ns)};
}

}  // namespace retinue

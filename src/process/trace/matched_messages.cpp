#include "process/trace/matched_messages.h"

#include <algorithm>
#include <cstddef>
#include <optional>

namespace retinue {
namespace {

// As collectives' messages have them: the latter's are met by receives of that tag only.
constexpr int kAnyTag = -1;
constexpr int kReplyTag = -2;

struct Way {
  std::vector<CallOf> sends;
  std::vector<CallOf> receives;
};

std::optional<int> rank_in(const MergedGroup& group, std::uint32_t process) {
  const auto found = std::ranges::find(group.members, process);
  if (found == group.members.end()) return std::nullopt;
  return static_cast<int>(found - group.members.begin());
}

bool has_first_calls(const Recording& recording) {
  return recording.calls.empty() ? recording.total == 0 : recording.calls.front().record == 1;
}

/// Whether both ends are known from their first message on.
bool is_whole(const MergedCalls& calls, const MessageWay& way) {
  const std::vector<std::uint32_t>& members = calls.groups()[way.group].members;
  for (const int rank : {way.from, way.to}) {
    if (rank < 0 || static_cast<std::size_t>(rank) >= members.size()) return false;
    const std::uint32_t process = members[static_cast<std::size_t>(rank)];
    if (process == MergedGroup::kUnknown || !has_first_calls(calls.processes()[process].recording)) return false;
  }
  return true;
}

std::map<MessageWay, Way> ways_of(const MergedCalls& calls) {
  std::map<MessageWay, Way> ways;
  for (std::uint32_t process = 0; process < calls.processes().size(); ++process) {
    const Recording& recording = calls.processes()[process].recording;
    for (std::uint32_t i = 0; i < recording.calls.size(); ++i) {
      const RecordedCall& call = recording.calls[i];
      if (!recording.is_message(call)) continue;
      const std::uint32_t group = calls.group_of({process, i});
      const auto own = rank_in(calls.groups()[group], process);
      if (!own || call.peer < 0 || call.peer == *own) continue;
      const bool sends = recording.kind_of(call) == "send";
      Way& way = ways[sends ? MessageWay{group, *own, call.peer} : MessageWay{group, call.peer, *own}];
      (sends ? way.sends : way.receives).push_back({process, i});
    }
  }
  std::erase_if(ways, [&](const auto& way) { return !is_whole(calls, way.first); });
  return ways;
}

bool takes(int wanted, int tag) {
  return wanted == tag || (wanted == kAnyTag && tag != kReplyTag);
}

/// Each message meets the first receive that takes its tag: whichever of the two comes first, they keep their orders.
std::vector<NumberedMessage> numbered(const MergedCalls& calls, const Way& way) {
  std::vector<NumberedMessage> messages;
  std::vector<bool> is_taken(way.receives.size());
  std::size_t first_free = 0;
  for (std::uint64_t number = 1; number <= way.sends.size(); ++number) {
    const CallOf& send = way.sends[number - 1];
    messages.push_back({send, number});
    for (std::size_t i = first_free; i < way.receives.size(); ++i) {
      if (is_taken[i] || !takes(calls.call_of(way.receives[i]).tag, calls.call_of(send).tag)) continue;
      is_taken[i] = true;
      messages.push_back({way.receives[i], number});
      break;
    }
    while (first_free < is_taken.size() && is_taken[first_free]) ++first_free;
  }
  std::uint64_t number = way.sends.size();
  for (std::size_t i = 0; i < way.receives.size(); ++i)
    if (!is_taken[i]) messages.push_back({way.receives[i], ++number});
  return messages;
}

}  // namespace

std::map<MessageWay, std::vector<NumberedMessage>> match_messages(const MergedCalls& calls) {
  std::map<MessageWay, std::vector<NumberedMessage>> matched;
  for (const auto& [way, ends] : ways_of(calls)) matched[way] = numbered(calls, ends);
  return matched;
}

}  // namespace retinue

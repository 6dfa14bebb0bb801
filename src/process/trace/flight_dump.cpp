#include "process/trace/flight_dump.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <optional>
#include <set>
#include <string_view>
#include <utility>
#include <vector>

#include "os/sync/clock.h"
#include "process/trace/matched_messages.h"
#include "process/trace/pickle.h"

namespace retinue {
namespace {

constexpr const char* kVersion = "2.10";
/// What PyTorch says of a group that nobody described.
constexpr const char* kNoDescription = "undefined";

using Names = std::pair<std::string_view, std::string_view>;

template <std::size_t kCount>
std::string_view translated(const Names (&names)[kCount], std::string_view name, std::string_view other) {
  const auto* const found = std::ranges::find(names, name, &Names::first);
  return found == std::end(names) ? other : found->second;
}

std::string_view torch_dtype(std::string_view dtype) {
  static constexpr Names kNames[] = {{"fp32", "Float"},
                                     {"fp64", "Double"},
                                     {"fp16", "Half"},
                                     {"bf16", "BFloat16"},
                                     {"int8", "Char"},
                                     {"uint8", "Byte"},
                                     {"bytes", "Byte"},
                                     {"int16", "Short"},
                                     {"int32", "Int"},
                                     {"int64", "Long"},
                                     {"uint16", "UInt16"},
                                     {"uint32", "UInt32"},
                                     {"uint64", "UInt64"},
                                     {"bool", "Bool"},
                                     {"complex64", "ComplexFloat"},
                                     {"complex128", "ComplexDouble"}};
  return translated(kNames, dtype, dtype);
}

/// The tool knows its own names only. What has none gets one of another kind that is compared in the same way; the
/// frame says what it is.
std::string_view torch_kind(std::string_view kind) {
  static constexpr Names kNames[] = {{"barrier", "barrier"},
                                     {"all_reduce", "all_reduce"},
                                     {"broadcast", "broadcast"},
                                     {"all_gather", "all_gather"},
                                     {"reduce", "reduce"},
                                     {"gather", "gather"},
                                     {"scatter", "scatter"},
                                     {"reduce_scatter", "reduce_scatter"},
                                     {"all_to_all", "all_to_all"},
                                     {"scan", "_reduce_oop"},
                                     {"all_reduce_coalesced", "allreduce_coalesced"}};
  return translated(kNames, kind, "coalesced");
}

/// A process group of PyTorch.
struct TorchGroup {
  std::string name;
  std::vector<int> ranks;  ///< In the world, by rank in the group.
};

/// What an entry says of its call.
struct Entry {
  CallOf call;
  std::uint32_t group = 0;  ///< An index of a TorchGroup.
  std::uint64_t sequence = 0;
  std::string name;
  std::optional<std::uint64_t> input_count;  ///< None: a barrier's.
  std::optional<std::uint64_t> output_count;
};

/// CLOCK_MONOTONIC to what PyTorch tells times by.
std::int64_t wall_offset_ns() {
  const auto wall = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::nanoseconds>(wall).count() - static_cast<std::int64_t>(monotonic_ns());
}

class Dumps {
 public:
  Dumps(const MergedCalls& calls, std::uint32_t context) : calls_(calls), context_(context) {
    add_groups();
    entries_.resize(calls.processes().size());
    for (const MergedCall& merged : calls.calls())
      if (is_comparable(merged)) add(merged);
    for (const auto& [way, messages] : match_messages(calls)) add(way, messages);
    const auto began = [&](const Entry& entry) { return calls.call_of(entry.call).record; };
    for (std::vector<Entry>& entries : entries_) std::ranges::stable_sort(entries, {}, began);
  }

  std::map<int, std::string> dumps() const {
    std::map<int, std::string> dumps;
    for (std::uint32_t process = 0; process < calls_.processes().size(); ++process)
      if (is_here(process)) dumps[calls_.processes()[process].rank] = dump_of(process);
    return dumps;
  }

 private:
  bool is_here(std::uint32_t process) const {
    return process != MergedGroup::kUnknown && calls_.processes()[process].is_rank() &&
           calls_.processes()[process].context == context_;
  }

  void add_groups() {
    const auto world = static_cast<std::size_t>(
        std::ranges::count_if(calls_.processes(), [this](const auto& each) { return each.context == context_; }));
    std::map<std::string, int> seen;
    for (const MergedGroup& group : calls_.groups()) {
      TorchGroup& torch = groups_.emplace_back();
      torch.name = group.name;
      if (const int before = seen[group.name]++; before > 0) torch.name += fmt::format(" #{}", before + 1);
      for (std::size_t rank = 0; rank < group.members.size(); ++rank) {
        const std::uint32_t process = group.members[rank];
        if (is_here(process)) torch.ranks.push_back(calls_.processes()[process].rank);
        // One that has kept nothing of it: of a group as large as the world everybody is a member.
        else if (group.members.size() == world)
          torch.ranks.push_back(static_cast<int>(rank));
      }
    }
  }

  /// Not where a member may have had the call and kept it no more, while nothing was wrong with it.
  bool is_comparable(const MergedCall& merged) const {
    if (merged.is_whole) return true;
    const auto is_done = [this](const CallOf& call) {
      return calls_.call_of(call).ended_ns != 0 && !calls_.call_of(call).failed;
    };
    if (!std::ranges::all_of(merged.calls, is_done)) return true;
    const std::uint64_t began = calls_.call_of(merged.calls.front()).started_ns;
    for (const std::uint32_t process : calls_.groups()[merged.group].members) {
      if (process == MergedGroup::kUnknown) continue;
      const Recording& recording = calls_.processes()[process].recording;
      if (recording.calls.empty() || recording.calls.front().record == 1) continue;
      if (began < recording.calls.front().started_ns) return false;
    }
    return true;
  }

  void add(const MergedCall& merged) {
    const TorchGroup& group = groups_[merged.group];
    const std::uint64_t size = group.ranks.size();
    std::uint64_t largest = 0;
    bool all_done = merged.is_whole;
    for (const CallOf& which : merged.calls) {
      const RecordedCall& call = calls_.call_of(which);
      largest = std::max(largest, call.count);
      all_done &= call.ended_ns != 0 && !call.failed;
    }
    for (const CallOf& which : merged.calls) {
      if (!is_here(which.process)) continue;
      const RecordedCall& call = calls_.call_of(which);
      const std::string_view kind = torch_kind(calls_.process_of(which).recording.kind_of(call));
      // Members may differ in what they give. Where all went well they did so rightly, which the tool could not tell.
      const std::uint64_t count = all_done ? largest : call.count;
      Entry entry{.call = which,
                  .group = merged.group,
                  .sequence = merged.sequence,
                  .name = fmt::format("gloo:{}", kind),
                  .input_count = count,
                  .output_count = count};
      if (kind == "all_gather" || kind == "gather" || kind == "all_to_all") entry.output_count = count * size;
      if (kind == "reduce_scatter" || kind == "scatter" || kind == "all_to_all") entry.input_count = count * size;
      if (kind == "barrier") entry.input_count = entry.output_count = std::nullopt;
      entries_[which.process].push_back(std::move(entry));
    }
  }

  void add(const MessageWay& way, const std::vector<NumberedMessage>& messages) {
    const MergedGroup& group = calls_.groups()[way.group];
    const std::uint32_t from = group.members[static_cast<std::size_t>(way.from)];
    const std::uint32_t to = group.members[static_cast<std::size_t>(way.to)];
    if (!is_here(from) || !is_here(to)) return;
    std::vector<int> ranks = {calls_.processes()[from].rank, calls_.processes()[to].rank};
    // The tool counts a group's ranks in the order of the world's.
    const int sender = ranks[0] < ranks[1] ? 0 : 1;
    groups_.push_back({fmt::format("{} {}->{}", groups_[way.group].name, way.from, way.to), std::move(ranks)});
    for (const NumberedMessage& message : messages) {
      const bool sends = message.call.process == from;
      entries_[message.call.process].push_back({.call = message.call,
                                                .group = static_cast<std::uint32_t>(groups_.size() - 1),
                                                .sequence = message.number,
                                                .name = sends ? fmt::format("gloo:send {}->{}", sender, 1 - sender)
                                                              : fmt::format("gloo:recv {}<-{}", 1 - sender, sender),
                                                .input_count = calls_.call_of(message.call).count,
                                                .output_count = calls_.call_of(message.call).count});
    }
  }

  std::string dump_of(std::uint32_t process) const {
    const int rank = calls_.processes()[process].rank;
    Pickle pickle;
    pickle.open_dict().text("version").text(kVersion).text("pg_config").open_dict();
    for (const TorchGroup& group : groups_) {
      if (std::ranges::count(group.ranks, rank) == 0) continue;
      pickle.text(group.name).open_dict().text("name").text(group.name).text("desc").text(kNoDescription);
      pickle.text("ranks").text(fmt::format("[{}]", fmt::join(group.ranks, ", "))).close_dict();
    }
    pickle.close_dict().text("entries").open_list();
    std::int64_t number = 0;
    for (const Entry& entry : entries_[process]) write(pickle, entry, number++);
    pickle.close_list().close_dict();
    return std::move(pickle).take();
  }

  static void write_size(Pickle& pickle, std::string_view key, const std::optional<std::uint64_t>& count) {
    pickle.text(key).open_list().open_list();
    if (count) pickle.number(static_cast<std::int64_t>(*count));
    pickle.close_list().close_list();
  }

  void write(Pickle& pickle, const Entry& entry, std::int64_t number) const {
    const Recording& recording = calls_.process_of(entry.call).recording;
    const RecordedCall& call = calls_.call_of(entry.call);
    const bool is_message = recording.is_message(call);
    const bool is_done = call.ended_ns != 0 && !call.failed;
    const std::string_view dtype = torch_dtype(recording.dtype_of(call));
    const auto sequence = static_cast<std::int64_t>(entry.sequence);
    const std::int64_t began = static_cast<std::int64_t>(call.started_ns) + wall_offset_;
    pickle.open_dict().text("record_id").number(number).text("pg_id").number(entry.group);
    pickle.text("process_group").open_tuple().text(groups_[entry.group].name).text(kNoDescription).close_tuple();
    pickle.text("collective_seq_id").number(sequence).text("p2p_seq_id").number(is_message ? sequence : 0);
    pickle.text("op_id").number(static_cast<std::int64_t>(call.record)).text("profiling_name").text(entry.name);
    pickle.text("time_created_ns").number(began).text("time_discovered_started_ns").number(began);
    pickle.text("time_discovered_completed_ns");
    if (is_done)
      pickle.number(static_cast<std::int64_t>(call.ended_ns) + wall_offset_)
          .text("duration_ms")
          .real(static_cast<double>(call.ended_ns - call.started_ns) * 1e-6);
    else
      pickle.none();
    write_size(pickle, "input_sizes", entry.input_count);
    pickle.text("input_dtypes").open_list().text(dtype).close_list();
    write_size(pickle, "output_sizes", entry.output_count);
    pickle.text("output_dtypes").open_list().text(dtype).close_list();
    pickle.text("state").text(is_done ? "completed" : "started").text("retired").truth(is_done ? 1 : 0);
    pickle.text("is_p2p").truth(is_message ? 1 : 0).text("frames").open_list().open_dict();
    const RecordedPlace& site = recording.site_of(call);
    pickle.text("name").text(recording.kind_of(call)).text("filename").text(site.file).text("line").number(site.line);
    pickle.close_dict().close_list().close_dict();
  }

  const MergedCalls& calls_;
  std::uint32_t context_;
  std::vector<TorchGroup> groups_;
  std::vector<std::vector<Entry>> entries_;  ///< By process.
  std::int64_t wall_offset_ = wall_offset_ns();
};

}  // namespace

std::map<int, std::string> flight_dumps(const MergedCalls& calls, std::uint32_t context) {
  return Dumps(calls, context).dumps();
}

}  // namespace retinue

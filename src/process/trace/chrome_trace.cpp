#include "process/trace/chrome_trace.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>
#include <vector>

#include "base/site_text.h"

namespace retinue {
namespace {

/// Shorter waits stand in the arguments of their call only.
constexpr std::uint64_t kShownWaitNs = 5'000;

/// Names are what somebody wrote into job memory: any bytes.
std::string json_text(const std::string& text) {
  return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

/// The format counts microseconds.
struct Microseconds {
  std::uint64_t ns;
};

}  // namespace
}  // namespace retinue

template <>
struct fmt::formatter<retinue::Microseconds> {
  static constexpr auto parse(fmt::format_parse_context& context) { return context.begin(); }
  template <typename Context>
  static auto format(const retinue::Microseconds& time, Context& context) {
    return fmt::format_to(context.out(), "{}.{:03}", time.ns / 1000, time.ns % 1000);
  }
};

namespace retinue {
namespace {

/// Writes the events of one process.
class ProcessTrace {
 public:
  ProcessTrace(const MergedCalls& all, std::uint32_t process, std::string& text)
      : all_(all), process_(process), recording_(all.processes()[process].recording), text_(text) {
    const auto quote_all = [](const std::vector<std::string>& texts) {
      std::vector<std::string> all_quoted;
      std::ranges::transform(texts, std::back_inserter(all_quoted), &json_text);
      return all_quoted;
    };
    kinds_ = quote_all(recording_.kinds);
    dtypes_ = quote_all(recording_.dtypes);
    ops_ = quote_all(recording_.ops);
    for (const RecordedPlace& site : recording_.sites) sites_.push_back(json_text(site_text(site.file, site.line)));
  }

  void add() {
    add_names();
    for (std::uint32_t i = 0; i < recording_.calls.size(); ++i) add_call({process_, i});
  }

 private:
  /// Tracks on which no two events overlap, which viewers do not draw.
  struct Track {
    std::size_t number;
    std::uint64_t free_from_ns = 0;
  };

  template <typename... Values>
  void write(fmt::format_string<const Values&...> format, const Values&... values) {
    text_ += ",\n";
    fmt::format_to(std::back_inserter(text_), format, values...);
  }

  void add_names() {
    const RecordedProcess& process = all_.processes()[process_];
    std::string name = process.is_rank() ? fmt::format("rank {} (pid {})", process.rank, recording_.pid)
                                         : fmt::format("not a rank (pid {})", recording_.pid);
    const auto is_other = [&](const RecordedProcess& other) {
      return other.is_rank() && other.context != process.context;
    };
    if (process.is_rank() && std::ranges::any_of(all_.processes(), is_other))
      name = fmt::format("context {}, {}", process.context, name);
    write(R"({{"ph":"M","name":"process_name","pid":{},"args":{{"name":{}}}}})", pid(), json_text(name));
    write(R"({{"ph":"M","name":"process_sort_index","pid":{},"args":{{"sort_index":{}}}}})", pid(), process_);
  }

  std::size_t track_of(const CallOf& call, std::uint64_t begin, std::uint64_t end) {
    const bool is_message = recording_.is_message(all_.call_of(call));
    std::vector<Track>& tracks = tracks_[{all_.group_of(call), is_message}];
    auto track = std::ranges::find_if(tracks, [&](const Track& each) { return each.free_from_ns <= begin; });
    if (track == tracks.end()) {
      tracks.push_back({.number = ++tracks_made_});
      track = std::prev(tracks.end());
      std::string name = all_.groups()[all_.group_of(call)].name + (is_message ? ": messages" : "");
      if (tracks.size() > 1) name += fmt::format(" {}", tracks.size());
      write(R"({{"ph":"M","name":"thread_name","pid":{},"tid":{},"args":{{"name":{}}}}})", pid(), track->number,
            json_text(name));
    }
    track->free_from_ns = end;
    return track->number;
  }

  void add_call(const CallOf& which) {
    const RecordedCall& call = all_.call_of(which);
    const std::uint64_t end = end_of(call, recording_);
    const std::size_t track = track_of(which, call.started_ns, end);
    const char* const state = call.ended_ns == 0 ? "under way" : call.failed ? "failed" : "done";
    const bool is_message = recording_.is_message(call);
    write(R"({{"ph":"X","name":{},"cat":"{}","pid":{},"tid":{},"ts":{},"dur":{},"args":{{)", kinds_[call.kind],
          is_message ? "message" : "collective", pid(), track, Microseconds{call.started_ns},
          Microseconds{end - call.started_ns});
    const auto out = std::back_inserter(text_);
    fmt::format_to(out, R"("state":"{}","sequence":{},"dtype":{},"count":{},"bytes":{},"site":{})", state,
                   call.sequence, dtypes_[call.dtype], call.count, call.bytes, sites_[call.site]);
    if (is_message)
      fmt::format_to(out, R"(,"peer":{},"tag":{})", call.peer, call.tag);
    else
      add_op_and_root(call);
    const auto times = all_.times_of(which);
    if (times)
      fmt::format_to(out, R"(,"waiting_us":{},"transfer_us":{})", Microseconds{times->waiting_ns},
                     Microseconds{times->transfer_ns});
    text_ += "}}";
    if (!times || times->waiting_ns < kShownWaitNs) return;
    const RecordedProcess& other = all_.processes()[times->late];
    const std::string name = other.is_rank() ? fmt::format("waiting for rank {}", other.rank)
                                             : fmt::format("waiting for process {}", other.recording.pid);
    write(R"({{"ph":"X","name":"{}","cat":"waiting","pid":{},"tid":{},"ts":{},"dur":{}}})", name, pid(), track,
          Microseconds{call.started_ns}, Microseconds{times->waiting_ns});
  }

  void add_op_and_root(const RecordedCall& call) {
    const std::string& kind = recording_.kind_of(call);
    if (kind.find("reduce") != std::string::npos || kind == "scan") text_ += R"(,"op":)" + ops_[call.op];
    if (kind == "broadcast" || kind == "reduce" || kind == "gather" || kind == "scatter")
      text_ += R"(,"root":)" + std::to_string(call.peer);
  }

  /// Of the trace: pids of processes in other PID namespaces may be the same.
  std::uint32_t pid() const { return process_ + 1; }

  const MergedCalls& all_;
  std::uint32_t process_;
  const Recording& recording_;
  std::string& text_;
  std::vector<std::string> kinds_, dtypes_, ops_, sites_;
  std::map<std::pair<std::uint32_t, bool>, std::vector<Track>> tracks_;
  std::size_t tracks_made_ = 0;
};

}  // namespace

std::string chrome_trace(const MergedCalls& calls) {
  std::string text = R"({"displayTimeUnit":"ns","traceEvents":[)";
  text += R"({"ph":"M","name":"trace","pid":0,"args":{"clock":"CLOCK_MONOTONIC"}})";
  for (std::uint32_t process = 0; process < calls.processes().size(); ++process)
    ProcessTrace(calls, process, text).add();
  return text + "\n]}\n";
}

}  // namespace retinue

#include "process/failure/failure_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>
#include <tuple>
#include <utility>

#include "base/ranks_text.h"
#include "os/process/signal_names.h"
#include "process/failure/last_lines.h"

namespace retinue {
namespace {

// One screen of 50 lines: the root cause's message, stack, output and use, then the other ranks. The stack gets what
// the rest leaves.
constexpr std::size_t kMaxLines = 48;
constexpr std::size_t kMaxMessageLines = 8;
constexpr std::size_t kMaxStackLines = 20;
constexpr std::size_t kMaxOutputLines = 6;
constexpr std::size_t kMaxOtherLines = 16;
constexpr std::size_t kMaxLineChars = 400;
// Where errors name ranks; it may take several lines' room.
constexpr std::size_t kMaxFirstLineChars = 4 * kMaxLineChars;
constexpr std::size_t kMaxOtherChars = 140;

std::string shorten(std::string_view text, std::size_t max_chars) {
  if (text.size() <= max_chars) return std::string(text);
  // Never in the middle of a UTF-8 character.
  std::size_t end = max_chars;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xc0u) == 0x80u) --end;
  return std::string(text.substr(0, end)) + "...";
}

std::string first_line(std::string_view text) {
  return std::string(text.substr(0, text.find('\n')));
}

/// The first lines of `text`, each indented, and a word on what was left out.
std::string excerpt(std::string_view text, std::size_t max_lines, std::string_view indent) {
  std::string result;
  std::size_t lines = 0;
  while (!text.empty() && lines < max_lines) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    result += fmt::format("\n{}{}", indent, shorten(text.substr(0, end), kMaxLineChars));
    text.remove_prefix(std::min(end + 1, text.size()));
    ++lines;
  }
  const auto left = static_cast<std::size_t>(std::count(text.begin(), text.end(), '\n')) + !text.ends_with('\n');
  if (!text.empty()) result += fmt::format("\n{}... {} more lines", indent, left);
  return result;
}

/// It failed when the job had begun to end it: whatever made the job do that came first.
bool is_after_stop(const RankOutcome& outcome) {
  return is_failure(outcome) && outcome.stopped.count() != 0 && outcome.ended > outcome.stopped;
}

std::string crash_text(const RankOutcome& outcome) {
  if (outcome.type.empty() && outcome.message.empty()) return {};
  if (outcome.type.empty()) return outcome.message;
  return fmt::format("{}: {}", outcome.type, outcome.message);
}

/// Its own doing, but after it was asked to end: " after the job's SIGTERM".
std::string_view when(const RankOutcome& outcome) {
  return is_after_stop(outcome) ? " after the job's SIGTERM" : "";
}

std::string signaled_words(const RankOutcome& outcome) {
  if (outcome.out_of_memory) return fmt::format("was killed by the kernel{}: ", when(outcome));
  return fmt::format("was killed by {}{}{}: ", signal_name(outcome.signal), outcome.core_dumped ? " (core dumped)" : "",
                     when(outcome));
}

/// The words and the details of an ending apart: the details may have many lines.
std::pair<std::string, std::string> ending_parts(const RankOutcome& outcome) {
  const std::string crash = crash_text(outcome);
  if (outcome.abandoned) return {"was abandoned: ", crash};
  switch (outcome.end) {
    case RankEnd::kRunning:
      return {outcome.message.empty() ? "is still running" : "is still alive: it ", outcome.message};
    case RankEnd::kReturned:
      return {outcome.stopped.count() == 0 ? "returned" : "returned after the job's SIGTERM", ""};
    case RankEnd::kRaised:
      return {is_after_stop(outcome) ? fmt::format("raised{}: ", when(outcome)) : "raised ", crash};
    case RankEnd::kExited:
      if (crash.empty()) return {fmt::format("exited with code {}", outcome.exit_code), ""};
      if (outcome.signal == 0) return {fmt::format("exited with code {}: ", outcome.exit_code), crash};
      return {fmt::format("exited with code {} after {}: ", outcome.exit_code, signal_name(outcome.signal)), crash};
    case RankEnd::kSignaled:
      return {signaled_words(outcome), outcome.type.empty() ? crash : "std::terminate after " + crash};
    case RankEnd::kStopped:
      if (outcome.signal == 0)
        return {fmt::format("was stopped by the job and exited with code {}", outcome.exit_code), ""};
      return {fmt::format("was stopped by the job ({})", signal_name(outcome.signal)), ""};
    case RankEnd::kNotStarted:
      return {"was not started", ""};
  }
  return {"ended in an unknown way", ""};
}

int weight(const RankOutcome& outcome) {
  if (outcome.abandoned) return 2;
  if (is_failure(outcome)) return is_after_stop(outcome) ? 2 : outcome.consequence ? 1 : 0;
  if (outcome.end == RankEnd::kStopped) return 3;
  return outcome.end == RankEnd::kNotStarted ? 4 : 5;
}

struct Group {
  std::string ending;
  std::vector<int> ranks;
  const RankOutcome* first;
};

/// "rank 1 (pid 77)", and "rank 1 (rank 3 of its world, pid 77)" of several shards, as its own errors call it.
std::string who_text(const RankOutcome& outcome, std::string_view name) {
  std::string details = outcome.world_rank < 0 ? "" : fmt::format("rank {} of its world", outcome.world_rank);
  if (outcome.pid != 0) details += fmt::format("{}pid {}", details.empty() ? "" : ", ", outcome.pid);
  const std::string who = name.empty() ? fmt::format("rank {}", outcome.rank) : std::string(name);
  return details.empty() ? who : fmt::format("{} ({})", who, details);
}

std::vector<Group> group_others(std::span<const RankOutcome> outcomes, std::size_t root) {
  std::vector<Group> groups;
  for (std::size_t i = 0; i < outcomes.size(); ++i) {
    if (i == root) continue;
    const std::string ending = ending_text(outcomes[i]);
    auto same = std::find_if(groups.begin(), groups.end(), [&](const Group& group) { return group.ending == ending; });
    if (same == groups.end()) same = groups.insert(groups.end(), {ending, {}, &outcomes[i]});
    same->ranks.push_back(outcomes[i].rank);
  }
  return groups;
}

/// "was stopped" of one rank is "were stopped" of several.
std::string plural(std::string_view ending) {
  for (const auto& [one, many] : {std::pair("was ", "were "), std::pair("is ", "are ")}) {
    if (ending.starts_with(one)) return many + std::string(ending.substr(std::string_view(one).size()));
  }
  return std::string(ending);
}

std::string group_text(const Group& group) {
  if (group.ranks.size() > 1) return fmt::format("ranks {}: {}", ranges_text(group.ranks), plural(group.ending));
  return fmt::format("{}: {}", who_text(*group.first, ""), group.ending);
}

/// A Python traceback ends with the frame that raised; all other stacks begin with it.
std::string stack_excerpt(std::string_view stack, std::size_t max_lines) {
  constexpr std::string_view kIndent = "    ";
  const auto lines = static_cast<std::size_t>(std::count(stack.begin(), stack.end(), '\n')) +
                     (stack.empty() || stack.ends_with('\n') ? 0 : 1);
  if (!stack.starts_with("Traceback") || lines <= max_lines) return excerpt(stack, max_lines, kIndent);
  std::size_t begin = 0;
  for (std::size_t left = lines; left > max_lines; --left) begin = stack.find('\n', begin) + 1;
  return fmt::format("\n{}... {} earlier lines", kIndent, lines - max_lines) +
         excerpt(stack.substr(begin), max_lines, kIndent);
}

/// The last that the rank wrote to its standard error.
std::string output_text(const RankOutcome& cause) {
  const std::vector<std::string> lines = last_lines(cause.stderr_log, kMaxOutputLines);
  if (lines.empty()) return {};
  std::string text = fmt::format("\n  last lines of {}:", cause.stderr_log);
  for (const std::string& line : lines) text += "\n    | " + shorten(line, kMaxLineChars);
  return text;
}

std::string trace_text(const RankOutcome& cause) {
  if (cause.trace.empty()) return {};
  return fmt::format(
      "\n  the last calls of all ranks are in {}: trace.json for ui.perfetto.dev, and dumps for torchfrtrace",
      cause.trace);
}

std::string duration_text(std::chrono::nanoseconds duration) {
  const double seconds = std::chrono::duration<double>(duration).count();
  return seconds < 1 ? fmt::format("{:.0f} ms", seconds * 1e3) : fmt::format("{:.1f} s", seconds);
}

std::string use_text(const ResourceUse& use) {
  if (use.lifetime.count() == 0) return {};
  std::string text = fmt::format("\n  it ran for {} and used {} of CPU time ({} user, {} system)",
                                 duration_text(use.lifetime), duration_text(use.user_cpu + use.system_cpu),
                                 duration_text(use.user_cpu), duration_text(use.system_cpu));
  if (use.peak_memory_bytes != 0) text += fmt::format(", {} MiB of memory at its peak", use.peak_memory_bytes >> 20);
  return text;
}

std::string others_text(const std::vector<Group>& groups) {
  std::string text;
  for (std::size_t i = 0; i < std::min(groups.size(), kMaxOtherLines); ++i) text += "\n  " + group_text(groups[i]);
  if (groups.size() <= kMaxOtherLines) return text;
  return text + fmt::format("\n  ... and {} more endings: see outcomes()", groups.size() - kMaxOtherLines);
}

}  // namespace

bool is_failure(const RankOutcome& outcome) {
  return outcome.abandoned || outcome.end == RankEnd::kRaised || outcome.end == RankEnd::kExited ||
         outcome.end == RankEnd::kSignaled;
}

std::size_t root_cause(std::span<const RankOutcome> outcomes) {
  const auto key = [](const RankOutcome& outcome) { return std::tuple(weight(outcome), outcome.ended); };
  const auto first = std::min_element(outcomes.begin(), outcomes.end(),
                                      [&](const RankOutcome& a, const RankOutcome& b) { return key(a) < key(b); });
  return static_cast<std::size_t>(first - outcomes.begin());
}

std::string ending_text(const RankOutcome& outcome) {
  const auto [words, details] = ending_parts(outcome);
  return shorten(words + first_line(details), kMaxOtherChars);
}

std::string failure_text(std::span<const RankOutcome> outcomes, std::string_view name) {
  const std::size_t root = root_cause(outcomes);
  const RankOutcome& cause = outcomes[root];
  const auto [words, details] = ending_parts(cause);
  std::string head = fmt::format("{} {}", who_text(cause, name), words);
  const std::string first = shorten(first_line(details), kMaxFirstLineChars);
  head += first;
  const std::size_t first_lines = 1 + first.size() / kMaxLineChars;
  if (const std::size_t end = details.find('\n'); end != std::string::npos) {
    head += excerpt(std::string_view(details).substr(end + 1), kMaxMessageLines - first_lines, "  ");
  }
  const std::string tail =
      output_text(cause) + trace_text(cause) + use_text(cause.use) + others_text(group_others(outcomes, root));
  const auto lines =
      first_lines - 1 +
      static_cast<std::size_t>(std::count(head.begin(), head.end(), '\n') + std::count(tail.begin(), tail.end(), '\n'));
  const std::size_t stack_lines = std::min(kMaxStackLines, kMaxLines - 2 - std::min(lines, kMaxLines - 2));
  return head + stack_excerpt(cause.stack, stack_lines) + tail;
}

void throw_root_cause(std::vector<RankOutcome> outcomes) {
  if (outcomes.empty()) return;
  const std::size_t root = root_cause(outcomes);
  const RankOutcome& cause = outcomes[root];
  if (!is_failure(cause)) return;
  const std::string text = failure_text(outcomes);
  if (cause.end == RankEnd::kRaised) throw ProcessRaisedException(text, std::move(outcomes), root);
  throw ProcessExitedException(text, std::move(outcomes), root);
}

}  // namespace retinue

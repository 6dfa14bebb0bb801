#include "process/failure_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>
#include <tuple>
#include <utility>

#include "process/signal_names.h"

namespace retinue {
namespace {

// One screen of 50 lines: the root cause's message and stack, then the other ranks.
constexpr std::size_t kMaxMessageLines = 8;
constexpr std::size_t kMaxStackLines = 20;
constexpr std::size_t kMaxOtherLines = 16;
constexpr std::size_t kMaxLineChars = 400;
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

std::string crash_text(const RankOutcome& outcome) {
  if (outcome.type.empty() && outcome.message.empty()) return {};
  if (outcome.type.empty()) return outcome.message;
  return fmt::format("{}: {}", outcome.type, outcome.message);
}

/// The words and the details of an ending apart: the details may have many lines.
std::pair<std::string, std::string> ending_parts(const RankOutcome& outcome) {
  const std::string crash = crash_text(outcome);
  switch (outcome.end) {
    case RankEnd::kRunning:
      return {"is still running", ""};
    case RankEnd::kReturned:
      return {"returned", ""};
    case RankEnd::kRaised:
      return {"raised ", crash};
    case RankEnd::kExited:
      if (crash.empty()) return {fmt::format("exited with code {}", outcome.exit_code), ""};
      return {fmt::format("exited with code {} after {}: ", outcome.exit_code, signal_name(outcome.signal)), crash};
    case RankEnd::kSignaled:
      return {
          fmt::format("was killed by {}{}: ", signal_name(outcome.signal), outcome.core_dumped ? " (core dumped)" : ""),
          outcome.type.empty() ? crash : "std::terminate after " + crash};
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
  if (is_failure(outcome)) return outcome.consequence ? 1 : 0;
  if (outcome.end == RankEnd::kStopped) return 2;
  return outcome.end == RankEnd::kNotStarted ? 3 : 4;
}

/// "0, 2-7": ranks in increasing order, runs of at least three as a range.
std::string ranks_text(const std::vector<int>& ranks) {
  std::string text;
  for (std::size_t i = 0; i < ranks.size();) {
    std::size_t last = i;
    while (last + 1 < ranks.size() && ranks[last + 1] == ranks[last] + 1) ++last;
    if (last < i + 2) last = i;
    text += text.empty() ? "" : ", ";
    text += last == i ? fmt::format("{}", ranks[i]) : fmt::format("{}-{}", ranks[i], ranks[last]);
    i = last + 1;
  }
  return text;
}

struct Group {
  std::string ending;
  std::vector<int> ranks;
  int pid;
};

std::vector<Group> group_others(std::span<const RankOutcome> outcomes, std::size_t root) {
  std::vector<Group> groups;
  for (std::size_t i = 0; i < outcomes.size(); ++i) {
    if (i == root) continue;
    const std::string ending = ending_text(outcomes[i]);
    auto same = std::find_if(groups.begin(), groups.end(), [&](const Group& group) { return group.ending == ending; });
    if (same == groups.end()) same = groups.insert(groups.end(), {ending, {}, outcomes[i].pid});
    same->ranks.push_back(outcomes[i].rank);
  }
  for (Group& group : groups) std::sort(group.ranks.begin(), group.ranks.end());
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
  if (group.ranks.size() > 1) return fmt::format("ranks {}: {}", ranks_text(group.ranks), plural(group.ending));
  const std::string pid = group.pid == 0 ? "" : fmt::format(" (pid {})", group.pid);
  return fmt::format("rank {}{}: {}", group.ranks.front(), pid, group.ending);
}

}  // namespace

bool is_failure(const RankOutcome& outcome) {
  return outcome.end == RankEnd::kRaised || outcome.end == RankEnd::kExited || outcome.end == RankEnd::kSignaled;
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

std::string failure_text(std::span<const RankOutcome> outcomes) {
  const std::size_t root = root_cause(outcomes);
  const RankOutcome& cause = outcomes[root];
  const auto [words, details] = ending_parts(cause);
  std::string text = fmt::format("rank {} (pid {}) {}", cause.rank, cause.pid, words);
  text += shorten(first_line(details), kMaxLineChars);
  if (const std::size_t end = details.find('\n'); end != std::string::npos) {
    text += excerpt(std::string_view(details).substr(end + 1), kMaxMessageLines - 1, "  ");
  }
  text += excerpt(cause.stack, kMaxStackLines, "    ");
  const std::vector<Group> groups = group_others(outcomes, root);
  for (std::size_t i = 0; i < std::min(groups.size(), kMaxOtherLines); ++i) text += "\n  " + group_text(groups[i]);
  if (groups.size() > kMaxOtherLines) {
    text += fmt::format("\n  ... and {} more endings: see outcomes()", groups.size() - kMaxOtherLines);
  }
  return text;
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

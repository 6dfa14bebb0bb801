#include "text_lists.h"

#include <fmt/format.h>

#include <algorithm>
#include <csignal>
#include <cstring>
#include <optional>

#include "base/parse_number.h"
#include "retinue/base/error.h"

namespace retinue {

std::vector<std::string> split_at_commas(const std::string& text) {
  std::vector<std::string> parts(1);
  for (std::size_t at = 0; at < text.size(); ++at) {
    const bool is_escaped = text.compare(at, 2, ",,") == 0;
    if (text[at] == ',' && !is_escaped) {
      parts.emplace_back();
      continue;
    }
    parts.back() += text[at];
    if (is_escaped) ++at;
  }
  std::erase(parts, "");
  return parts;
}

int number_of(const std::string& text, const std::string& flag, int least) {
  const std::optional<int> number = parse_number<int>(text);
  if (!number || *number < least)
    throw UsageError(fmt::format("{}: '{}' is not a whole number of at least {}", flag, text, least));
  return *number;
}

std::vector<int> ranks_of(const std::string& text, const std::string& flag) {
  std::vector<int> ranks;
  for (const std::string& part : split_at_commas(text)) ranks.push_back(number_of(part, flag, 0));
  return ranks;
}

std::vector<int> signals_of(const std::string& text) {
  std::vector<int> signals;
  for (const std::string& name : split_at_commas(text)) {
    const std::string bare = name.starts_with("SIG") ? name.substr(3) : name;
    int found = 0;
    for (int signal = 1; signal < NSIG; ++signal)
      if (const char* known = sigabbrev_np(signal); known != nullptr && bare == known) found = signal;
    if (found == 0)
      throw UsageError(
          fmt::format("--signals-to-handle: there is no signal '{}'; give names, for example SIGTERM,SIGUSR1", name));
    if (std::ranges::count(std::vector{SIGKILL, SIGSTOP, SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGCHLD}, found) > 0)
      throw UsageError(fmt::format("--signals-to-handle: {} cannot be caught and passed on; remove it", name));
    signals.push_back(found);
  }
  return signals;
}

std::vector<std::string> shell_words(const std::string& text) {
  std::vector<std::string> words;
  bool is_in_word = false;
  char quote = 0;
  for (std::size_t at = 0; at < text.size(); ++at) {
    const char c = text[at];
    if (quote == 0 && (c == ' ' || c == '\t' || c == '\n')) {
      is_in_word = false;
      continue;
    }
    if (!is_in_word) words.emplace_back();
    is_in_word = true;
    if (quote == 0 && (c == '\'' || c == '"')) {
      quote = c;
    } else if (c == quote) {
      quote = 0;
    } else if (c == '\\' && quote != '\'' && at + 1 < text.size()) {
      words.back() += text[++at];
    } else {
      words.back() += c;
    }
  }
  if (quote != 0) throw UsageError(fmt::format("'{}' has a quote {} that is not closed", text, quote));
  return words;
}

std::string shell_quoted(const std::string& word) {
  constexpr const char* kPlain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-+=./:,@%";
  if (!word.empty() && word.find_first_not_of(kPlain) == std::string::npos) return word;
  std::string quoted = "'";
  for (const char c : word) quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return quoted + "'";
}

}  // namespace retinue

#pragma once

#include <string>
#include <vector>

namespace retinue {

/// "a,b": a and b; ",," is a comma. Empty elements are dropped.
std::vector<std::string> split_at_commas(const std::string& text);

/// "0,2": 0 and 2. `flag` serves messages. Errors: UsageError.
std::vector<int> ranks_of(const std::string& text, const std::string& flag);

/// A whole number of at least `least`. Errors: UsageError.
int number_of(const std::string& text, const std::string& flag, int least);

/// "SIGTERM,INT": their numbers. Errors: UsageError for an unknown one, and for those that cannot be taken.
std::vector<int> signals_of(const std::string& text);

/// Words as a shell splits them: at blanks, with quotes and backslashes; nothing is expanded. Errors: UsageError.
std::vector<std::string> shell_words(const std::string& text);

/// A word as a shell would have to be given it.
std::string shell_quoted(const std::string& word);

}  // namespace retinue

#include "store/token.h"

#include <fmt/format.h>

#include <optional>

#include "os/files/environment.h"
#include "os/files/private_file.h"
#include "os/files/random_bytes.h"
#include "retinue/base/error.h"

namespace retinue {
namespace {

constexpr std::size_t kTokenBytes = 32;
constexpr char kSpace[] = " \t\r\n";

std::string without_end(std::string text) {
  text.erase(text.find_last_not_of(kSpace) + 1);
  return text;
}

}  // namespace

std::string token_file() {
  // The specification of that variable says that relative paths count as none.
  const std::string config = find_variable("XDG_CONFIG_HOME").value_or("");
  if (config.starts_with('/')) return config + "/retinue/token";
  const std::string home = find_variable("HOME").value_or("");
  if (!home.starts_with('/'))
    throw UsageError(
        "a store needs the job's token, but neither XDG_CONFIG_HOME nor HOME is an absolute path to find the "
        "token file in: set RETINUE_TOKEN to the same secret for all processes of the job");
  return home + "/.config/retinue/token";
}

Token job_token(const std::string& option) {
  if (!option.empty()) return {option, "the option `token`"};
  if (auto secret = find_variable("RETINUE_TOKEN")) return {std::move(*secret), "RETINUE_TOKEN"};
  const std::string path = token_file();
  std::optional<std::string> text = read_private_file(path);
  if (!text) {
    make_private_file(path, in_hex(random_bytes(kTokenBytes)) + "\n");
    text = read_private_file(path);
  }
  if (!text) throw UsageError(fmt::format("{} was removed while a token was being written to it: try again", path));
  std::string secret = without_end(*std::move(text));
  if (secret.empty()) throw UsageError(fmt::format("{} is empty: remove it, and a new token is created", path));
  return {std::move(secret), path};
}

}  // namespace retinue

#include "torch/gloo/gloo_peers.h"

#include <c10/util/Exception.h>
#include <c10/util/StringUtil.h>

#include <algorithm>
#include <cctype>
#include <initializer_list>

#include "retinue/base/error.h"

namespace retinue {
namespace {

bool contains_one_of(const std::string& text, std::initializer_list<const char*> parts) {
  return std::any_of(parts.begin(), parts.end(),
                     [&](const char* part) { return text.find(part) != std::string::npos; });
}

/// Whether the address stands there, and not only the beginning or end of a longer one.
bool names(const std::string& text, const std::string& address) {
  const auto is_of_address = [](char c) { return std::isxdigit(static_cast<unsigned char>(c)) != 0 || c == '.'; };
  for (std::size_t at = text.find(address); at != std::string::npos; at = text.find(address, at + 1)) {
    const std::size_t end = at + address.size();
    if ((at == 0 || !is_of_address(text[at - 1])) && (end == text.size() || !is_of_address(text[end]))) return true;
  }
  return false;
}

/// Without the place in gloo's source before it, and the advice behind it.
std::string without_frame(std::string text) {
  text.resize(std::min(text.size(), text.find(". This is typically caused")));
  for (std::size_t at = text.find("[/"); at != std::string::npos; at = text.find("[/", at)) {
    const std::size_t end = text.find("] ", at);
    if (end == std::string::npos) break;
    text.erase(at, end + 2 - at);
  }
  const std::size_t end = text.starts_with('[') ? text.find("] ") : std::string::npos;
  return end == std::string::npos ? text : text.substr(end + 2);
}

}  // namespace

std::vector<int> GlooPeers::named_in(const std::string& text) const {
  std::vector<int> ranks;
  for (std::size_t rank = 0; rank < addresses_.size(); ++rank)
    if (static_cast<int>(rank) != rank_ && !addresses_[rank].empty() && names(text, addresses_[rank]))
      ranks.push_back(static_cast<int>(rank));
  return ranks;
}

std::string GlooPeers::head_of(std::string_view what) const {
  return c10::str("group \"", group_, "\": rank ", rank_, " waits in ", what, ", and ");
}

std::exception_ptr GlooPeers::translated(const std::exception_ptr& error, std::string_view head) const {
  std::string text;
  try {
    std::rethrow_exception(error);
  } catch (const Error&) {
    return error;
  } catch (const c10::Error& thrown) {
    text = without_frame(thrown.what_without_backtrace());
  } catch (const std::exception& thrown) {
    text = without_frame(thrown.what());
  } catch (...) {
    return error;
  }
  const bool is_lost =
      contains_one_of(text, {"Read error", "writev", "Connection closed", "Connection reset", "ocket closed",
                             "Broken pipe", "No route to host", "is unreachable", "Connection refused"});
  if (!is_lost && contains_one_of(text, {"imed out", "imeout", " in time"}))
    return std::make_exception_ptr(TimeoutError(c10::str(head, "its timeout passed; gloo says: ", text)));
  if (!is_lost) return std::make_exception_ptr(Error(c10::str(head, "gloo says: ", text)));
  std::vector<int> ranks = named_in(text);
  std::string which = "another rank";
  if (ranks.size() == 1) which = c10::str("rank ", ranks[0]);
  if (ranks.size() > 1) which = c10::str("one of ranks ", c10::Join(", ", ranks));
  if (ranks.size() > 1) ranks.clear();
  return std::make_exception_ptr(PeerLost(
      c10::str(head, which, " is lost: it died, left the group, or can't be reached; gloo says: ", text), ranks));
}

}  // namespace retinue

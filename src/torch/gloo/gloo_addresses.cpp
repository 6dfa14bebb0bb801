#include "torch/gloo/gloo_addresses.h"

#include <c10/util/StringUtil.h>
#include <ifaddrs.h>
#include <netdb.h>
#include <netinet/in.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <sstream>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>
#include <utility>

#include "retinue/base/error.h"
#include "retinue/collective/engine.h"
#include "retinue/launch/join_group.h"
#include "retinue/launch/store_exchange.h"
#include "retinue/store/prefix_store.h"
#include "retinue/store/tcp_store.h"
#include "retinue/torch/c10d_store.h"

namespace retinue {
namespace {

/// An address that no host has, only routes: the way there is that of the default route.
constexpr const char* kAnywhere = "192.0.2.1";
constexpr const char* kLoopback = "127.0.0.1";

/// This host's address as the server of the ranks' store sees it; empty where that says nothing.
std::string address_by(const Store& store) {
  if (const auto* prefixed = dynamic_cast<const PrefixStore*>(&store)) return address_by(*prefixed->underlying_store());
  if (const auto* tcp = dynamic_cast<const TcpStore*>(&store)) return local_host_towards(tcp->host(), tcp->port());
  const auto* other = dynamic_cast<const C10dStore*>(&store);
  if (other == nullptr) return {};
  c10d::Store* theirs = other->underlying_store().get();
  while (auto* prefixed = dynamic_cast<c10d::PrefixStore*>(theirs)) theirs = prefixed->getUnderlyingStore().get();
  const auto* tcp = dynamic_cast<c10d::TCPStore*>(theirs);
  return tcp == nullptr ? std::string() : local_host_towards(tcp->getHost(), tcp->getPort());
}

std::string address_by_default_route() {
  try {
    return local_host_towards(kAnywhere, 1);
  } catch (const Error&) {
    return kLoopback;  // There is no such way.
  }
}

std::string address_of_interface(const std::string& name) {
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) throw SystemError("asking for this host's network interfaces", errno);
  const std::unique_ptr<ifaddrs, decltype(&freeifaddrs)> owner(list, freeifaddrs);
  for (const int family : {AF_INET, AF_INET6})
    for (const ifaddrs* one = list; one != nullptr; one = one->ifa_next) {
      if (name != one->ifa_name || one->ifa_addr == nullptr || one->ifa_addr->sa_family != family) continue;
      const socklen_t bytes = family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
      char text[NI_MAXHOST];
      if (getnameinfo(one->ifa_addr, bytes, text, sizeof text, nullptr, 0, NI_NUMERICHOST) == 0) return text;
    }
  throw UsageError(
      c10::str("GLOO_SOCKET_IFNAME is \"", name, "\", but this host has no such interface with an address"));
}

bool is_loopback(const std::string& address) {
  return address.starts_with("127.") || address == "::1";
}

/// A rank as it shows itself to the others: words, with blanks between them.
struct Introduction {
  std::string protocol = std::to_string(kEngineProtocol);
  std::string kernel = {};   ///< That runs there.
  std::string address = {};  ///< Or "failed", and the rest says why.
  std::string rest = {};     ///< An address for other hosts, where that one is the loopback.

  std::string text() const { return c10::str(protocol, ' ', kernel, ' ', address, ' ', rest); }

  static Introduction of(const std::string& text) {
    std::istringstream words(text);
    Introduction one;
    words >> one.protocol >> one.kernel >> one.address;
    std::getline(words >> std::ws, one.rest);
    return one;
  }
};

Introduction own_introduction(const Store& meeting) {
  const std::string host = host_of_this_process();
  Introduction own{.kernel = "kernel-" + host.substr(0, host.find(' '))};
  try {
    if (const char* const name = std::getenv("GLOO_SOCKET_IFNAME"); name != nullptr && *name != '\0') {
      own.address = own.rest = address_of_interface(name);
      return own;
    }
    own.address = address_by(meeting);
    if (own.address.empty() || is_loopback(own.address)) own.rest = address_by_default_route();
    if (own.address.empty()) own.address = own.rest;
  } catch (const std::exception& error) {
    own.address = "failed";
    own.rest = error.what();
  }
  return own;
}

std::vector<std::string> addresses_of(const std::string& group, const std::vector<Introduction>& ranks) {
  const auto differs = [&](auto member) {
    return std::any_of(ranks.begin(), ranks.end(), [&](const auto& one) { return one.*member != ranks[0].*member; });
  };
  if (differs(&Introduction::protocol))
    throw UsageError(c10::str("group \"", group, "\": its ranks were built with different versions of Retinue"));
  const bool is_one_host = !differs(&Introduction::kernel);
  std::vector<std::string> addresses;
  for (const Introduction& one : ranks) {
    const std::string head = c10::str("group \"", group, "\": rank ", addresses.size(), ' ');
    if (one.address == "failed") throw UsageError(c10::str(head, "has no address for the others: ", one.rest));
    std::string address = one.address;
    if (!is_one_host && is_loopback(address)) address = one.rest;
    if (!is_one_host && is_loopback(address))
      throw UsageError(c10::str(head, "has the address ", address,
                                ", which other hosts can't reach: use an address of a network interface (MASTER_ADDR, "
                                "or tcp://), or set GLOO_SOCKET_IFNAME to the interface"));
    addresses.push_back(std::move(address));
  }
  return addresses;
}

}  // namespace

std::vector<std::string> exchange_texts(StoreExchange& exchange, std::string own, int size) {
  constexpr std::size_t kTextBytes = 512;
  own.resize(kTextBytes);
  std::string all(kTextBytes * static_cast<std::size_t>(size), '\0');
  exchange.all_gather(own.data(), all.data(), kTextBytes);
  std::vector<std::string> texts;
  for (std::size_t at = 0; at < all.size(); at += kTextBytes)
    texts.emplace_back(all.data() + at, strnlen(all.data() + at, kTextBytes));
  return texts;
}

std::vector<std::string> exchange_addresses(StoreExchange& exchange, const Store& meeting, const std::string& group,
                                            int size) {
  std::vector<Introduction> ranks;
  for (const std::string& text : exchange_texts(exchange, own_introduction(meeting).text(), size))
    ranks.push_back(Introduction::of(text));
  try {
    return addresses_of(group, ranks);
  } catch (const UsageError&) {
    exchange.leave_together();
    throw;
  }
}

}  // namespace retinue

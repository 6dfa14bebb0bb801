#include "torch/gloo_backend.h"

#include <c10/util/StringUtil.h>

#include <algorithm>
#include <cstdlib>
#include <mutex>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>
#include <utility>

#include "retinue/base/error.h"
#include "retinue/launch/join_group.h"
#include "retinue/store/prefix_store.h"
#include "retinue/store/tcp_store.h"
#include "retinue/torch/c10d_store.h"
#include "torch/gloo_connection.h"
#include "torch/gloo_engine.h"

namespace retinue {
namespace {

/// An address that no host has, only routes: the way there is that of the default route.
constexpr const char* kAnywhere = "192.0.2.1";

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

/// Where other ranks reach this one; empty where GLOO_SOCKET_IFNAME says that.
std::string own_address(const Store& store) {
  if (std::getenv("GLOO_SOCKET_IFNAME") != nullptr) return {};
  const std::string address = address_by(store);
  if (!address.empty()) return address;
  try {
    return local_host_towards(kAnywhere, 1);
  } catch (const Error&) {
    return "127.0.0.1";  // There is no such way.
  }
}

bool is_loopback(const std::string& address) {
  return address.starts_with("127.") || address == "::1";
}

/// A rank as it shows itself to the others: the address, a blank, the kernel that runs there.
std::string introduction_of(const std::string& address) {
  const std::string host = host_of_this_process();
  return address + ' ' + host.substr(0, host.find(' '));
}

std::vector<std::string> checked_addresses(const std::string& group, const std::vector<std::string>& introductions) {
  std::vector<std::string> addresses;
  bool is_one_host = true;
  for (const std::string& text : introductions) {
    addresses.push_back(text.substr(0, text.find(' ')));
    is_one_host = is_one_host && text.substr(text.find(' ')) == introductions[0].substr(introductions[0].find(' '));
  }
  const auto local = std::find_if(addresses.begin(), addresses.end(), is_loopback);
  if (!is_one_host && local != addresses.end())
    throw UsageError(c10::str("group \"", group, "\": rank ", local - addresses.begin(), " would be reached at ",
                              *local,
                              ", which no other host can: let ranks meet at an address of a network interface "
                              "(MASTER_ADDR, or tcp://), or name the interface by GLOO_SOCKET_IFNAME"));
  return addresses;
}

}  // namespace

GlooBackend::Connection GlooBackend::connect(const GlooMeeting& meeting, std::chrono::milliseconds timeout) {
  // As often as this rank came there for a group of that name, as did the others.
  const std::string base = c10::str("retinue/", meeting.name, "/gloo");
  const auto number = meeting.store->add(c10::str(base, " of ", meeting.rank), 1);
  const auto store = std::make_shared<PrefixStore>(c10::str(base, ' ', number), meeting.store);
  const std::string address = own_address(*meeting.store);
  store->set(std::to_string(meeting.rank), introduction_of(address));
  std::vector<std::string> keys;
  for (int rank = 0; rank < meeting.size; ++rank) keys.push_back(std::to_string(rank));
  const std::vector<std::string> introductions = store->multi_get(keys, Deadline::after(timeout));
  const auto peers =
      std::make_shared<const GlooPeers>(meeting.name, meeting.rank, checked_addresses(meeting.name, introductions));
  auto gloo = peers->checked("the opening of the group", [&] {
    return connect_gloo(to_c10d_store(std::make_shared<PrefixStore>("addresses", store)), meeting.rank, meeting.size,
                        timeout, address);
  });
  return {.peers = peers, .gloo = std::move(gloo)};
}

GlooBackend::GlooBackend(GlooMeeting meeting, const ShmBackend::Waits& waits)
    : GlooBackend(meeting, waits, connect(meeting, waits.timeout)) {}

GlooBackend::GlooBackend(GlooMeeting meeting, const ShmBackend::Waits& waits, Connection connection)
    : TensorBackend(
          meeting.rank, meeting.size, waits.timeout,
          std::make_shared<OperationQueue>(Communicator(
              std::make_unique<GlooEngine>(connection.gloo, connection.peers),
              {.name = meeting.name, .rank = meeting.rank, .size = meeting.size}, {.timeout = waits.timeout}))),
      meeting_(std::move(meeting)),
      waits_(waits),
      connection_(std::move(connection)) {}

GlooBackend::~GlooBackend() {
  shutdown();
}

GlooBackend* GlooBackend::of(const c10d::ProcessGroup& group) {
  return dynamic_cast<GlooBackend*>(group.getDefaultBackend().get());
}

ShmBackend::Waits GlooBackend::waits() const {
  ShmBackend::Waits waits = waits_;
  waits.timeout = timeout();
  return waits;
}

detail::SplitParent GlooBackend::split_parent(const CallSite& site) {
  ++splits_;
  return {.rank = rank_,
          .size = size_,
          .name = meeting_.name,
          .all_gather = [this, site](const void* own, void* all, std::size_t bytes) {
            use_communicator([&](Communicator& ranks) { ranks.all_gather(own, all, bytes, site); });
          }};
}

std::shared_ptr<Store> GlooBackend::store_of_part(int first_rank) const {
  return std::make_shared<PrefixStore>(c10::str(meeting_.name, "/part ", splits_, " of rank ", first_rank),
                                       meeting_.store);
}

void GlooBackend::monitored_barrier(const MonitoredBarrierOptions& options, const CallSite& /*site*/) {
  use_communicator([&](Communicator& /*ranks*/) {
    connection_.peers->checked("monitored_barrier", [&] {
      c10d::BarrierOptions asked;
      asked.timeout = options.timeout ? std::chrono::ceil<std::chrono::milliseconds>(*options.timeout) : timeout();
      connection_.gloo->monitoredBarrier(asked, options.wait_all_ranks);
    });
  });
}

void GlooBackend::close_messages() {
  connection_.gloo.reset();
}

}  // namespace retinue

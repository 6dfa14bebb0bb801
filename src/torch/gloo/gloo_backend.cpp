#include "torch/gloo/gloo_backend.h"

#include <c10/util/StringUtil.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "retinue/base/error.h"
#include "retinue/launch/join_group.h"
#include "retinue/launch/runtime.h"
#include "retinue/store/prefix_store.h"
#include "retinue/torch/c10d_store.h"
#include "torch/gloo/gloo_addresses.h"
#include "torch/gloo/gloo_connection.h"
#include "torch/gloo/gloo_engine.h"

namespace retinue {
namespace {

std::chrono::milliseconds left(Deadline deadline) {
  return std::max(std::chrono::ceil<std::chrono::milliseconds>(deadline.left(std::chrono::hours(24 * 365))),
                  std::chrono::milliseconds(1));
}

/// `store`, or where that is one of c10d's, also under prefixes, the same by a connection of its own: then no waiting
/// call of others holds its calls up. Null where c10d makes none.
std::shared_ptr<Store> with_own_connection(const std::shared_ptr<Store>& store) {
  if (const auto* prefixed = dynamic_cast<const PrefixStore*>(store.get())) {
    const std::shared_ptr<Store> own = with_own_connection(prefixed->underlying_store());
    return own ? std::make_shared<PrefixStore>(prefixed->prefix(), own) : nullptr;
  }
  const auto* c10d_store = dynamic_cast<const C10dStore*>(store.get());
  if (c10d_store == nullptr) return store;
  try {
    return std::make_shared<C10dStore>(c10d_store->underlying_store()->clone());
  } catch (const std::exception&) {
    return nullptr;
  }
}

}  // namespace

std::shared_ptr<OperationQueue> GlooBackend::make_queue(const Opened& opened, const GlooMeeting& meeting,
                                                        const Waits& waits) {
  const Runtime* const runtime = Runtime::current_or_null();
  const std::shared_ptr<Store> own_connection = with_own_connection(opened.store);
  const EngineMembers members{.name = meeting.name,
                              .rank = meeting.rank,
                              .size = meeting.size,
                              .store = own_connection ? std::make_shared<PrefixStore>("late", own_connection) : nullptr,
                              .host = host_of_this_process(),
                              .processes = opened.processes,
                              .memory = runtime == nullptr ? nullptr : runtime->memory()};
  return std::make_shared<OperationQueue>(Communicator(std::make_unique<GlooEngine>(opened.link, meeting.size), members,
                                                       {.timeout = waits.timeout, .late_after = waits.late_after}));
}

GlooBackend::Opened GlooBackend::open(const GlooMeeting& meeting, std::optional<std::chrono::nanoseconds> late_after,
                                      Deadline deadline) {
  StoreExchange exchange({.store = std::make_shared<PrefixStore>("gloo", meeting.store),
                          .name = meeting.name,
                          .rank = meeting.rank,
                          .size = meeting.size,
                          .deadline = deadline,
                          .call = c10::str(name_of(OuterCall::kOpening), " at ", meeting.site.text()),
                          .late_after = late_after});
  const auto store =
      std::make_shared<PrefixStore>(c10::str("retinue/", meeting.name, "/gloo ", exchange.number()), meeting.store);
  std::vector<std::string> addresses = exchange_addresses(exchange, *meeting.store, meeting.name, meeting.size);
  const std::string own = addresses[static_cast<std::size_t>(meeting.rank)];
  GlooPeers peers(meeting.name, meeting.rank, std::move(addresses));
  auto gloo = peers.checked(c10::str(name_of(OuterCall::kOpening), " at ", meeting.site.text()), [&] {
    const WithoutSigpipe without;
    try {
      return connect_gloo(to_c10d_store(std::make_shared<PrefixStore>("gloo", store)), meeting.rank, meeting.size,
                          left(deadline), own);
    } catch (...) {
      exchange.check_that_others_live();
      throw;
    }
  });
  // Who is connected may leave at once, while others still connect. From now on a rank's death is recognised, also of
  // the one that serves the store.
  return {.store = store,
          .link = std::make_shared<GlooLink>(std::move(gloo), std::move(peers)),
          .processes = exchange_texts(exchange, describe_engine_process(host_of_this_process()), meeting.size)};
}

GlooBackend::GlooBackend(const GlooMeeting& meeting, const TensorBackend::Waits& waits, Deadline deadline)
    : GlooBackend(meeting, waits, open(meeting, waits.late_after, deadline)) {}

GlooBackend::GlooBackend(GlooMeeting meeting, const TensorBackend::Waits& waits, const Opened& opened)
    : TensorBackend("gloo", meeting.rank, meeting.size, waits, make_queue(opened, meeting, waits)),
      meeting_(std::move(meeting)),
      store_(opened.store),
      link_(opened.link),
      messages_(std::make_shared<GlooMessages>(link_, rank_, size_)) {}

GlooBackend::~GlooBackend() {
  shutdown();
}

void GlooBackend::shutdown() {
  if (getpid() == owner_) return TensorBackend::shutdown();
  link_->leak();
  leak_queue();
}

GlooBackend* GlooBackend::of(const c10d::ProcessGroup& group) {
  return dynamic_cast<GlooBackend*>(group.getDefaultBackend().get());
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
  return std::make_shared<PrefixStore>(c10::str("part ", splits_, " of rank ", first_rank), store_);
}

std::string GlooBackend::name_of_part(const std::string& name, int first_rank) const {
  return c10::str(meeting_.name, "/", name.empty() ? "group" : name, " ", splits_, ".", first_rank);
}

std::vector<GlooBackend::WorkPtr> GlooBackend::start(std::span<const TensorP2POp> messages, const CallMode& mode) {
  check_open();
  // Which closed the connections.
  if (const std::exception_ptr error = first_error()) std::rethrow_exception(error);
  return messages_->start(messages, timeout_of(mode), mode.site, getBackendName());
}

int GlooBackend::run(const TensorP2POp& message, const CallMode& mode) {
  const WorkPtr work = start({&message, 1}, mode).front();
  work->wait();
  return work->sourceRank();
}

}  // namespace retinue

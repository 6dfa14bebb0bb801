#include <c10/util/StringUtil.h>

#include <algorithm>
#include <cstdlib>
#include <string>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>
#include <vector>

#include "retinue/base/error.h"
#include "retinue/collective/communicator.h"
#include "retinue/launch/join_world.h"
#include "retinue/launch/runtime.h"
#include "retinue/os/detail/standard_error.h"
#include "retinue/store/tcp_store.h"
#include "retinue/torch/c10d_store.h"
#include "retinue/torch/detail/c10d_caller.h"
#include "retinue/torch/process_group.h"
#include "torch/backend/shm_backend.h"
#include "torch/gloo/gloo_backend.h"
#include "torch/groups/freed_memory.h"
#include "torch/groups/make_group.h"
#include "torch/groups/nccl_backend.h"

namespace retinue {
namespace {

std::vector<std::string> parts_of(const std::string& text, char separator) {
  std::vector<std::string> parts;
  for (std::size_t at = 0; at <= text.size();) {
    const std::size_t end = std::min(text.find(separator, at), text.size());
    parts.push_back(text.substr(at, end - at));
    at = end + 1;
  }
  return parts;
}

[[noreturn]] void refuse_backend(const std::string& backend, const std::string& why) {
  throw UsageError(c10::str("init_process_group: backend \"", backend, "\": ", why,
                            "; use \"shm\" or \"gloo\", the same as \"cpu:shm\", or \"cpu:shm,cuda:nccl\""));
}

/// "shm" or "gloo", or the same behind "cpu:", and "nccl" or "cuda:nccl": what there is besides is asked for in vain,
/// which is better said here than at the first tensor.
AskedBackends checked_backends(const std::string& backend) {
  std::vector<std::string> devices;
  AskedBackends asked;
  for (const std::string& item : parts_of(backend, ',')) {
    const std::size_t colon = item.find(':');
    const std::string name = colon == std::string::npos ? item : item.substr(colon + 1);
    const std::string own_device = name == "nccl" ? "cuda" : "cpu";
    const std::string device = colon == std::string::npos ? own_device : item.substr(0, colon);
    if (std::find(devices.begin(), devices.end(), device) != devices.end())
      refuse_backend(backend, c10::str("there are two backends for device ", device));
    devices.push_back(device);
    if (name != "shm" && name != "gloo" && name != "nccl")
      refuse_backend(backend, c10::str("there is no backend \"", name, '"'));
    if (device != own_device)
      refuse_backend(backend, c10::str(name, " is for tensors of device ", own_device, ", not for those of ", device));
    if (name == "gloo") asked.cpu = Connection::kGloo;
    if (name == "nccl") asked.has_nccl = true;
  }
  if (!asked.has_nccl) return asked;
  if (const std::string why = why_no_nccl(); !why.empty())
    throw UsageError(c10::str("init_process_group: backend \"", backend, "\": no nccl: ", why));
  return asked;
}

std::string variable(const char* name) {
  const char* const text = std::getenv(name);
  return text == nullptr ? "" : text;
}

/// Where torchrun's agent serves a store itself, so that rank 0 can't serve one there.
std::shared_ptr<Store> store_of_agent(const ProcessGroupOptions& options) {
  if (options.store || options.init_method != "env://" || variable("TORCHELASTIC_USE_AGENT_STORE") != "True")
    return options.store;
  const std::string host = variable("MASTER_ADDR");
  const std::string port = variable("MASTER_PORT");
  const long number = std::strtol(port.c_str(), nullptr, 10);
  if (host.empty() || number < 1 || number > 65535)
    throw UsageError(c10::str("init_process_group: TORCHELASTIC_USE_AGENT_STORE is True, but MASTER_ADDR=", host,
                              " and MASTER_PORT=", port, " are not the address of a store"));
  c10d::TCPStoreOptions asked;
  asked.port = static_cast<std::uint16_t>(number);
  asked.isServer = false;
  asked.waitWorkers = false;
  asked.timeout = options.timeout;
  // A restart of the ranks finds the same store.
  const std::string attempt = c10::str("/worker/attempt_", variable("TORCHELASTIC_RESTART_COUNT"));
  try {
    return std::make_shared<C10dStore>(
        c10::make_intrusive<c10d::PrefixStore>(attempt, c10::make_intrusive<c10d::TCPStore>(host, asked)));
  } catch (const c10::Error& error) {
    throw Error(c10::str("init_process_group: the store of torchrun's agent at ", host, ":", port, ": ",
                         error.what_without_backtrace()));
  }
}

void warn_of_slower_transport(const std::string& group, const std::string& reason) {
  write_standard_error(c10::str("retinue: group \"", group, "\": ", reason,
                                ": all its ranks use gloo over TCP, which is slower than shared memory; "
                                "split_by_host() gives groups that share it\n"));
}

/// As reports name the call that opens a group.
std::string opening_at(const CallSite& site) {
  return c10::str(name_of(OuterCall::kOpening), " at ", site.text());
}

/// For ranks that share memory and are to use gloo all the same: the first of them serves it on this host.
std::shared_ptr<Store> store_among(const JobGroup& members, std::chrono::milliseconds timeout, const CallSite& site) {
  Communicator ranks(members, {.timeout = timeout}, site);
  TcpStoreOptions options{.is_server = ranks.rank() == 0};
  std::shared_ptr<TcpStore> store;
  if (options.is_server) {
    store = std::make_shared<TcpStore>(options);
    options.port = store->port();
  }
  ranks.broadcast(&options.port, sizeof options.port, 0, site.inside(OuterCall::kOpening));
  return store ? store : std::make_shared<TcpStore>(options);
}

bool is_own_world(const Runtime* runtime, const WorldPlace& place) {
  if (runtime == nullptr) return false;
  return runtime->is_rank() ? place.source == "the job" : place.world_size == 1;
}

}  // namespace

AskedBackends check_options(const ProcessGroupOptions& options) {
  const AskedBackends asked = checked_backends(options.backend);
  if (options.timeout <= std::chrono::milliseconds(0))
    throw UsageError("init_process_group: the timeout must be greater than 0");
  return asked;
}

ProcessGroup meet(const WorldOptions& world, Connection connection, const TensorBackend::Waits& waits,
                  const std::string& group_name, const CallSite& site) {
  if (world.world_size == 1) return make_group(c10::make_intrusive<ShmBackend>(waits.timeout), group_name);
  if (connection == Connection::kBest) {
    try {
      WorldOptions reported = world;
      reported.late_after = waits.late_after;
      reported.call = opening_at(site);
      return make_group(c10::make_intrusive<ShmBackend>(join_world(reported), waits, site), group_name);
    } catch (const NotOneHost& error) {
      if (world.rank == 0) warn_of_slower_transport(world.name, error.reason());
    }
  }
  const GlooMeeting meeting{.store = world.store,
                            .name = world.name,
                            .rank = world.rank,
                            .size = world.world_size,
                            .is_asked_for = connection == Connection::kGloo,
                            .site = site};
  return make_group(c10::make_intrusive<GlooBackend>(meeting, waits, Deadline::after(world.timeout)), group_name);
}

ProcessGroup init_members(JobGroup members, const ProcessGroupOptions& options, const CallSite& site) {
  const AskedBackends asked = check_options(options);
  const TensorBackend::Waits waits{options.timeout, options.waiting, options.late_after};
  const int size = static_cast<int>(members.process_slots.size());
  std::shared_ptr<Store> store;
  if (size > 1 && (asked.cpu == Connection::kGloo || asked.has_nccl))
    store = store_among(members, options.timeout, site);
  ProcessGroup group;
  if (asked.cpu == Connection::kGloo && size > 1) {
    group = meet({.store = store,
                  .world_size = size,
                  .rank = members.rank,
                  .timeout = options.timeout,
                  .name = options.group_name.empty() ? "world" : options.group_name},
                 asked.cpu, waits, options.group_name, site);
  } else {
    if (!options.group_name.empty()) members.name += "/" + options.group_name;
    group = make_group(c10::make_intrusive<ShmBackend>(std::move(members), waits, site), options.group_name);
  }
  if (asked.has_nccl) add_nccl(group, std::move(store), site);
  return group;
}

ProcessGroup init_at(ProcessGroupOptions options, const CallSite& site) {
  const AskedBackends asked = check_options(options);
  WorldOptions world{.init_method = options.init_method,
                     .store = options.store,
                     .world_size = options.world_size,
                     .rank = options.rank,
                     .timeout = options.timeout,
                     .name = options.group_name.empty() ? "world" : options.group_name,
                     .late_after = options.late_after,
                     .call = opening_at(site)};
  const WorldPlace place = place_in_world(world);
  const Runtime* const runtime = Runtime::current_or_null();
  if (is_own_world(runtime, place)) return init_members(runtime->rank_context().world(), options, site);
  world.rank = place.rank;
  world.world_size = place.world_size;
  if (world.world_size > 1) {
    world.store = store_of_agent(options);
    world.store = open_world_store(world);
  }
  const TensorBackend::Waits waits{options.timeout, options.waiting, options.late_after};
  const ProcessGroup group = meet(world, asked.cpu, waits, options.group_name, site);
  if (asked.has_nccl) add_nccl(group, world.store, site);
  return group;
}

c10::intrusive_ptr<c10d::Backend> TensorBackend::split(const c10::intrusive_ptr<c10d::Store>& store,
                                                       const std::vector<int>& ranks,
                                                       const c10::intrusive_ptr<Options>& options) {
  const auto own = std::find(ranks.begin(), ranks.end(), rank_);
  if (own == ranks.end()) return nullptr;
  ProcessGroupOptions part;
  part.store = std::make_shared<C10dStore>(store);
  part.rank = static_cast<int>(own - ranks.begin());
  part.world_size = static_cast<int>(ranks.size());
  part.group_name = options->group_name;
  part.timeout = options->timeout;
  part.waiting = waits_.waiting;
  part.late_after = waits_.late_after;
  const auto backend = init_at(std::move(part), detail::c10d_call_site("c10d split"))->getDefaultBackend();
  static_cast<TensorBackend&>(*backend).set_name(name_);
  return backend;
}

ProcessGroup init_process_group(ProcessGroupOptions options, std::source_location where) {
  keep_freed_memory();
  return init_at(std::move(options), where);
}

ProcessGroup init_process_group(const RankContext& context, ProcessGroupOptions options, std::source_location where) {
  keep_freed_memory();
  return init_members(context.world(), options, where);
}

ProcessGroup init_process_group(JobGroup members, ProcessGroupOptions options, std::source_location where) {
  keep_freed_memory();
  return init_members(std::move(members), options, where);
}

}  // namespace retinue

#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <torch/csrc/distributed/c10d/Backend.hpp>

#include "retinue/launch/join_world.h"
#include "retinue/torch/process_group.h"
#include "torch/backend/tensor_backend.h"

namespace retinue {

/// The group of a call. Errors: UsageError where it is null.
c10d::ProcessGroup& checked_group(std::string_view call, const ProcessGroup& group);

/// How the ranks of a group are to be connected.
enum class Connection : std::uint8_t {
  kBest,  ///< By shared memory where all have it, else by gloo; rank 0 says so then.
  kGloo,
};

/// The backends that options ask for.
struct AskedBackends {
  Connection cpu = Connection::kBest;
  bool has_nccl = false;  ///< For CUDA tensors.
};

/// Errors: UsageError for a backend that isn't there, or a timeout of nothing.
AskedBackends check_options(const ProcessGroupOptions& options);

/// The group of ranks that meet at `world.store`, where `world` says this rank's place. `site`: of the user's call.
/// Blocking: until all have come. Errors: as join_world()'s, but for NotOneHost; GlooBackend's.
ProcessGroup meet(const WorldOptions& world, Connection connection, const TensorBackend::Waits& waits,
                  const std::string& group_name, const CallSite& site);

/// init_process_group(), called at `site`.
ProcessGroup init_at(ProcessGroupOptions options, const CallSite& site);

/// Leaves a group after an error: NCCL's connections, whose end would wait for the others, are kept to the process's
/// end.
void abandon_process_group(const ProcessGroup& group);

/// c10d's group around a backend for CPU tensors.
ProcessGroup make_group(c10::intrusive_ptr<c10d::Backend> backend, const std::string& name);

/// Gives a group of ours NCCL for its CUDA tensors. `store`: where its ranks meet for that, under keys that no other
/// group has; null in a world of one. Blocking: a broadcast in the group.
void add_nccl(const ProcessGroup& group, std::shared_ptr<Store> store, const CallSite& site);

}  // namespace retinue

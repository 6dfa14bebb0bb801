#pragma once

#include <cereal/types/string.hpp>
#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <type_traits>

#include "retinue/collective/call.h"
#include "retinue/launch/detail/entry.h"
#include "retinue/launch/rank_context.h"
#include "retinue/torch/process_group.h"

namespace retinue {

/// A rank's place among several machines, each of which runs `num_proc` ranks of one program.
struct RunOptions {
  int local_rank = 0;
  int num_proc = 1;
  std::string init_method = "env://";  ///< As in ProcessGroupOptions.
  int shard_id = 0;                    ///< The machine's index, out of
  int num_shards = 1;
  std::string backend = "shm";
  std::chrono::milliseconds timeout = std::chrono::minutes(30);  ///< Of the group.

  template <class Archive>
  void save(Archive& archive) const {
    archive(local_rank, num_proc, init_method, shard_id, num_shards, backend, timeout.count());
  }
  template <class Archive>
  void load(Archive& archive) {
    std::chrono::milliseconds::rep milliseconds = 0;
    archive(local_rank, num_proc, init_method, shard_id, num_shards, backend, milliseconds);
    timeout = std::chrono::milliseconds(milliseconds);
  }
};

namespace detail {

/// Calls `body` in the world's group, and leaves the group however the call ends.
void run_in_world(const RunOptions& options, const std::function<void(const ProcessGroup&)>& body,
                  const CallSite& site);
/// Returns `options` with the place that the context has.
RunOptions with_place_of(const RankContext& context, RunOptions options);

/// The result and value types of a function of run(), which may take the group first.
template <class Pointer>
struct RunSignature;
template <class Returned, class Config>
struct RunSignature<Returned (*)(Config)> {
  using Result = std::decay_t<Returned>;
  using Value = std::decay_t<Config>;
};
template <class Returned, class Config>
struct RunSignature<Returned (*)(const ProcessGroup&, Config)> : RunSignature<Returned (*)(Config)> {};

template <auto fn>
class RunEntry {
  using Signature = RunSignature<decltype(pointer_to<fn>())>;

 public:
  using Result = typename Signature::Result;
  using Config = typename Signature::Value;

  Result operator()(const RunOptions& options, const Config& config, CallSite site = {}) const {
    if constexpr (std::is_void_v<Result>) {
      run_in_world(
          options, [&](const ProcessGroup& group) { call(group, config); }, site);
    } else {
      std::optional<Result> result;
      run_in_world(
          options, [&](const ProcessGroup& group) { result.emplace(call(group, config)); }, site);
      return std::move(*result);
    }
  }
  Result operator()(const RankContext& context, const Config& config, CallSite site = {}) const {
    return (*this)(with_place_of(context, {}), config, site);
  }

  /// Converts to an entry of spawn(). Its arguments are options, with the rank's local_rank and num_proc, and config.
  using Entry = Result (*)(RankContext& context, RunOptions options, const Config& config);
  constexpr operator Entry() const {  // NOLINT(google-explicit-constructor): as a captureless lambda's
    return [](RankContext& context, RunOptions options, const Config& config) -> Result {
      return RunEntry()(with_place_of(context, std::move(options)), config, {"run as a rank's function", 0});
    };
  }

 private:
  static Result call(const ProcessGroup& group, const Config& config) {
    if constexpr (std::is_invocable_v<decltype(pointer_to<fn>()), const ProcessGroup&, const Config&>)
      return pointer_to<fn>()(group, config);
    else
      return pointer_to<fn>()(config);
  }
};

}  // namespace detail

/// Runs `fn(config)`, or `fn(group, config)`, as one rank of a world of num_proc x num_shards ranks. Joins the world as
/// rank shard_id x num_proc + local_rank, makes CUDA device `local_rank` the current one if there is one, calls `fn`,
/// and leaves the group, however `fn` ended. Returns what `fn` returns.
///
///   run<train>(options, config);                          // in a rank that anybody started
///   run<train>(context, config);                          // in a rank that Retinue started
///   spawn<run<train>>({.nprocs = 4}, options, config);    // also starts the ranks: on each shard with its shard_id
///
/// Blocking: as init_process_group() and `fn`. Errors: as those; UsageError for an invalid place.
template <auto fn>
inline constexpr detail::RunEntry<fn> run{};

}  // namespace retinue

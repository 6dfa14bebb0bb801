#pragma once

#include <cstddef>
#include <cstdint>
#include <source_location>
#include <span>
#include <string>
#include <string_view>

#include "retinue/collective/reduce_function.h"
#include "retinue/collective/types.h"

namespace retinue {

/// What the program called, where that makes collectives of other names: errors say "broadcast(8 bytes, root 0) in
/// broadcast_object at train.cpp:88".
enum class OuterCall : std::uint8_t {
  kNone = 0,
  kOpening,  ///< Of a group.
  kMonitoredBarrier,
  kZeroFirst,
  kCheckSame,
  kBroadcastObject,
  kAllGatherObject,
  kGatherObject,
  kScatterObject,
  kSplit,
  kSplitGroup,
  kNewGroup,
  kNewSubgroups,
  kNewSubgroupsByEnumeration,
  kSplitByHost,
};

/// As "broadcast_object".
std::string_view name_of(OuterCall call);

/// Where a call was made, as errors on other ranks print it. Made from std::source_location by default arguments.
struct CallSite {
  CallSite(std::source_location where = std::source_location::current())  // NOLINT(google-explicit-constructor)
      : file(where.file_name()), line(where.line()) {}
  CallSite(const char* file_name, unsigned line_number) : file(file_name), line(line_number) {}

  /// The same for the calls that `call` makes; what is inside of another call stays so.
  CallSite inside(OuterCall call) const {
    CallSite site = *this;
    if (outer == OuterCall::kNone) site.outer = call;
    return site;
  }

  /// As "train.cpp:88".
  std::string text() const;

  const char* file;
  unsigned line;  ///< 0: `file` is the name of the place.
  OuterCall outer = OuterCall::kNone;
};

enum class CollectiveKind : std::uint8_t {
  kNone = 0,
  kOpen,  ///< The opening of a group, which is no call of a user's.
  kBarrier,
  kAllReduce,
  kBroadcast,
  kAllGather,
  kReduce,
  kGather,
  kScatter,
  kReduceScatter,
  kAllToAll,
  kScan,
  kAllReduceCoalesced,
};

/// As "all_reduce".
std::string_view name_of(CollectiveKind kind);

using Bytes = std::span<std::byte>;
using ConstBytes = std::span<const std::byte>;

/// A collective as data, for Communicator::run() and start(). Made by the functions below; Communicator's functions of
/// the same names say what each does.
///
/// Those that take lists or Bytes are the uneven ones: each rank's part may have a size of its own. They may meet even
/// calls of the same kind on other ranks, if the sizes fit.
struct CollectiveCall {
  CollectiveKind kind = CollectiveKind::kNone;
  Dtype dtype = Dtype::kBytes;  ///< Where data only move: what the parts hold, if that is to be compared.
  ReduceOp op = ReduceOp::kSum;
  int root = 0;
  double factor = 1;                         ///< With kPremulSum: what this rank's elements are multiplied by.
  const ReduceFunction* function = nullptr;  ///< With kFunction, in place of `dtype`.
  std::size_t count = 0;                     ///< Of one part: elements for reductions, bytes otherwise.
  const void* input = nullptr;  ///< One part, or size() parts one behind the other. Null where `inputs` is given.
  void* output = nullptr;
  std::span<const ConstBytes> inputs = {};  ///< The parts for each rank, in rank order.
  std::span<const Bytes> outputs = {};      ///< Where the part of each rank goes, in rank order; or the buffers.
  bool uneven = false;

  /// This call, which moves elements of that type: it doesn't meet calls that move another. Errors: the call is refused
  /// where its parts are not of whole elements.
  CollectiveCall of(Dtype dtype) const;
  /// This reduction, with the rank's elements multiplied by `factor` before they are summed. Ranks may give different
  /// factors.
  CollectiveCall premultiplied(double factor) const;

  static CollectiveCall barrier();
  static CollectiveCall all_reduce(void* data, std::size_t count, Dtype dtype, ReduceOp op);
  static CollectiveCall all_reduce_coalesced(std::span<const Bytes> buffers, Dtype dtype, ReduceOp op);
  static CollectiveCall broadcast(void* data, std::size_t bytes, int root);
  static CollectiveCall all_gather(const void* input, void* output, std::size_t bytes);
  static CollectiveCall all_gather(ConstBytes input, std::span<const Bytes> outputs);
  static CollectiveCall reduce(const void* input, void* output, std::size_t count, Dtype dtype, ReduceOp op, int root);
  static CollectiveCall gather(const void* input, void* output, std::size_t bytes, int root);
  static CollectiveCall gather(ConstBytes input, std::span<const Bytes> outputs, int root);
  static CollectiveCall scatter(const void* input, void* output, std::size_t bytes, int root);
  static CollectiveCall scatter(std::span<const ConstBytes> inputs, Bytes output, int root);
  static CollectiveCall reduce_scatter(const void* input, void* output, std::size_t count, Dtype dtype, ReduceOp op);
  static CollectiveCall reduce_scatter(std::span<const ConstBytes> inputs, void* output, std::size_t count, Dtype dtype,
                                       ReduceOp op);
  static CollectiveCall all_to_all(const void* input, void* output, std::size_t bytes);
  static CollectiveCall all_to_all(std::span<const ConstBytes> inputs, std::span<const Bytes> outputs);
  static CollectiveCall scan(const void* input, void* output, std::size_t count, Dtype dtype, ReduceOp op);

  // Reductions by a function of the program.
  static CollectiveCall all_reduce(void* data, std::size_t count, const ReduceFunction& function);
  static CollectiveCall reduce(const void* input, void* output, std::size_t count, const ReduceFunction& function,
                               int root);
  static CollectiveCall reduce_scatter(const void* input, void* output, std::size_t count,
                                       const ReduceFunction& function);
  static CollectiveCall reduce_scatter(std::span<const ConstBytes> inputs, void* output, std::size_t count,
                                       const ReduceFunction& function);
  static CollectiveCall scan(const void* input, void* output, std::size_t count, const ReduceFunction& function);
};

/// What run() and start() do first. Errors: UsageError for what no group of `size` could do.
void check_call(const CollectiveCall& call, int rank, int size);

/// Makes the call of a group of one, which needs no communicator and no job. Errors: UsageError.
void run_alone(const CollectiveCall& call);

}  // namespace retinue

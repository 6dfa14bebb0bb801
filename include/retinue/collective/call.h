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

/// The function that the program called, if that function makes collectives of other names. Errors say "broadcast(8
/// bytes, root 0) in broadcast_object at train.cpp:88".
enum class OuterCall : std::uint8_t {
  kNone = 0,
  kOpening,  ///< The opening of a group.
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

/// Returns a name like "broadcast_object".
std::string_view name_of(OuterCall call);

/// The place of a call, as errors on other ranks print it. Default arguments make it from std::source_location.
struct CallSite {
  CallSite(std::source_location where = std::source_location::current())  // NOLINT(google-explicit-constructor)
      : file(where.file_name()), line(where.line()) {}
  CallSite(const char* file_name, unsigned line_number) : file(file_name), line(line_number) {}

  /// Returns this place for the collectives that `call` makes. If it already has an outer call, that one is kept.
  CallSite inside(OuterCall call) const {
    CallSite site = *this;
    if (outer == OuterCall::kNone) site.outer = call;
    return site;
  }

  /// Returns a text like "train.cpp:88".
  std::string text() const;

  const char* file;
  unsigned line;  ///< If 0, `file` is the name of the place.
  OuterCall outer = OuterCall::kNone;
};

enum class CollectiveKind : std::uint8_t {
  kNone = 0,
  kOpen,  ///< The opening of a group; no user makes this call.
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

/// Returns a name like "all_reduce".
std::string_view name_of(CollectiveKind kind);

using Bytes = std::span<std::byte>;
using ConstBytes = std::span<const std::byte>;

/// A collective as data, for Communicator::run() and start(). The functions below make one; Communicator's functions of
/// the same names document each.
///
/// The functions that take lists or Bytes make uneven calls: each rank's part may have its own size. An uneven call may
/// meet even calls of the same kind on other ranks, if the sizes fit.
struct CollectiveCall {
  CollectiveKind kind = CollectiveKind::kNone;
  Dtype dtype = Dtype::kBytes;  ///< If the call only moves data: the type of the elements, if ranks compare it.
  ReduceOp op = ReduceOp::kSum;
  int root = 0;
  double factor = 1;                         ///< With kPremulSum: the factor of this rank's elements.
  const ReduceFunction* function = nullptr;  ///< With kFunction, in place of `dtype`.
  std::size_t count = 0;                     ///< Size of one part: in elements for reductions, otherwise in bytes.
  const void* input = nullptr;               ///< One part, or size() contiguous parts. Null if `inputs` is given.
  void* output = nullptr;
  std::span<const ConstBytes> inputs = {};  ///< The part for each rank, in rank order.
  std::span<const Bytes> outputs = {};      ///< The destination of each rank's part, in rank order; or the buffers.
  bool uneven = false;

  /// Returns this call as one that moves elements of `dtype`. It doesn't meet calls that move another type. Errors: the
  /// call is refused if its parts don't consist of whole elements.
  CollectiveCall of(Dtype dtype) const;
  /// Returns this reduction, with this rank's elements multiplied by `factor` before they are summed. Ranks may give
  /// different factors.
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

/// Checks a call, as run() and start() do first. Errors: UsageError if no group of `size` could make the call.
void check_call(const CollectiveCall& call, int rank, int size);

/// Makes the call in a group of one, which needs no communicator and no job. Errors: UsageError.
void run_alone(const CollectiveCall& call);

}  // namespace retinue

#pragma once

#include <cstddef>

#include "retinue/collective/types.h"

namespace retinue {

/// One array per rank, in rank order.
struct ReduceSources {
  const void* const* arrays;
  int count;
  const double* factors = nullptr;  ///< One per source, for kPremulSum alone.
};

struct ReduceDestinations {
  void* const* arrays;
  int count;
};

/// Reduces `count` elements of all sources, in their order, and writes the result to all destinations in the same pass.
/// A destination may be a source; no pointer needs alignment. The sources go by reference, because three words by value
/// are copied on the stack in halves that the CPU can't forward: 10 ns.
using ReduceKernel = void (*)(const ReduceSources& sources, ReduceDestinations destinations, std::size_t count);

constexpr int kDtypes = static_cast<int>(Dtype::kComplex128) + 1;
constexpr int kReduceOps = static_cast<int>(ReduceOp::kLogicalXor) + 1;

/// Copies whole blocks of 64 bytes.
using StreamKernel = void (*)(void* to, const void* from, std::size_t blocks);

struct KernelTable {
  StreamKernel stream;
  ReduceKernel kernels[kDtypes][kReduceOps];
  /// Null where is_defined(op, dtype) says no.
  ReduceKernel get(Dtype dtype, ReduceOp op) const { return kernels[static_cast<int>(dtype)][static_cast<int>(op)]; }
};

/// The same bits from each of them. Where there are no such instructions, the vector ones are the portable ones.
const KernelTable& portable_kernels();
const KernelTable& avx2_kernels();
const KernelTable& avx512_kernels();

/// memcpy by plain vector stores. The C library's uses `rep movsb` from 2 KiB on, which is several times slower where
/// the destination's lines are in another core's cache.
void copy_bytes(void* to, const void* from, std::size_t bytes);

/// Copies past the cache, for shared buffers that others read next: storing to lines that another core has read costs
/// some 25 ns a line, streaming 1.3 ns, and the reader pays the same. `to` is aligned to 64 bytes. Ordered before what
/// is stored afterwards.
void stream_bytes(void* to, const void* from, std::size_t bytes);

bool cpu_has_avx2_kernels();
bool cpu_has_avx512_kernels();

/// The fastest that this CPU runs.
const KernelTable& kernels();
/// The fastest for the data of a line, which are no more than fit a vector of 32 bytes.
const KernelTable& line_kernels();

}  // namespace retinue

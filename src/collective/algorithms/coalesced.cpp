// all_reduce_coalesced: many buffers in one call.
#include <fmt/format.h>

#include <cstdint>

#include "collective/algorithms/paths.h"
#include "collective/algorithms/reducer.h"
#include "collective/algorithms/slices.h"
#include "collective/call/overlap.h"
#include "retinue/base/error.h"
#include "retinue/ipc/job_memory.h"

namespace retinue {
namespace {

[[noreturn]] void refuse(const std::string& text) {
  throw UsageError(fmt::format("{}: {}", name_of(CollectiveKind::kAllReduceCoalesced), text));
}

/// The same of all lists of the same sizes, and of no others that anybody will meet.
std::uint64_t signature_of(std::span<const Bytes> buffers) {
  std::uint64_t value = buffers.size();
  for (const Bytes& buffer : buffers) {
    value = (value ^ buffer.size()) * 0xbf58476d1ce4e5b9;
    value ^= value >> 29;
  }
  return value;
}

void reduce_staged(Session& session, const Call& call) {
  PointerLists& lists = session.scratch();
  std::size_t at = 0;
  session.buffers().visit(0, call.part_bytes(), [&](std::size_t, Bytes part) {
    for (int i = 0; i < session.size(); ++i)
      lists.sources[static_cast<std::size_t>(i)] = i == session.rank() ? part.data() : session.stage(i) + at;
    void* destination = part.data();
    reduce_arrays(session, call, session.size(), {&destination, 1}, part.size());
    at += part.size();
  });
}

/// As one large buffer: each member reduces its slice of all, from all to all.
Steps reduce_buffers_in_place(Session& session, const Call& call) {
  PointerLists& lists = session.scratch();
  const Slice slice = slice_of(call.part_bytes(), session.size(), session.rank());
  session.enter();
  session.buffers().visit(slice.begin, slice.bytes, [&](std::size_t index, Bytes part) {
    const auto within = static_cast<std::size_t>(part.data() - session.buffers().buffers()[index].data());
    for (int i = 0; i < session.size(); ++i) {
      const std::uint64_t offset = reinterpret_cast<const std::uint64_t*>(session.stage(i))[index];
      std::byte* data = session.memory().at(offset) + within;
      lists.sources[static_cast<std::size_t>(i)] = data;
      lists.destinations[static_cast<std::size_t>(i)] = data;
    }
    reduce_arrays(session, call, session.size(), {lists.destinations.data(), session.size()}, part.size());
  });
  for (int i = 0; i < session.size(); ++i) session.check_giver(i);
  session.post(1);
  co_await Released(session, {0, session.size()});
}

}  // namespace

void check_coalesced(Call& call) {
  const std::span<const Bytes> buffers = call.what.outputs;
  std::size_t bytes = 0;
  for (std::size_t i = 0; i < buffers.size(); ++i) {
    if (buffers[i].data() == nullptr && !buffers[i].empty()) refuse(fmt::format("buffer {} is null", i));
    if (buffers[i].size() % call.element_bytes != 0)
      refuse(fmt::format("buffer {} of {} bytes does not consist of whole {} elements", i, buffers[i].size(),
                         name_of(call.what.dtype)));
    bytes += buffers[i].size();
  }
  if (const OverlappingPair pair = overlapping_pair(buffers))
    refuse(fmt::format("buffers {} and {} overlap", pair->first, pair->second));
  call.count = bytes / call.element_bytes;
  call.signature = signature_of(buffers);
}

void run_alone_coalesced(const Call& call) {
  for (const Bytes& buffer : call.what.outputs) {
    const void* input = buffer.data();
    void* output = buffer.data();
    kernels().get(call.shape.dtype, call.shape.op)({&input, 1, &call.what.factor}, {&output, 1},
                                                   buffer.size() / call.element_bytes);
  }
}

Steps reduce_coalesced(Session& session, const Call& call, Path path) {
  if (path == Path::kDirect) return reduce_buffers_in_place(session, call);
  if (path == Path::kStaged) reduce_staged(session, call);
  return {};
}

}  // namespace retinue

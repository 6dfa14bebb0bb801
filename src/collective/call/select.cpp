#include "collective/call/select.h"

#include <algorithm>

#include "collective/board/board.h"

namespace retinue {

bool stages_first(const PathTable& table, const Pattern& pattern, int size, std::size_t bytes, bool in_job_memory) {
  if (size < 2 || bytes > kStageBytes) return false;
  const bool is_one_way =
      pattern.only_root_gives || (pattern.only_root_takes && (pattern.result == Pattern::Result::kParts || size == 2));
  if (in_job_memory) return bytes <= (is_one_way ? table.staged_in_job_one_way : table.staged_in_job);
  if (bytes > (is_one_way ? std::min(table.staged, table.staged_one_way) : table.staged)) return false;
  const bool takers_read_all = pattern.result != Pattern::Result::kParts && !pattern.part_per_taker;
  return !takers_read_all || bytes <= table.staged_reads / static_cast<std::size_t>(size);
}

RankRange needed_lines(const Call& call, int rank, int size) {
  const int root = static_cast<int>(call.shape.root);
  if (call.pattern.only_root_gives) return {root, root + 1};
  if (call.pattern.only_root_takes && rank != root) return {rank, rank + 1};
  if (call.pattern.result == Pattern::Result::kPrefix) return {0, rank + 1};
  return {0, size};
}

bool all_stage_first(const PathTable& table, const Call& call, int size) {
  const std::size_t bytes = call.given_bytes(size);
  return bytes <= line_space(call.shape.op) || (stages_first(table, call.pattern, size, bytes, false) &&
                                                stages_first(table, call.pattern, size, bytes, true));
}

Path select_path(const Call& call, int size, const Arrival& arrival) {
  if (call.pattern.result == Pattern::Result::kNothing || arrival.count == 0 || size < 2) return Path::kNothing;
  const std::size_t given = arrival.count * call.element_bytes;
  const std::size_t parts = call.pattern.part_per_taker ? static_cast<std::size_t>(size) : 1;
  const bool is_list = arrival.is_list || call.shape.kind == CollectiveKind::kAllReduceCoalesced;
  if (!is_list && given * parts <= line_space(call.shape.op)) return Path::kInline;
  if ((arrival.places & kStaged) != 0) return Path::kStaged;
  if ((arrival.places & kInJobMemory) != 0) return Path::kDirect;
  return Path::kChunked;
}

Path usual_path(const PathTable& table, CollectiveKind kind, int size, std::size_t part_bytes, bool in_job_memory) {
  const CollectiveCall what = {.kind = kind, .count = part_bytes};
  Call call(what);
  call.shape.kind = kind;
  const bool stages = stages_first(table, call.pattern, size, call.given_bytes(size), in_job_memory);
  const unsigned places = (in_job_memory ? kInJobMemory : kPrivateMemory) | (stages ? kStaged : 0);
  return select_path(call, size, {.places = static_cast<std::uint8_t>(places), .count = part_bytes});
}

std::string_view name_of(Path path) {
  switch (path) {
    case Path::kNothing:
      return "nothing";
    case Path::kInline:
      return "inline";
    case Path::kStaged:
      return "staged";
    case Path::kDirect:
      return "direct";
    case Path::kChunked:
      return "chunked";
  }
  return "unknown";
}

}  // namespace retinue

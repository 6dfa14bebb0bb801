#include "collective/engine/call_notice.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <string_view>
#include <type_traits>
#include <vector>

#include "base/char_field.h"
#include "collective/diagnosis/report.h"
#include "retinue/base/error.h"

namespace retinue {
namespace {

static_assert(std::is_trivially_copyable_v<CallNotice>);

std::vector<SeenCall> calls_of(std::span<const CallNotice> all) {
  std::vector<SeenCall> calls;
  for (const CallNotice& notice : all) calls.push_back(notice.seen());
  return calls;
}

}  // namespace

CallNotice::CallNotice(const Call& call, std::uint64_t number)
    : sequence(number),
      shape(call.shape),
      factor(call.what.factor),
      signature(call.signature),
      element_bytes(call.element_bytes),
      is_uneven(call.what.uneven ? 1 : 0),
      line(packed_line(call.site)) {
  fill_path(file, call.site.file);
  if (call.what.function == nullptr) return;
  function_object = call.what.function->object();
  function_offset = call.what.function->offset();
  fill(function, call.what.function->name());
}

bool CallNotice::differs_from(const CallNotice& other, bool counts_may_differ) const {
  CallShape theirs = other.shape;
  if (may_meet(theirs.dtype, shape.dtype)) theirs.dtype = shape.dtype;
  if (counts_may_differ) theirs.count = shape.count;
  return shape != theirs || signature != other.signature || function_object != other.function_object ||
         function_offset != other.function_offset || element_bytes != other.element_bytes;
}

SeenCall CallNotice::seen() const {
  return {.sequence = sequence,
          .shape = shape,
          .site = unpacked_site(line, text_of(file)),
          .function = text_of(function),
          .element_bytes = element_bytes};
}

std::string wrong_size(const std::string& group, std::span<const CallNotice> all, std::size_t taker,
                       std::uint64_t taken, std::size_t giver, std::uint64_t given) {
  return with_calls(group,
                    fmt::format("rank {} expects {} bytes from rank {}, which sends {}", taker, taken, giver, given),
                    all[0].sequence, calls_of(all));
}

void check_notices(const std::string& group, std::span<const CallNotice> all, bool counts_may_differ) {
  // One that says its type, if there is one: bytes meet all.
  const auto typed = std::find_if(all.begin(), all.end(),
                                  [](const CallNotice& notice) { return notice.shape.dtype != Dtype::kBytes; });
  const CallNotice& first = typed == all.end() ? all[0] : *typed;
  const bool is_same = std::none_of(
      all.begin(), all.end(), [&](const CallNotice& notice) { return notice.differs_from(first, counts_may_differ); });
  if (!is_same) throw CollectiveMismatch(with_calls(group, kMetInDifferentCalls, all[0].sequence, calls_of(all)));
}

}  // namespace retinue

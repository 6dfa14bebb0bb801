#include "collective/diagnosis/call_log.h"

#include <numeric>

#include "base/char_field.h"

namespace retinue {
namespace {

// Beyond all of CollectiveKind.
constexpr std::uint8_t kSendKind = CallWords::kMost - 2;
constexpr std::uint8_t kReceiveKind = CallWords::kMost - 1;

CallWords words_of_collectives() {
  CallWords words{};
  for (std::size_t i = 0; i <= static_cast<std::size_t>(CollectiveKind::kAllReduceCoalesced); ++i)
    fill(words.kinds[i], name_of(static_cast<CollectiveKind>(i)));
  for (std::size_t i = 0; i <= static_cast<std::size_t>(Dtype::kBytes); ++i)
    fill(words.dtypes[i], name_of(static_cast<Dtype>(i)));
  for (std::size_t i = 0; i <= static_cast<std::size_t>(ReduceOp::kFunction); ++i)
    fill(words.ops[i], name_of(static_cast<ReduceOp>(i)));
  fill(words.kinds[kSendKind], "send");
  fill(words.kinds[kReceiveKind], "recv");
  return words;
}

template <typename List>
std::uint64_t bytes_of(const List& parts) {
  return std::accumulate(parts.begin(), parts.end(), std::uint64_t{0},
                         [](std::uint64_t sum, const auto& part) { return sum + part.size(); });
}

/// What this member gives, or, where it gives nothing, takes.
std::uint64_t bytes_of(const Call& call, int size) {
  if (!call.inputs.empty()) return bytes_of(call.inputs);
  if (!call.gives && !call.outputs.empty()) return bytes_of(call.outputs);
  return call.gives ? call.given_bytes(size) : call.part_bytes();
}

/// In elements.
std::uint64_t count_of(const Call& call) {
  const bool is_in_elements = is_reduction(call.what.kind) || call.shape.dtype == Dtype::kBytes;
  return is_in_elements ? call.count : call.count / size_of(call.shape.dtype);
}

}  // namespace

CallLog::CallLog(const JobGroup& group)
    : recorder_(group.memory ? FlightRecorder::of(group.memory, words_of_collectives()) : nullptr),
      size_(static_cast<int>(group.process_slots.size())) {
  if (recorder_) group_ = recorder_->add_group(group.name, group.rank, size_);
}

CallLog::~CallLog() {
  if (recorder_) recorder_->leave_group(group_);
}

std::uint32_t CallLog::find_site(const CallSite& site) {
  const auto place = (reinterpret_cast<std::uintptr_t>(site.file) >> 4 ^ site.line) % sites_.size();
  KnownSite& known = sites_[place];
  if (known.file != site.file || known.line != site.line)
    known = {.file = site.file, .line = site.line, .number = recorder_->find_site(site.file, site.line)};
  return known.number;
}

void CallLog::begin(const Call& call, std::uint64_t sequence, std::uint64_t started) {
  if (!is_open_) return;
  collective_ = recorder_->begin({.started = started,
                                  .sequence = sequence - calls_before_,
                                  .kind = static_cast<std::uint8_t>(call.shape.kind),
                                  .dtype = static_cast<std::uint8_t>(call.shape.dtype),
                                  .op = static_cast<std::uint8_t>(call.shape.op),
                                  .group = group_,
                                  .peer = call.shape.root,
                                  .count = count_of(call),
                                  .bytes = bytes_of(call, size_),
                                  .site = find_site(call.site)});
}

CallFacts CallLog::facts_of(const P2POp& message, const CallSite& site, std::uint64_t started) {
  const bool sends = message.kind == P2POp::Kind::kSend;
  const std::size_t bytes = sends ? message.data.size() : message.buffer.size();
  return {.started = started,
          .sequence = ++messages_,
          .kind = sends ? kSendKind : kReceiveKind,
          .dtype = static_cast<std::uint8_t>(Dtype::kBytes),
          .group = group_,
          .peer = message.peer,
          .tag = message.tag,
          .count = bytes,
          .bytes = bytes,
          .site = find_site(site)};
}

RecordedCallEnd CallLog::begin(const P2POp& message, const CallSite& site, std::uint64_t started) {
  if (!is_open_) return {};
  return recorder_->begin(facts_of(message, site, started));
}

void CallLog::add(const P2POp& message, const CallSite& site, std::uint64_t started) {
  if (!is_open_) return;
  CallFacts facts = facts_of(message, site, started);
  facts.ended = started;
  recorder_->begin(facts);
}

}  // namespace retinue

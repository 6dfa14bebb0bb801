#include "retinue/collective/divergence.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "base/ranks_text.h"

namespace retinue {
namespace {

constexpr std::uint64_t kFactor = 0x9e3779b97f4a7c15;

std::uint64_t mixed(std::uint64_t value) {
  value = (value ^ value >> 32) * 0xd6e8feb86659fd93;
  value = (value ^ value >> 32) * 0xd6e8feb86659fd93;
  return value ^ value >> 32;
}

/// What ranks tell each other of a part.
struct Digest {
  std::uint64_t name = 0;
  std::uint64_t bytes = 0;
  std::uint64_t content = 0;

  friend bool operator==(const Digest&, const Digest&) = default;
  friend auto operator<=>(const Digest&, const Digest&) = default;
};

struct Summary {
  std::uint64_t parts = 0;
  std::uint64_t hash = 0;

  friend bool operator==(const Summary&, const Summary&) = default;
};

constexpr std::size_t kNameBytes = 128;
using Name = std::array<char, kNameBytes>;

Name name_of_part(std::span<const NamedBytes> parts, std::size_t index) {
  Name name{};
  const std::string_view own = index < parts.size() ? parts[index].name : std::string_view();
  std::copy_n(own.begin(), std::min(own.size(), kNameBytes - 1), name.begin());
  return name;
}

template <typename T>
std::vector<T> gathered(Communicator& group, const T* own, std::size_t count, const CallSite& site) {
  std::vector<T> all(count * static_cast<std::size_t>(group.size()));
  group.all_gather(own, all.data(), count * sizeof(T), site);
  return all;
}

/// The ranks that have what the first of most have, and the first ones that have something else.
struct Split {
  std::vector<int> most;
  std::vector<int> others;
};

Split split_of(const std::vector<Digest>& of_ranks) {
  std::map<Digest, std::vector<int>> by_digest;
  for (std::size_t rank = 0; rank < of_ranks.size(); ++rank)
    by_digest[of_ranks[rank]].push_back(static_cast<int>(rank));
  const auto is_less = [](const auto& a, const auto& b) {
    return a.second.size() != b.second.size() ? a.second.size() < b.second.size() : a.second.front() > b.second.front();
  };
  const auto most = std::max_element(by_digest.begin(), by_digest.end(), is_less);
  const std::vector<int>* first_other = nullptr;
  for (const auto& [digest, ranks] : by_digest)
    if (digest != most->first && (first_other == nullptr || ranks.front() < first_other->front())) first_other = &ranks;
  return {most->second, *first_other};
}

std::string shown(const Name& name) {
  return std::string(name.data(), strnlen(name.data(), name.size()));
}

class Comparison {
 public:
  Comparison(Communicator& group, std::span<const NamedBytes> parts, const CallSite& site)
      : group_(group), parts_(parts), site_(site) {
    for (const NamedBytes& part : parts)
      digests_.push_back({.name = hash_of(std::as_bytes(std::span(part.name))),
                          .bytes = part.bytes.size(),
                          .content = hash_of(part.bytes)});
  }

  void run() {
    const Summary own = {.parts = digests_.size(), .hash = hash_of(std::as_bytes(std::span(digests_)))};
    const std::vector<Summary> all = gathered(group_, &own, 1, site_);
    if (std::all_of(all.begin(), all.end(), [&](const Summary& summary) { return summary == all[0]; })) return;
    std::size_t parts = 0;
    for (const Summary& summary : all) parts = std::max<std::size_t>(parts, summary.parts);
    fail_at_first_difference(parts);
  }

 private:
  [[noreturn]] void fail_at_first_difference(std::size_t parts) {
    digests_.resize(parts);  // A part that a rank has not is one of no name and no bytes.
    const std::vector<Digest> all = gathered(group_, digests_.data(), parts, site_);
    const auto size = static_cast<std::size_t>(group_.size());
    std::vector<Digest> of_ranks(size);
    for (std::size_t index = 0; index < parts; ++index) {
      for (std::size_t rank = 0; rank < size; ++rank) of_ranks[rank] = all[rank * parts + index];
      if (std::all_of(of_ranks.begin(), of_ranks.end(), [&](const Digest& each) { return each == of_ranks[0]; }))
        continue;
      const Name own = name_of_part(parts_, index);
      fail(index, of_ranks, gathered(group_, &own, 1, site_));
    }
    throw DataDivergence(
        fmt::format("group \"{}\": the ranks' data differ, but the differing part was not found", group_.group().name));
  }

  [[noreturn]] void fail(std::size_t index, const std::vector<Digest>& digests, const std::vector<Name>& names) const {
    const auto [most, others] = split_of(digests);
    const auto one = static_cast<std::size_t>(others.front());
    const auto other = static_cast<std::size_t>(most.front());
    const std::string where = "at " + site_.text();
    const std::string group = group_.group().name;
    if (digests[one].name != digests[other].name)
      throw DataDivergence(fmt::format(
          "group \"{}\": check_same {}: part {} is \"{}\" on {} and \"{}\" on {}: ranks must pass the same parts in "
          "the same order",
          group, where, index, shown(names[one]), ranks_text(others), shown(names[other]), ranks_text(most)));
    if (digests[one].bytes != digests[other].bytes)
      throw DataDivergence(fmt::format("group \"{}\": check_same {}: \"{}\" has {} bytes on {} and {} on {}", group,
                                       where, shown(names[one]), digests[one].bytes, ranks_text(others),
                                       digests[other].bytes, ranks_text(most)));
    throw DataDivergence(fmt::format("group \"{}\": check_same {}: \"{}\" ({} bytes) of {} differs from that of {}",
                                     group, where, shown(names[one]), digests[one].bytes, ranks_text(others),
                                     ranks_text(most)));
  }

  Communicator& group_;
  std::span<const NamedBytes> parts_;
  CallSite site_;
  std::vector<Digest> digests_;
};

}  // namespace

/// In four lanes, so that their multiplications overlap. Each word's step can be undone.
std::uint64_t hash_of(ConstBytes bytes) {
  std::array<std::uint64_t, 4> lanes = {1, 2, 3, 4};
  const std::byte* at = bytes.data();
  std::size_t left = bytes.size();
  const auto add = [](std::uint64_t& lane, std::uint64_t word) { lane = std::rotl((lane ^ word) * kFactor, 29); };
  for (; left >= sizeof lanes; at += sizeof lanes, left -= sizeof lanes) {
    std::uint64_t words[4];
    std::memcpy(words, at, sizeof words);
    for (std::size_t i = 0; i < 4; ++i) add(lanes[i], words[i]);
  }
  std::uint64_t rest[4] = {};
  if (left > 0) std::memcpy(rest, at, left);
  for (std::size_t i = 0; i < 4; ++i) add(lanes[i], rest[i]);
  std::uint64_t hash = bytes.size();
  for (const std::uint64_t lane : lanes) hash = mixed(hash ^ lane) * kFactor;
  return mixed(hash);
}

void check_same(Communicator& group, std::span<const NamedBytes> parts, CallSite site) {
  Comparison(group, parts, site.inside(OuterCall::kCheckSame)).run();
}

void check_same(Communicator& group, std::string_view name, ConstBytes bytes, CallSite site) {
  const NamedBytes part = {.name = name, .bytes = bytes};
  check_same(group, std::span(&part, 1), site);
}

DivergenceSteps::DivergenceSteps(const DivergenceOptions& options) : every_n_steps_(options.every_n_steps) {
  if (every_n_steps_ == 0) throw UsageError("DivergenceCheck: every_n_steps is 0; it must be 1 or more");
}

DivergenceCheck::DivergenceCheck(Communicator& group, DivergenceOptions options) : group_(group), steps_(options) {}

bool DivergenceCheck::step(std::span<const NamedBytes> parts, CallSite site) {
  if (!steps_.is_next_due()) return false;
  check_same(group_, parts, site);
  return true;
}

}  // namespace retinue

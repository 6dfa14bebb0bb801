#include "collective/board/board.h"

#include <algorithm>
#include <cstring>
#include <tuple>
#include <utility>

#include "base/char_field.h"
#include "os/machine/memory.h"
#include "os/sync/futex.h"

namespace retinue {
namespace {

constexpr std::size_t kPage = 4096;

constexpr std::size_t kMembersOffset = round_up(sizeof(BoardHeader), alignof(Member));

std::size_t channels_offset(int size) {
  return kMembersOffset + static_cast<std::size_t>(size) * sizeof(Member);
}

std::size_t control_bytes(int size) {
  const auto channels = static_cast<std::size_t>(size) * static_cast<std::size_t>(size);
  return round_up(channels_offset(size) + channels * sizeof(std::atomic<std::uint64_t>), kPage);
}

}  // namespace

Board::Board(std::byte* base, int size)
    : base_(base),
      members_(reinterpret_cast<Member*>(base + kMembersOffset)),
      channels_(reinterpret_cast<std::atomic<std::uint64_t>*>(base + channels_offset(size))),
      data_(base + control_bytes(size)),
      size_(size) {}

std::size_t Board::bytes_for(int size) {
  return control_bytes(size) + static_cast<std::size_t>(size) * kDataBytes;
}

void Board::initialise(std::byte* base, const JobGroup& group, std::uint64_t generation) {
  const int size = static_cast<int>(group.process_slots.size());
  std::memset(base, 0, control_bytes(size));
  const Board board(base, size);
  board.header().size = static_cast<std::uint32_t>(size);
  for (int rank = 0; rank < size; ++rank)
    board.member(rank).process_slot = group.process_slots[static_cast<std::size_t>(rank)];
  board.header().generation.store(generation, std::memory_order_release);
}

std::optional<SeenCall> Board::read_line(int rank, std::uint64_t sequence) const {
  const Line& line = member(rank).lines[sequence % kLines];
  if (sequence == 0 || line.sequence.load(std::memory_order_acquire) != sequence) return std::nullopt;
  SeenCall call;
  call.sequence = sequence;
  // Acquire, so that the head is read after all that it stands for; pairs with the release in Session::publish.
  const std::uint64_t count = line.count.load(std::memory_order_acquire);
  call.site = read_site(line.site);
  call.function = text_in(member(rank).names[sequence % kLines]);
  call.element_bytes = line.inline_data[kFunctionWord + 2].load(std::memory_order_acquire);
  const std::uint64_t head = line.head.load(std::memory_order_relaxed);
  if (!is_head_of(head, sequence)) return std::nullopt;
  call.shape = unpack(head, count);
  return call;
}

SeenCall Board::newest_call(int rank) const {
  SeenCall newest;
  for (const Line& line : member(rank).lines) {
    const std::uint64_t sequence = line.sequence.load(std::memory_order_acquire);
    if (sequence <= newest.sequence) continue;
    if (auto call = read_line(rank, sequence)) newest = *std::move(call);
  }
  return newest;
}

std::uint64_t Board::newest_sequence(int rank) const {
  std::uint64_t newest = 0;
  for (const Line& line : member(rank).lines) newest = std::max(newest, line.sequence.load(std::memory_order_acquire));
  return newest;
}

bool begin_poison(const Board& board) {
  std::uint32_t state = Poison::kNone;
  return board.header().poison.state.compare_exchange_strong(state, Poison::kWriting, std::memory_order_seq_cst);
}

void write_poison(const Board& board, FailureKind kind, const std::string& text, const std::vector<int>& ranks) {
  Poison& poison = board.header().poison;
  poison.kind = kind;
  poison.rank_count = static_cast<std::uint32_t>(std::min(ranks.size(), Poison::kMaxRanks));
  std::copy_n(ranks.begin(), poison.rank_count, poison.ranks);
  const std::size_t length = std::min(text.size(), sizeof poison.text - 1);
  std::memcpy(poison.text, text.data(), length);
  poison.text[length] = 0;
  poison.state.store(Poison::kWritten, std::memory_order_seq_cst);
  for (int rank = 0; rank < board.size(); ++rank) {
    std::atomic<std::uint32_t>& bell = board.member(rank).bell;
    bell.fetch_add(1, std::memory_order_seq_cst);
    futex_wake_all(bell);
  }
}

void poison(const Board& board, FailureKind kind, const std::string& text, const std::vector<int>& ranks) {
  if (begin_poison(board)) write_poison(board, kind, text, ranks);
}

void SiteWriter::write_anew(SiteWords& words, const CallSite& site) {
  std::uint64_t values[std::size(SiteWords{})] = {};
  char* text = reinterpret_cast<char*>(values);
  const std::uint32_t line = packed_line(site);
  std::memcpy(text, &line, sizeof line);
  write_path(text + sizeof line, kPathBytes, site.file);
  for (std::size_t i = 0; i < std::size(values); ++i) words[i].store(values[i], std::memory_order_relaxed);
  file_ = site.file;
  line_ = line;
}

void NameWriter::write_anew(NameWords& words, const ReduceFunction& function) {
  std::uint64_t values[std::tuple_size_v<NameWords>] = {};
  std::memcpy(values, function.name().data(), std::min(function.name().size(), sizeof values));
  for (std::size_t i = 0; i < std::size(values); ++i) words[i].store(values[i], std::memory_order_relaxed);
  function_ = &function;
}

SeenSite unpacked_site(std::uint32_t line, std::string file) {
  return {.line = line & ((1u << kLineBits) - 1),
          .outer = static_cast<OuterCall>(line >> kLineBits),
          .file = std::move(file)};
}

SeenSite read_site(const SiteWords& site) {
  const std::string bytes = bytes_in(site);
  std::uint32_t line = 0;
  std::memcpy(&line, bytes.data(), sizeof line);
  return unpacked_site(line, bytes.c_str() + sizeof line);
}

}  // namespace retinue

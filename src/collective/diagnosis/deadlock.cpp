#include "collective/diagnosis/deadlock.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "base/ranks_text.h"
#include "collective/board/wait_record.h"
#include "collective/diagnosis/report.h"
#include "ipc/memory/job_clock.h"
#include "ipc/memory/process_table.h"
#include "os/process/process_look.h"
#include "retinue/base/error.h"
#include "retinue/os/detail/standard_error.h"

namespace retinue {
namespace {

using namespace std::chrono_literals;

constexpr auto kBetweenReadings = 1s;
constexpr auto kRegistryPatience = 20ms;
/// Whose words are told, so that the rest of the text is seen, too.
constexpr std::ptrdiff_t kShownWaits = 12;
/// Between two readings each member must have begun a look after the first, and ended it before the second.
constexpr std::uint64_t kLooksBetween = 2;

struct Edge {
  std::size_t node;
  bool is_certain;  ///< False: that process could come to this group in another thread.
};

struct Node {
  std::size_t group = 0;
  int rank = 0;
  std::uint32_t slot = 0;
  SeenWait wait;
  WaitReading reading;
  std::vector<Edge> edges;
  bool all_targets_wait = true;
  bool is_stuck = true;
};

/// All waits of the job that are long, with whom each is for.
class WaitGraph {
 public:
  WaitGraph(const std::vector<SeenGroup>& groups, const JobMemory& memory) : groups_(groups) {
    for (std::size_t group = 0; group < groups.size(); ++group) add_waits_of(group);
    for (std::size_t i = 0; i < nodes_.size(); ++i) by_slot_[nodes_[i].slot].push_back(i);
    for (Node& node : nodes_) add_edges(node, memory);
    strike_out_those_that_can_end();
  }

  std::vector<Node>& nodes() { return nodes_; }

  std::optional<std::size_t> find(const Board& board, int rank) const {
    for (std::size_t i = 0; i < nodes_.size(); ++i)
      if (nodes_[i].rank == rank && &groups_[nodes_[i].group].board.header() == &board.header()) return i;
    return std::nullopt;
  }

  /// Where one comes from `node` by edges to waits that are stuck, `node` itself only if there is a way back.
  std::set<std::size_t> reachable_from(std::size_t node) const {
    std::set<std::size_t> reached;
    std::deque<std::size_t> next = {node};
    for (; !next.empty(); next.pop_front())
      for (const Edge& edge : nodes_[next.front()].edges)
        if (nodes_[edge.node].is_stuck && reached.insert(edge.node).second) next.push_back(edge.node);
    return reached;
  }

 private:
  void add_waits_of(std::size_t index) {
    const SeenGroup& group = groups_[index];
    for (int rank = 0; rank < group.board.size(); ++rank) {
      const Member& member = group.board.member(rank);
      const std::uint64_t looks = member.wait.looks.load(std::memory_order_acquire);
      const std::uint64_t moves = member.wait.moves.load(std::memory_order_acquire);
      const auto wait = read_wait(member.wait);
      if (!wait) continue;
      const WaitReading reading = {.group = index,
                                   .rank = rank,
                                   .generation = group.generation,
                                   .change = wait->change,
                                   .moves = moves,
                                   .progress = member.progress.load(std::memory_order_acquire),
                                   .sequence = group.board.newest_sequence(rank),
                                   .looks = looks};
      nodes_.push_back(
          {.group = index, .rank = rank, .slot = member.process_slot, .wait = *wait, .reading = reading, .edges = {}});
    }
    // Its memory may have become another's while it was read.
    if (!group.is_there()) std::erase_if(nodes_, [index](const Node& node) { return node.group == index; });
  }

  void add_edges(Node& node, const JobMemory& memory) {
    const Board& board = groups_[node.group].board;
    for (const int rank : node.wait.late) {
      if (rank >= board.size()) continue;
      const Member& member = board.member(rank);
      const auto of_process = by_slot_.find(member.process_slot);
      // Who is gone ends no wait.
      const bool is_lost =
          member.state.load(std::memory_order_acquire) == MemberState::kLeft || is_gone(memory, member);
      if (of_process == by_slot_.end()) {
        node.all_targets_wait = node.all_targets_wait && is_lost;
        continue;
      }
      // In a group a member makes one call at a time, so where it waits here nothing else of it comes here.
      const auto here = std::ranges::find_if(
          of_process->second, [&](std::size_t i) { return nodes_[i].group == node.group && nodes_[i].rank == rank; });
      if (here != of_process->second.end())
        node.edges.push_back({*here, true});
      else
        for (const std::size_t i : of_process->second) node.edges.push_back({i, !nodes_[i].wait.has_other_threads});
    }
  }

  bool may_end(const Node& node) const {
    const auto is_stuck = [this](const Edge& edge) { return nodes_[edge.node].is_stuck; };
    if (!node.wait.needs_only_one) return std::ranges::none_of(node.edges, is_stuck);
    return node.edges.empty() || !node.all_targets_wait || !std::ranges::all_of(node.edges, is_stuck);
  }

  void strike_out_those_that_can_end() {
    for (bool changed = true; std::exchange(changed, false);)
      for (Node& node : nodes_) {
        if (!node.is_stuck || !may_end(node)) continue;
        node.is_stuck = false;
        changed = true;
      }
  }

  const std::vector<SeenGroup>& groups_;
  std::vector<Node> nodes_;
  std::map<std::uint32_t, std::vector<std::size_t>> by_slot_;  ///< A process has several, if several threads wait.
};

/// The members of a cycle in its order, from the first of them on, so that all members tell it in the same words.
/// Where a wait needs only one of several there is more to it than one cycle: then all of them.
std::vector<std::size_t> in_order(const std::vector<Node>& nodes, const std::set<std::size_t>& knot) {
  const bool is_simple =
      std::ranges::none_of(knot, [&](std::size_t index) { return nodes[index].wait.needs_only_one; });
  std::vector<std::size_t> way;
  for (std::size_t at = *knot.begin(); is_simple && std::ranges::find(way, at) == way.end();) {
    way.push_back(at);
    const auto next = std::ranges::find_if(nodes[at].edges, [&](const Edge& edge) { return knot.contains(edge.node); });
    at = next->node;
    if (const auto back = std::ranges::find(way, at); back != way.end()) return {back, way.end()};
  }
  return {knot.begin(), knot.end()};
}

/// As `group "world"`, or `group "world", the 2nd of that name` where the job has several.
std::string group_text(const std::vector<SeenGroup>& groups, std::size_t index) {
  const SeenGroup& group = groups[index];
  std::uint64_t same_named = 0;
  std::uint64_t older = 0;
  for (const SeenGroup& other : groups) {
    if (other.name != group.name) continue;
    ++same_named;
    if (other.generation < group.generation) ++older;
  }
  return same_named == 1 ? fmt::format("group \"{}\"", group.name)
                         : fmt::format("group \"{}\", the {} of that name", group.name, ordinal(older + 1));
}

}  // namespace

Deadlock find_deadlock(const std::vector<SeenGroup>& groups, const Board& own_board, int own_rank,
                       const JobMemory& memory) {
  WaitGraph graph(groups, memory);
  const std::vector<Node>& nodes = graph.nodes();
  const auto own = graph.find(own_board, own_rank);
  if (!own || !nodes[*own].is_stuck) return {};
  const std::set<std::size_t> reached = graph.reachable_from(*own);
  if (!reached.contains(*own)) return {};
  std::set<std::size_t> knot;
  for (const std::size_t index : reached)
    if (graph.reachable_from(index).contains(*own)) knot.insert(index);
  const std::vector<std::size_t> order = in_order(nodes, knot);
  if (std::ranges::find(order, *own) == order.end()) return {};  // It waits for the cycle, and is not in it.
  const bool is_of_one_group =
      std::ranges::all_of(order, [&](std::size_t i) { return nodes[i].group == nodes[*own].group; });
  Deadlock deadlock;
  deadlock.groups = groups;
  deadlock.is_certain = true;
  deadlock.is_of_one_group = is_of_one_group;
  for (const std::size_t index : order) {
    const Node& node = nodes[index];
    deadlock.has_messages |= node.wait.is_for_message;
    // Ranks are each group's own.
    const std::int32_t pid = process_slot(memory, node.slot).pid.load(std::memory_order_relaxed);
    const std::string where = is_of_one_group ? "" : fmt::format(" (pid {}, {})", pid, group_text(groups, node.group));
    deadlock.who.push_back(is_of_one_group ? node.rank : pid);
    const std::string whom = node.wait.is_for_message ? "" : ", for " + ranks_text(node.wait.late);
    deadlock.texts.push_back(fmt::format("{}{}{}", node.wait.text, where, whom));
    deadlock.waits.push_back(node.reading);
  }
  for (const std::size_t index : reached) {
    const Node& node = nodes[index];
    if (std::ranges::find(order, index) == order.end()) deadlock.waits.push_back(node.reading);
    deadlock.is_certain &= node.wait.is_certain;
    for (const Edge& edge : node.edges) deadlock.is_certain &= edge.is_certain || !nodes[edge.node].is_stuck;
  }
  return deadlock;
}

bool DeadlockWatch::is_unchanged(const Deadlock& now) const {
  return std::ranges::equal(now.waits, seen_.waits, [](const WaitReading& reading, const WaitReading& before) {
    return reading.is_unchanged_since(before);
  });
}

bool DeadlockWatch::all_have_looked(const Deadlock& now) const {
  return std::ranges::equal(now.waits, seen_.waits, [](const WaitReading& reading, const WaitReading& before) {
    return reading.looks >= before.looks + kLooksBetween;
  });
}

bool DeadlockWatch::look() {
  const JobHeader& header = group_.memory->header();
  Deadlock now;
  try {
    now = find_deadlock(groups_of_job(group_, JobDeadline::after(header, kRegistryPatience)), board_, group_.rank,
                        *group_.memory);
  } catch (const TimeoutError&) {
    return false;  // Somebody stands still in the registry: at the next look.
  }
  if (now.waits.empty() || !is_unchanged(now)) {
    seen_ = std::move(now);
    seen_at_ = job_now(header);
  } else if (job_now(header) - seen_at_ >= kBetweenReadings && all_have_looked(now)) {
    act(now);
  }
  return !seen_.waits.empty();
}

void DeadlockWatch::act(const Deadlock& deadlock) {
  std::string text = "deadlock, none of these waits can end: ";
  const auto shown = std::min(std::ssize(deadlock.texts), kShownWaits);
  for (std::ptrdiff_t i = 0; i < shown; ++i) text += (i > 0 ? "; " : "") + deadlock.texts[static_cast<std::size_t>(i)];
  if (shown < std::ssize(deadlock.texts))
    text += fmt::format("; and the waits of {}{}", deadlock.is_of_one_group ? "ranks " : "the processes ",
                        ranges_text({deadlock.who.begin() + shown, deadlock.who.end()}));
  if (!deadlock.has_messages)
    text += ". All ranks must make the calls of their groups in the same order";
  else if (deadlock.is_of_one_group)
    text += ". Start one of them with isend or irecv, or use sendrecv";
  else
    text +=
        ". All ranks must make the calls of their groups in the same order, or start what others wait for before they "
        "wait";
  if (!deadlock.is_certain) {
    const WaitReading& first = deadlock.waits.front();
    const bool is_first = first.rank == group_.rank && &deadlock.groups[first.group].board.header() == &board_.header();
    if (is_first && !std::exchange(has_told_, true))
      write_standard_error(
          fmt::format("retinue: group \"{}\": this looks like a {}. It is a deadlock unless a wait has its own "
                      "deadline, or another thread of these processes makes the missing call.\n",
                      group_.name, text));
    return;
  }
  std::set<std::size_t> groups;
  for (std::size_t i = 0; i < deadlock.texts.size(); ++i) groups.insert(deadlock.waits[i].group);
  poison_all(deadlock, groups, text);
}

/// All at once: a member that threw in one group might else make the call that ends a wait in the next.
void DeadlockWatch::poison_all(const Deadlock& deadlock, const std::set<std::size_t>& groups, const std::string& text) {
  std::map<std::size_t, std::string> retained;
  for (const std::size_t index : groups) {
    const SeenGroup& group = deadlock.groups[index];
    try {
      std::string own_text = fmt::format("group \"{}\": {}", group.name, text);
      group_.memory->retain(group.block);
      retained.emplace(index, std::move(own_text));
    } catch (const Error&) {  // Its members have left it.
    }
  }
  std::vector<std::size_t> begun;
  begun.reserve(retained.size());
  for (const auto& [index, own_text] : retained)
    if (deadlock.groups[index].is_there() && begin_poison(deadlock.groups[index].board)) begun.push_back(index);
  for (const std::size_t index : begun)
    write_poison(deadlock.groups[index].board, FailureKind::kMismatch, retained.at(index), {});
  for (const auto& [index, own_text] : retained) group_.memory->release(deadlock.groups[index].block);
}

void DeadlockWatch::forget() {
  seen_ = {};
  has_told_ = false;
}

}  // namespace retinue

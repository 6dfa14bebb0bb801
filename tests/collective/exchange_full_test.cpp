// Every reduction of every type, and every way of data, in every kind of memory, at and beside the sizes at which
// another path is taken: by the built-in table, and by that of crowds.
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

#include "collective/exchange_grid.h"
#include "support/ranks.h"

namespace retinue::test {
namespace {

constexpr std::chrono::minutes kLongest{25};

struct Grid {
  int ranks;
  bool crowd;

  PathTable table() const { return crowd ? paths_of_a_crowd({}) : PathTable{}; }
};

std::string name_of_grid(const testing::TestParamInfo<Grid>& info) {
  return std::to_string(info.param.ranks) + (info.param.crowd ? "_by_the_table_of_crowds" : "");
}

class ExchangeGrid : public testing::TestWithParam<Grid> {
 protected:
  void SetUp() override { setenv("RETINUE_PATH_TABLE", text_of(GetParam().table()).c_str(), 1); }
  void TearDown() override { setenv("RETINUE_PATH_TABLE", "default", 1); }

  /// Calls body(communicator) on all ranks.
  template <typename Body>
  void run(Body body) {
    run_ranks(GetParam().ranks,
              [&](const JobGroup& group) {
                Communicator communicator(group);
                body(communicator);
              },
              {.timeout = kLongest});
  }

  /// All counts and places of one kind. What is left to chance is another thing in each.
  template <typename T>
  void check_kind(Communicator& communicator, CollectiveKind kind, ReduceOp op, TableValues<T>& values) const {
    const int ranks = communicator.size();
    for (const std::size_t count :
         counts_around_borders(GetParam().table(), kind, static_cast<std::size_t>(ranks), sizeof(T)))
      for (const Place place : kPlaces) {
        const std::uint64_t seed =
            hash(count, static_cast<int>(kind), static_cast<std::size_t>(place)) ^ static_cast<std::uint64_t>(op);
        ExchangeCase c = case_by_chance(kind, count, ranks, seed);
        c.input_place = place;
        c.op = op;
        values.begin_at(seed);
        check_exchange<T>(communicator, c, values);
      }
  }

  template <typename T>
  void check_reduction(ReduceOp op) {
    const auto ranks = static_cast<std::size_t>(GetParam().ranks);
    TableValues<T> values(op, GetParam().ranks, most_elements(GetParam().table(), ranks, sizeof(T)));
    values.reduce(GetParam().ranks);
    run([&](Communicator& communicator) {
      if (communicator.rank() + 1 < communicator.size()) values.reduce(communicator.rank() + 1);
      for (const CollectiveKind kind : kDataKinds)
        if (reduces(kind) && !HasFailure()) check_kind<T>(communicator, kind, op, values);
    });
  }
};

constexpr Grid kGrids[] = {{1, false}, {2, false},  {3, false}, {4, false}, {7, false},
                           {8, false}, {16, false}, {2, true},  {3, true},  {8, true}};
INSTANTIATE_TEST_SUITE_P(Ranks, ExchangeGrid, testing::ValuesIn(kGrids), name_of_grid);

TEST_P(ExchangeGrid, ReducesEachTypeByEachReduction) {
  for_each_pair([&]<typename T>(ReduceOp op) {
    // Of crowds it is the paths that differ, not what is done there.
    if (GetParam().crowd && op != ReduceOp::kSum && op != ReduceOp::kPremulSum) return;
    if (!HasFailure()) check_reduction<T>(op);
  });
}

TEST_P(ExchangeGrid, MovesBytes) {
  const auto ranks = static_cast<std::size_t>(GetParam().ranks);
  TableValues<std::uint8_t> values(ReduceOp::kSum, GetParam().ranks, most_elements(GetParam().table(), ranks, 1));
  run([&](Communicator& communicator) {
    for (const CollectiveKind kind : kDataKinds)
      if (!reduces(kind) && !HasFailure()) check_kind(communicator, kind, ReduceOp::kSum, values);
  });
}

}  // namespace
}  // namespace retinue::test

// Objects through process groups.
#include "retinue/torch/objects.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <algorithm>
#include <cereal/types/map.hpp>
#include <cereal/types/string.hpp>
#include <cereal/types/vector.hpp>
#include <map>
#include <string>
#include <vector>

#include "retinue/launch/spawn.h"
#include "retinue/torch/shared_tensor.h"
#include "support/usage_error.h"

using at::Tensor;
using retinue::ProcessGroup;
using retinue::RankContext;
using retinue::test::usage_error_of;

namespace {

using Scores = std::map<std::string, std::vector<int>>;

struct Batch {
  std::string name;
  std::vector<Tensor> tensors;

  template <class Archive>
  void serialize(Archive& archive) {
    archive(name, tensors);
  }
};

/// What a rank found wrong, for the caller of spawn().
void expect(bool condition, const std::string& what) {
  if (!condition) throw std::runtime_error("not so: " + what);
}

Scores scores_of(int rank) {
  return {{"rank", {rank}}, {std::string(static_cast<std::size_t>(rank) * 1000, 'x'), {1, 2, rank}}};
}

void exchange_objects(RankContext& context) {
  const ProcessGroup group = retinue::init_process_group(context);
  const int rank = group->getRank();
  const int size = group->getSize();

  const std::vector<Scores> all = retinue::all_gather_object(scores_of(rank), group);
  expect(static_cast<int>(all.size()) == size, "a value of each rank");
  for (int i = 0; i < size; ++i) expect(all[static_cast<std::size_t>(i)] == scores_of(i), "values in rank order");

  const std::vector<Scores> gathered = retinue::gather_object(scores_of(rank), group, size - 1);
  expect(gathered == (rank == size - 1 ? all : std::vector<Scores>()), "all at the last, none elsewhere");

  Scores scores = scores_of(rank);
  retinue::broadcast_object(scores, group, size - 1);
  expect(scores == scores_of(size - 1), "the last rank's value");

  expect(retinue::scatter_object(rank == 0 ? all : std::vector<Scores>(), group) == scores_of(rank), "one's own value");
}

TEST(ObjectsOfProcessGroups, ComeToAllRanks) {
  for (const int ranks : {1, 2, 3}) retinue::spawn<exchange_objects>({.nprocs = ranks});
}

void share_tensors(RankContext& context) {
  const ProcessGroup group = retinue::init_process_group(context);
  Batch batch;
  if (group->getRank() == 0) batch = {"weights", {torch::zeros({1000}), torch::ones({3}, torch::kInt64)}};
  retinue::broadcast_object(batch, group);
  expect(batch.name == "weights" && batch.tensors.size() == 2, "the whole batch");
  expect(batch.tensors[1].sum().item<std::int64_t>() == 3, "its contents");
  batch.tensors[0][group->getRank()] = 1;
  retinue::barrier(group);
  expect(batch.tensors[0].sum().item<float>() == static_cast<float>(group->getSize()), "one memory for all");
  retinue::barrier(group);
}

TEST(ObjectsOfProcessGroups, HoldTensorsAsTheSameMemory) {
  retinue::spawn<share_tensors>({.nprocs = 3});
}

void keep_order(RankContext& context) {
  const ProcessGroup group = retinue::init_process_group(context);
  const int rank = group->getRank();
  std::vector<Tensor> tensors;
  std::vector<retinue::Work> works;
  for (int i = 0; i < 20; ++i) {
    tensors.push_back(torch::full({1 << 16}, static_cast<float>(rank)));
    works.push_back(retinue::all_reduce(tensors.back(), group, {.async_op = true}));
    const std::vector<int> ranks = retinue::all_gather_object(rank + i, group);
    for (int r = 0; r < group->getSize(); ++r)
      expect(ranks[static_cast<std::size_t>(r)] == r + i, "values of this turn");
  }
  for (const retinue::Work& work : works) work->wait();
  for (const Tensor& tensor : tensors) expect(tensor[7].item<float>() == 3, "the sum of ranks 0, 1 and 2");
}

TEST(ObjectsOfProcessGroups, KeepTheirPlaceAmongAsynchronousCollectives) {
  retinue::spawn<keep_order>({.nprocs = 3});
}

/// Each rank sends one to the next, then all to rank 0, who takes them in whatever order they come.
void send_objects(RankContext& context) {
  const ProcessGroup group = retinue::init_process_group(context);
  const int rank = group->getRank();
  const int size = group->getSize();
  Batch batch{"from " + std::to_string(rank), {torch::full({4}, static_cast<float>(rank))}};
  const int previous = (rank + size - 1) % size;
  Batch received;
  // In turn: a tensor has its sender wait for who takes it.
  if (rank == 0) retinue::send_object(batch, group, 1, 5);
  expect(retinue::recv_object(received, group, previous, 5) == previous, "its sender");
  if (rank != 0) retinue::send_object(batch, group, (rank + 1) % size, 5);
  expect(received.name == "from " + std::to_string(previous), "the name");
  expect(received.tensors.at(0).sum().item<float>() == 4 * static_cast<float>(previous), "the tensor");
  if (rank == 0) {
    std::vector<int> senders;
    for (int i = 1; i < size; ++i) {
      Scores scores;
      senders.push_back(retinue::recv_object(scores, group, retinue::kAnySource));
      expect(scores == scores_of(senders.back()), "what this sender sent");
    }
    std::sort(senders.begin(), senders.end());
    for (int i = 1; i < size; ++i) expect(senders[static_cast<std::size_t>(i) - 1] == i, "one of each");
  } else {
    retinue::send_object(scores_of(rank), group, 0);
  }
  Tensor sum = torch::ones({1});
  retinue::all_reduce(sum, group);
  expect(sum.item<float>() == static_cast<float>(size), "the group goes on");
}

TEST(ObjectsOfProcessGroups, GoFromOneRankToAnother) {
  for (const int ranks : {2, 3}) retinue::spawn<send_objects>({.nprocs = ranks});
}

void misuse(RankContext& context) {
  const ProcessGroup group = retinue::init_process_group(context);
  const auto contains = [](const std::string& text, const std::string& part) {
    expect(text.find(part) != std::string::npos, text + " says " + part);
  };
  contains(usage_error_of([&] { retinue::all_gather_object(1, ProcessGroup()); }),
           "all_gather_object: the process group");
  int value = 1;
  contains(usage_error_of([&] { retinue::broadcast_object(value, group, 2); }),
           "rank 2 is outside of the group's [0, 2)");
  contains(usage_error_of([&] { retinue::send_object(value, group, 2); }), "rank 2 is outside of the group's [0, 2)");
  contains(usage_error_of([&] { retinue::send_object(value, group, group->getRank()); }), "to another rank");
  contains(usage_error_of([&] { retinue::recv_object(value, group, group->getRank()); }), "to another rank");
  // A tensor that isn't a leaf and requires grad is refused on its rank, and named to the other.
  Batch batch;
  if (group->getRank() == 0) batch.tensors = {torch::ones({2}, torch::requires_grad()) * 2};
  contains(usage_error_of([&] { retinue::all_gather_object(batch, group); }),
           group->getRank() == 0 ? "detach" : "rank 0");
  expect(retinue::all_gather_object(group->getRank(), group) == std::vector<int>{0, 1}, "the group goes on");
}

TEST(ObjectsOfProcessGroups, SayWhatIsWrong) {
  retinue::spawn<misuse>({.nprocs = 2});
}

}  // namespace

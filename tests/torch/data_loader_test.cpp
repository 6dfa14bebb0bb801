#include "retinue/torch/data_loader.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <algorithm>
#include <map>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "retinue/ipc/queue.h"
#include "retinue/torch/distributed_sampler.h"
#include "retinue/torch/shared_tensor.h"
#include "retinue/torch/tensor_archive.h"
#include "support/job_test.h"
#include "support/says.h"
#include "support/usage_error.h"
#include "torch/counted_items.h"

namespace retinue {
namespace {

using test::all_batches;
using test::are_equal;
using test::Batches;
using test::CountedItems;
using test::serial_batches;
using torch::data::samplers::SequentialSampler;

class DataLoaderJob : public test::JobTest {};

DataLoaderOptions random_options(std::mt19937& random, WorkerKind kind) {
  const auto below = [&](std::size_t bound) {
    return std::uniform_int_distribution<std::size_t>(0, bound - 1)(random);
  };
  DataLoaderOptions options;
  options.batch_size = 1 + below(9);
  options.workers = below(4);
  options.prefetch = below(6);
  options.kind = kind;
  options.drop_last = below(2) == 1;
  options.seed = below(3);
  return options;
}

void check_random_cases(WorkerKind kind, int cases) {
  std::mt19937 random(7);
  for (int i = 0; i < cases; ++i) {
    const DataLoaderOptions options = random_options(random, kind);
    const CountedItems items(1 + random() % 40);
    const DistributedSampler sampler(
        items.count, {.num_replicas = 1 + static_cast<int>(random() % 2), .shuffle = random() % 2 == 1, .seed = i});
    SCOPED_TRACE(testing::Message() << "case " << i << ": " << items.count << " items, batches of "
                                    << options.batch_size << ", " << options.workers << " workers, prefetch "
                                    << options.prefetch << ", drop_last " << options.drop_last);
    DistributedSampler own = sampler;
    const auto loader = make_data_loader(items, sampler, options);
    for (std::int64_t epoch = 0; epoch < 2; ++epoch) {
      own.set_epoch(epoch);
      const Batches wanted = serial_batches(items, sampler, options, epoch);
      ASSERT_TRUE(are_equal(all_batches(*loader), wanted));
      std::size_t count = 0;
      for (const auto& batch : wanted) count += static_cast<std::size_t>(batch.target.numel());
      EXPECT_EQ(loader->consumed(), count);
    }
  }
}

TEST(DataLoader, GivesWhatASerialLoopGivesForAnyNumberOfThreads) {
  check_random_cases(WorkerKind::kThreads, 1500);
}

TEST_F(DataLoaderJob, GivesWhatASerialLoopGivesForAnyNumberOfProcesses) {
  check_random_cases(WorkerKind::kProcesses, 60);
}

TEST(DataLoader, TakesLibTorchsSamplersAndTransforms) {
  const CountedItems items(10);
  auto plain = make_data_loader<SequentialSampler>(items, {.batch_size = 4, .workers = 2});
  const Batches batches = all_batches(*plain);
  ASSERT_EQ(batches.size(), 3u);
  EXPECT_EQ(batches[2].target.numel(), 2);

  struct Doubled : torch::data::transforms::TensorTransform<> {
    at::Tensor operator()(at::Tensor data) override { return data * 2; }
  };
  auto mapped = make_data_loader<SequentialSampler>(CountedItems(10).map(Doubled()), {.batch_size = 4, .workers = 2});
  auto stacked = make_data_loader<SequentialSampler>(
      CountedItems(10).map(Doubled()).map(torch::data::transforms::Stack<>()), {.batch_size = 4, .workers = 2});
  const Batches doubled = all_batches(*mapped);
  EXPECT_TRUE(torch::equal(doubled[1].data[0], (torch::arange(3) + 40) * 2));
  EXPECT_TRUE(are_equal(doubled, all_batches(*stacked)));

  const auto numbers = torch::rand({7, 2});
  auto without_target = make_data_loader<SequentialSampler>(torch::data::datasets::TensorDataset(numbers),
                                                            {.batch_size = 7, .workers = 1});
  for (auto& batch : *without_target) EXPECT_TRUE(torch::equal(batch.data, numbers));
  std::multiset<std::int64_t> seen;
  const auto random = make_data_loader(items, {.batch_size = 3});
  for (auto& batch : *random)
    for (std::int64_t i = 0; i < batch.target.numel(); ++i) seen.insert(batch.target[i].item<std::int64_t>());
  EXPECT_EQ(seen.size(), 10u);
  EXPECT_EQ(std::set(seen.begin(), seen.end()).size(), 10u);
}

TEST(DataLoader, ContinuesInTheMiddleOfAnEpoch) {
  for (const std::size_t workers : {0u, 1u, 3u}) {
    const CountedItems items(50);
    const DataLoaderOptions options{.batch_size = 4, .workers = workers, .seed = 5};
    DistributedSampler sampler(items.count, {.num_replicas = 2, .rank = 1, .seed = 3});
    sampler.set_epoch(6);
    const Batches whole = serial_batches(items, sampler, options, 6);
    const auto loader = make_data_loader(items, sampler, options);
    DistributedSamplerState state;
    std::size_t steps = 0;
    for ([[maybe_unused]] auto& batch : *loader) {
      state = sampler.state(loader->consumed());
      if (++steps == 3) break;
    }
    EXPECT_EQ(state.epoch, 6);

    DistributedSampler resumed(items.count, {.num_replicas = 2, .rank = 1, .seed = 3});
    resumed.resume_at(state);
    const auto rest = make_data_loader(items, resumed, options);
    EXPECT_TRUE(are_equal(all_batches(*rest), Batches(whole.begin() + 3, whole.end())));
    // The first loader begins a whole pass again.
    EXPECT_TRUE(are_equal(all_batches(*loader), whole));
  }
}

TEST(DataLoader, RefusesAnIteratorOfAnEarlierPass) {
  const auto loader = make_data_loader<SequentialSampler>(CountedItems(10), {.batch_size = 2, .workers = 1});
  auto old = loader->begin();
  EXPECT_EQ((*old).target[0].item<std::int64_t>(), 0);
  auto now = loader->begin();
  EXPECT_TRUE(test::says(test::usage_error_of([&] { ++old; }), "this iterator's pass has ended"));
  EXPECT_EQ((*now).target[0].item<std::int64_t>(), 0);
}

TEST(DataLoader, RefusesWrongOptions) {
  const CountedItems items(4);
  const auto error_of = [&](const DataLoaderOptions& options) {
    return test::usage_error_of([&] { make_data_loader<SequentialSampler>(items, options); });
  };
  EXPECT_TRUE(test::says(error_of({.batch_size = 0}), "batch_size is 0"));
  EXPECT_TRUE(test::says(error_of({.workers = 100000}), "100000 workers"));
  EXPECT_TRUE(test::says(error_of({.prefetch = std::size_t{1} << 61u}), "prefetch is 2305843009213693952"));
  EXPECT_TRUE(test::says(error_of({.timeout = std::chrono::milliseconds(-1)}), "timeout"));
  EXPECT_TRUE(test::says(error_of({.workers = 1, .kind = WorkerKind::kProcesses}), "no Runtime"));
}

TEST(DataLoader, LeavesTheProgramsRandomNumbersAlone) {
  struct Random : torch::data::datasets::Dataset<Random, torch::data::TensorExample> {
    torch::data::TensorExample get(std::size_t) override { return torch::rand({2}); }
    std::optional<std::size_t> size() const override { return 4; }
  };
  torch::manual_seed(3);
  const auto loader = make_data_loader<SequentialSampler>(Random(), {.batch_size = 2});
  const at::Tensor drawn = torch::rand({3});
  torch::manual_seed(3);
  EXPECT_TRUE(torch::equal(drawn, torch::rand({3})));
}

TEST(DataLoader, ReadsTheEnvironmentOnlyWhereTheOptionIsNotSet) {
  setenv("RETINUE_LATE_AFTER_S", "soon", 1);
  EXPECT_NO_THROW(make_data_loader<SequentialSampler>(CountedItems(3), {.late_after = std::chrono::seconds(1)}));
  EXPECT_TRUE(test::says(test::usage_error_of([] { make_data_loader<SequentialSampler>(CountedItems(3)); }),
                         "RETINUE_LATE_AFTER_S is \"soon\""));
  unsetenv("RETINUE_LATE_AFTER_S");
}

/// What the compiler says of these is one line that names the mistake.
static_assert(!detail::IsSampler<torch::data::DataLoaderOptions> && detail::IsSampler<SequentialSampler>);
static_assert(!detail::HasSize<int> && detail::HasSize<test::CountedItems>);
static_assert(!detail::kHasItems<std::vector<int>> && detail::kHasItems<test::CountedItems>);

/// Sizes vary from item to item.
struct UnequalItems : torch::data::datasets::Dataset<UnequalItems, torch::data::TensorExample> {
  torch::data::TensorExample get(std::size_t index) override { return torch::zeros({index == 5 ? 3 : 2}); }
  std::optional<std::size_t> size() const override { return 8; }
};

TEST(DataLoader, RefusesItemsThatCannotBeStacked) {
  for (const std::size_t workers : {0u, 2u}) {
    const auto loader = make_data_loader<SequentialSampler>(UnequalItems(), {.batch_size = 2, .workers = workers});
    std::size_t batches = 0;
    const std::string error = test::usage_error_of([&] {
      for ([[maybe_unused]] auto& batch : *loader) ++batches;
    });
    EXPECT_EQ(batches, 2u);
    EXPECT_TRUE(test::says(error, "item 5")) << error;
    EXPECT_TRUE(test::says(error, "[3]")) << error;
    EXPECT_EQ(test::says(error, "DataLoader: worker "), workers > 0) << error;
  }
  struct Sparse : torch::data::datasets::Dataset<Sparse, torch::data::TensorExample> {
    torch::data::TensorExample get(std::size_t) override { return torch::eye(2).to_sparse(); }
    std::optional<std::size_t> size() const override { return 1; }
  };
  EXPECT_TRUE(test::says(test::usage_error_of([] { make_data_loader<SequentialSampler>(Sparse(), {}); }), "Sparse"));
  struct Undefined : torch::data::datasets::Dataset<Undefined, torch::data::TensorExample> {
    torch::data::TensorExample get(std::size_t index) override { return index == 5 ? at::Tensor() : torch::zeros({2}); }
    std::optional<std::size_t> size() const override { return 8; }
  };
  const auto loader = make_data_loader<SequentialSampler>(Undefined(), {});
  EXPECT_TRUE(test::says(test::usage_error_of([&] {
                           for ([[maybe_unused]] auto& batch : *loader) continue;
                         }),
                         "data of item 5 is an undefined tensor"));
}

/// Its batches have one item too many, or too few.
struct MiscountedBatches : torch::data::datasets::BatchDataset<MiscountedBatches, std::vector<torch::data::Example<>>> {
  explicit MiscountedBatches(std::int64_t difference) : difference(difference) {}
  std::vector<torch::data::Example<>> get_batch(at::ArrayRef<std::size_t> indices) override {
    const bool is_first = indices.front() == 0;
    return {indices.size() + static_cast<std::size_t>(is_first ? 0 : difference),
            {torch::zeros({2}), torch::zeros({})}};
  }
  std::optional<std::size_t> size() const override { return 8; }
  std::int64_t difference;
};

TEST(DataLoader, RefusesBatchesWithAnotherNumberOfItems) {
  for (const int difference : {-1, 1}) {
    const auto loader = make_data_loader<SequentialSampler>(MiscountedBatches(difference), {.batch_size = 4});
    EXPECT_TRUE(test::says(test::usage_error_of([&] { all_batches(*loader); }),
                           "returned " + std::to_string(4 + difference) + " items for 4 indices"));
  }
}

TEST(DataLoader, MayWaitForTheLongestTimeThatThereIs) {
  const DataLoaderOptions options{.batch_size = 3, .workers = 1, .timeout = std::chrono::milliseconds::max()};
  EXPECT_EQ(all_batches(*make_data_loader<SequentialSampler>(CountedItems(10), options)).size(), 4u);
}

TEST(DataLoader, StacksItemsOfOtherLayouts) {
  struct Transposed : torch::data::datasets::Dataset<Transposed, torch::data::TensorExample> {
    torch::data::TensorExample get(std::size_t index) override {
      return (torch::arange(6).reshape({2, 3}) + static_cast<std::int64_t>(index)).t();
    }
    std::optional<std::size_t> size() const override { return 3; }
  };
  const auto loader = make_data_loader<SequentialSampler>(Transposed(), {.batch_size = 3, .workers = 2});
  for (auto& batch : *loader)
    EXPECT_TRUE(torch::equal(
        batch.data, torch::stack({Transposed().get(0).data, Transposed().get(1).data, Transposed().get(2).data})));
}

/// Has write_item().
struct WrittenItems {
  using ExampleType = torch::data::Example<>;
  std::optional<std::size_t> size() const { return 9; }
  ItemLayout item_layout() const { return {{{2}, at::kFloat}, PartLayout{{}, at::kLong}}; }
  void write_item(std::size_t index, ItemGenerator& generator, const ItemMemory& memory) {
    auto* const data = reinterpret_cast<float*>(memory.data);
    data[0] = static_cast<float>(index);
    data[1] = static_cast<float>(generator.uniform());
    *reinterpret_cast<std::int64_t*>(memory.target) = static_cast<std::int64_t>(index * index);
  }
};

TEST(DataLoader, LetsADatasetWriteItsItems) {
  const auto loader = make_data_loader<SequentialSampler>(WrittenItems(), {.batch_size = 4, .workers = 2, .seed = 8});
  std::int64_t index = 0;
  for (auto& batch : *loader)
    for (std::int64_t i = 0; i < batch.target.numel(); ++i, ++index) {
      ItemGenerator generator(8, 0, static_cast<std::size_t>(index));
      EXPECT_EQ(batch.target[i].item<std::int64_t>(), index * index);
      EXPECT_EQ(batch.data[i][0].item<float>(), static_cast<float>(index));
      EXPECT_EQ(batch.data[i][1].item<float>(), static_cast<float>(generator.uniform()));
    }
  EXPECT_EQ(index, 9);
}

TEST(DataLoader, HasNoBatchesOfAnEmptyDataset) {
  for (const std::size_t workers : {0u, 2u}) {
    const auto loader = make_data_loader<SequentialSampler>(CountedItems(0), {.workers = workers});
    EXPECT_TRUE(all_batches(*loader).empty());
  }
}

TEST_F(DataLoaderJob, UsesTheMemoryOfBatchesAgain) {
  for (const WorkerKind kind : {WorkerKind::kThreads, WorkerKind::kProcesses}) {
    const auto loader = make_data_loader<SequentialSampler>(
        CountedItems(64), {.batch_size = 4, .workers = 2, .prefetch = 3, .kind = kind});
    std::set<const void*> places;
    std::size_t most = 0;
    for (int epoch = 0; epoch < 30; ++epoch)
      for (auto& batch : *loader) {
        EXPECT_TRUE(is_shared(batch.data) && is_shared(batch.target));
        places.insert(batch.data.data_ptr());
        if (epoch == 0) most = std::max(most, memory_->allocated_bytes());
        EXPECT_LE(memory_->allocated_bytes(), most);
      }
    EXPECT_LE(places.size(), 5u);
  }
}

TEST_F(DataLoaderJob, LeavesBatchesAloneThatTheLoopKeeps) {
  const CountedItems items(60);
  const DataLoaderOptions options{.batch_size = 3, .workers = 2, .kind = WorkerKind::kProcesses};
  const auto loader = make_data_loader(items, SequentialSampler(items.count), options);
  const Batches wanted = serial_batches(items, SequentialSampler(items.count), options, 0);
  Batches kept;
  std::vector<at::Tensor> views;
  for (auto& batch : *loader) {
    if (kept.size() % 2 == 0) views.push_back(batch.data[0]);  // A view keeps the memory, too.
    kept.push_back(batch);
  }
  EXPECT_TRUE(are_equal(kept, wanted));
  kept.clear();
  all_batches(*loader);
  for (std::size_t i = 0; i < views.size(); ++i) EXPECT_TRUE(torch::equal(views[i], wanted[2 * i].data[0]));
  views.clear();
  all_batches(*loader);
  EXPECT_LE(memory_->allocated_bytes(), 20u * 4096u);  // Of the forty that the loop once had, few are left.
}

TEST_F(DataLoaderJob, LeavesBatchesAloneThatWereSent) {
  const CountedItems items(40);
  Queue<at::Tensor> queue({.capacity = 16});
  {
    const auto loader = make_data_loader<SequentialSampler>(items, {.batch_size = 4, .workers = 2});
    for (auto& batch : *loader) queue.put(batch.target);
    all_batches(*loader);
    for (std::int64_t batch = 0; batch < 10; ++batch)
      EXPECT_TRUE(torch::equal(queue.get(), torch::arange(4 * batch, 4 * batch + 4)));
  }
}

}  // namespace
}  // namespace retinue

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cstdint>
#include <numeric>
#include <sstream>
#include <string>
#include <vector>

#include "retinue/base/error.h"
#include "retinue/torch/distributed_sampler.h"
#include "support/says.h"
#include "support/usage_error.h"

namespace retinue {
namespace {

using test::says;
using test::usage_error_of;

struct GoldenCase {
  std::size_t dataset_size;
  int num_replicas;
  int rank;
  bool shuffle;
  std::int64_t seed;
  std::int64_t epoch;
  bool drop_last;
  std::size_t count;
  std::uint64_t digest;
};

constexpr GoldenCase kGolden[] = {
#include "sampler_golden.inc"
};

std::uint64_t fnv1a(const std::vector<std::size_t>& values) {
  std::uint64_t digest = 0xcbf29ce484222325u;
  for (const std::size_t value : values) {
    for (int shift = 0; shift < 64; shift += 8) digest = (digest ^ (value >> shift & 0xff)) * 0x100000001b3u;
  }
  return digest;
}

std::vector<std::size_t> drain(DistributedSampler& sampler, std::size_t batch_size) {
  std::vector<std::size_t> all;
  while (auto batch = sampler.next(batch_size)) {
    EXPECT_FALSE(batch->empty());
    EXPECT_LE(batch->size(), batch_size);
    all.insert(all.end(), batch->begin(), batch->end());
  }
  return all;
}

TEST(DistributedSampler, YieldsWhatPyTorchYields) {
  ASSERT_GT(std::size(kGolden), 500u);
  for (const GoldenCase& golden : kGolden) {
    SCOPED_TRACE(testing::Message() << "size " << golden.dataset_size << " rank " << golden.rank << " of "
                                    << golden.num_replicas << " seed " << golden.seed << " epoch " << golden.epoch);
    DistributedSampler sampler(golden.dataset_size, {.num_replicas = golden.num_replicas,
                                                     .rank = golden.rank,
                                                     .shuffle = golden.shuffle,
                                                     .seed = golden.seed,
                                                     .drop_last = golden.drop_last});
    sampler.set_epoch(golden.epoch);
    const auto indices = drain(sampler, 7);
    EXPECT_EQ(indices.size(), golden.count);
    EXPECT_EQ(sampler.size(), golden.count);
    EXPECT_EQ(fnv1a(indices), golden.digest);
  }
}

TEST(DistributedSampler, RanksShareTheDataSetWithoutOverlap) {
  std::vector<int> seen(100, 0);
  for (int rank = 0; rank < 4; ++rank) {
    DistributedSampler sampler(100, {.num_replicas = 4, .rank = rank, .seed = 3});
    for (const std::size_t index : drain(sampler, 10)) ++seen.at(index);
  }
  EXPECT_EQ(seen, std::vector<int>(100, 1));
}

TEST(DistributedSampler, CopiesShareTheEpoch) {
  DistributedSampler mine(64, {.num_replicas = 2, .rank = 1});
  DistributedSampler loaders = mine;
  const auto first = drain(loaders, 64);
  mine.set_epoch(1);
  loaders.reset();
  const auto second = drain(loaders, 64);
  EXPECT_NE(first, second);
  mine.set_epoch(0);
  loaders.reset();
  EXPECT_EQ(drain(loaders, 64), first);
}

TEST(DistributedSampler, ServesADataLoader) {
  const auto values = torch::arange(50, torch::kFloat32);
  auto dataset =
      torch::data::datasets::TensorDataset(values).map(torch::data::transforms::Stack<torch::data::TensorExample>());
  DistributedSampler sampler(50, {.num_replicas = 2, .rank = 0, .seed = 5});
  auto loader = torch::data::make_data_loader(dataset, sampler, torch::data::DataLoaderOptions().batch_size(8));
  for (std::int64_t epoch = 0; epoch < 3; ++epoch) {
    sampler.set_epoch(epoch);
    DistributedSampler expected(50, {.num_replicas = 2, .rank = 0, .seed = 5});
    expected.set_epoch(epoch);
    std::vector<std::size_t> loaded;
    for (const auto& batch : *loader) {
      for (std::int64_t i = 0; i < batch.data.numel(); ++i)
        loaded.push_back(static_cast<std::size_t>(batch.data[i].item<float>()));
    }
    EXPECT_EQ(loaded, drain(expected, 50));
  }
}

TEST(DistributedSampler, TakesANewSizeAtReset) {
  DistributedSampler sampler(10, {.num_replicas = 2, .rank = 0, .shuffle = false});
  EXPECT_EQ(drain(sampler, 10).size(), 5u);
  sampler.reset(20);
  EXPECT_EQ(drain(sampler, 100), (std::vector<std::size_t>{0, 2, 4, 6, 8, 10, 12, 14, 16, 18}));
}

TEST(DistributedSampler, GoesOnWhereASavedOneStopped) {
  DistributedSampler saved(30, {.num_replicas = 2, .rank = 1, .seed = 9});
  saved.set_epoch(4);
  saved.reset();
  saved.next(6);
  std::stringstream file;
  torch::serialize::OutputArchive out;
  saved.save(out);
  out.save_to(file);

  DistributedSampler loaded(30, {.num_replicas = 2, .rank = 1, .seed = 9});
  torch::serialize::InputArchive in;
  in.load_from(file);
  loaded.load(in);
  EXPECT_EQ(loaded.epoch(), 4);
  const auto rest = drain(loaded, 100);
  EXPECT_EQ(rest.size(), 9u);
  EXPECT_EQ(rest, drain(saved, 100));

  DistributedSampler smaller(4, {.num_replicas = 2, .rank = 1});
  torch::serialize::InputArchive again;
  file.clear();
  file.seekg(0);
  again.load_from(file);
  EXPECT_THROW(smaller.load(again), UsageError);
}

TEST(DistributedSampler, RefusesARankOutsideOfTheWorld) {
  EXPECT_THROW(DistributedSampler(10, {.num_replicas = 2, .rank = 2}), UsageError);
  EXPECT_THROW(DistributedSampler(10, {.num_replicas = 2, .rank = -1}), UsageError);
  for (const int count : {0, -2})
    EXPECT_TRUE(says(usage_error_of([&] { DistributedSampler(10, {.num_replicas = count, .rank = 0}); }),
                     "num_replicas is " + std::to_string(count)));
  EXPECT_THROW(DistributedSampler(10, ProcessGroup(), {}), UsageError);
}

TEST(DistributedSampler, KnowsItsPlaceFromAGroup) {
  const ProcessGroup alone = init_process_group();
  DistributedSampler sampler(7, alone, {.shuffle = false, .seed = 0});
  std::vector<std::size_t> all(7);
  std::iota(all.begin(), all.end(), 0u);
  EXPECT_EQ(drain(sampler, 3), all);
}

}  // namespace
}  // namespace retinue

#include "retinue/torch/image_transforms.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "retinue/base/error.h"
#include "retinue/torch/data_loader.h"
#include "retinue/torch/tensor_dataset.h"
#include "support/says.h"
#include "support/usage_error.h"

namespace retinue {
namespace {

using torch::data::samplers::SequentialSampler;

at::Tensor written(const ImageDataset& dataset, std::size_t index, std::uint64_t seed) {
  const ItemLayout layout = dataset.item_layout();
  const at::Tensor data = torch::empty(layout.data.sizes);
  at::Tensor target = torch::empty(layout.target->sizes, layout.target->type);
  ItemGenerator generator(seed);
  dataset.write_item(index, generator,
                     {static_cast<std::byte*>(data.data_ptr()), static_cast<std::byte*>(target.data_ptr())});
  return data;
}

/// Every result that LibTorch's operations can make of an image.
std::map<std::tuple<std::int64_t, std::int64_t, bool>, at::Tensor> all_results(const at::Tensor& image,
                                                                               const ImageTransforms& options) {
  const at::Tensor mean = torch::tensor(options.mean).reshape({-1, 1, 1});
  const at::Tensor std = torch::tensor(options.std).reshape({-1, 1, 1});
  const std::int64_t padding = options.padding;
  const at::Tensor padded = torch::constant_pad_nd(image, {padding, padding, padding, padding});
  const ImageSize crop = *options.random_crop;
  std::map<std::tuple<std::int64_t, std::int64_t, bool>, at::Tensor> results;
  for (std::int64_t top = 0; top + crop.height <= padded.size(1); ++top)
    for (std::int64_t left = 0; left + crop.width <= padded.size(2); ++left)
      for (const bool flips : {false, true}) {
        at::Tensor part = padded.slice(1, top, top + crop.height).slice(2, left, left + crop.width);
        if (flips) part = part.flip(2);
        results[{top, left, flips}] = (part.to(torch::kFloat) / 255 - mean) / std;
      }
  return results;
}

TEST(ImageTransforms, GiveWhatLibTorchsOperationsGive) {
  const at::Tensor images = torch::randint(0, 256, {3, 3, 5, 7}, torch::kByte);
  const at::Tensor planes_last = images.contiguous(at::MemoryFormat::ChannelsLast);
  for (const ImageSize crop : {ImageSize{5, 7}, ImageSize{3, 4}, ImageSize{8, 9}, ImageSize{1, 1}}) {
    const ImageTransforms options = {.padding = 2,
                                     .random_crop = crop,
                                     .horizontal_flip = 0.5,
                                     .mean = {0.4f, 0.5f, 0.6f},
                                     .std = {0.2f, 0.3f, 0.4f}};
    const ImageDataset dataset(images, torch::arange(3), options);
    const ImageDataset other(planes_last, torch::arange(3), options);
    const auto wanted = all_results(images[1], options);
    std::map<std::tuple<std::int64_t, std::int64_t, bool>, int> counts;
    constexpr int kDraws = 4000;
    for (std::uint64_t seed = 0; seed < kDraws; ++seed) {
      const at::Tensor result = written(dataset, 1, seed);
      ASSERT_TRUE(torch::equal(result, written(other, 1, seed)));
      bool is_found = false;
      for (const auto& [place, each] : wanted)
        if (torch::equal(each, result)) {
          is_found = true;
          ++counts[place];
          break;
        }
      ASSERT_TRUE(is_found) << result;
    }
    if (crop.height * crop.width > 20) {
      EXPECT_EQ(counts.size(), wanted.size());  // Each crop comes, flipped and not.
      for (const auto& [place, count] : counts) EXPECT_LT(count, 3 * kDraws / static_cast<int>(wanted.size()));
    }
  }
}

TEST(ImageTransforms, CropTheCentre) {
  const at::Tensor images = torch::randint(0, 256, {1, 1, 9, 10}, torch::kByte);
  const ImageDataset dataset(images, torch::arange(1), {.center_crop = ImageSize{4, 5}});
  // torchvision: round((9 - 4) / 2) is 2, and round((10 - 5) / 2) is 2.
  EXPECT_TRUE(torch::equal(written(dataset, 0, 0), images[0].slice(1, 2, 6).slice(2, 2, 7).to(torch::kFloat) / 255));
  const ImageDataset odd(images, torch::arange(1), {.center_crop = ImageSize{2, 3}});
  // round(3.5) is 4, and round(3.5) is 4.
  EXPECT_TRUE(torch::equal(written(odd, 0, 0), images[0].slice(1, 4, 6).slice(2, 4, 7).to(torch::kFloat) / 255));
}

TEST(ImageTransforms, AreRefusedIfTheyContradictEachOther) {
  const at::Tensor images = torch::zeros({2, 3, 4, 4}, torch::kByte);
  const auto error_of = [&](const ImageTransforms& options) {
    return test::usage_error_of([&] { ImageDataset(images, torch::arange(2), options); });
  };
  using test::says;
  EXPECT_TRUE(says(error_of({.random_crop = ImageSize{2, 2}, .center_crop = ImageSize{2, 2}}), "exclude each other"));
  EXPECT_TRUE(says(error_of({.padding = 1}), "padding"));
  EXPECT_TRUE(says(error_of({.padding = 1, .random_crop = ImageSize{7, 2}}), "larger than an image of 4 x 4"));
  EXPECT_TRUE(says(error_of({.random_crop = ImageSize{0, 2}}), "no pixels"));
  EXPECT_TRUE(says(error_of({.horizontal_flip = 1.5}), "probability"));
  EXPECT_TRUE(says(error_of({.mean = {1, 2}}), "2 values of mean for 3 channels"));
  EXPECT_TRUE(says(error_of({.std = {0}}), "std is 0"));
  EXPECT_THROW(ImageDataset(images, torch::arange(3)), UsageError);
  EXPECT_THROW(ImageDataset(images, at::Tensor()), UsageError);
  EXPECT_THROW(ImageDataset(images, torch::eye(2).to_sparse()), UsageError);
  EXPECT_THROW(ImageDataset(images.to(torch::kFloat), torch::arange(2)), UsageError);
}

TEST(ImageTransforms, GiveTheSameBatchesForAnyNumberOfWorkers) {
  const at::Tensor images = torch::randint(0, 256, {50, 8, 8}, torch::kByte);
  const ImageDataset dataset(images, torch::arange(50),
                             {.padding = 2, .random_crop = ImageSize{8, 8}, .horizontal_flip = 0.5});
  std::vector<at::Tensor> first;
  for (const std::size_t workers : {0u, 1u, 2u, 3u}) {
    const auto loader = make_data_loader<SequentialSampler>(dataset, {.batch_size = 7, .workers = workers, .seed = 9});
    std::vector<at::Tensor> parts;
    for (int epoch = 0; epoch < 2; ++epoch)
      for (auto& batch : *loader) parts.push_back(batch.data.clone());
    const at::Tensor all = torch::cat(parts);
    EXPECT_FALSE(torch::equal(all.slice(0, 0, 50), all.slice(0, 50)));  // Epochs differ.
    first.push_back(all);
    EXPECT_TRUE(torch::equal(all, first.front()));
  }
}

TEST(TensorDatasetOfTwo, GivesRows) {
  const at::Tensor data = torch::rand({6, 2, 3}).transpose(1, 2);
  const at::Tensor target = torch::arange(6);
  TensorDataset dataset(data, target);
  EXPECT_TRUE(torch::equal(dataset.get(4).data, data[4]));
  const auto loader = make_data_loader<SequentialSampler>(dataset, {.batch_size = 6, .workers = 1});
  for (auto& batch : *loader) {
    EXPECT_TRUE(torch::equal(batch.data, data));
    EXPECT_TRUE(torch::equal(batch.target, target));
  }
  EXPECT_THROW(TensorDataset(data, torch::arange(5)), UsageError);
  EXPECT_THROW(dataset.get(6), UsageError);
}

}  // namespace
}  // namespace retinue

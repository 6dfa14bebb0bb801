#include "fashion_mnist_model.h"

#include <algorithm>
#include <cstdint>
#include <vector>

namespace fashion_mnist {

NetImpl::NetImpl() {
  register_module("conv1", conv1);
  register_module("conv2", conv2);
  register_module("hidden", hidden);
  register_module("output", output);
}

torch::Tensor NetImpl::forward(torch::Tensor x) {
  x = torch::max_pool2d(torch::relu(conv1(x)), 2);
  x = torch::max_pool2d(torch::relu(conv2(x)), 2);
  return output(torch::relu(hidden(x.flatten(1))));
}

torch::Tensor normalised(const torch::Tensor& pixels) {
  return pixels.to(torch::kFloat32).div_(255).sub_(0.2860).div_(0.3530);
}

ImageBatches::ImageBatches(LabelledImages images) {
  constexpr std::int64_t kSide = LabelledImages::kSide;
  const auto count = static_cast<std::int64_t>(images.count());
  pixels_ = torch::from_blob(images.pixels.data(), {count, 1, kSide, kSide}, torch::kUInt8).clone();
  labels_ = torch::from_blob(images.labels.data(), {count}, torch::kUInt8).to(torch::kInt64);
}

torch::data::Example<> ImageBatches::get_batch(c10::ArrayRef<std::size_t> indices) {
  const torch::Tensor picked = torch::tensor(std::vector<std::int64_t>(indices.begin(), indices.end()));
  return {normalised(pixels_.index_select(0, picked)), labels_.index_select(0, picked)};
}

torch::data::Example<> ImageBatches::part(int first, int step) const {
  const auto rows = torch::indexing::Slice(first, torch::indexing::None, step);
  return {normalised(pixels_.index({rows})), labels_.index({rows})};
}

std::int64_t count_right(const std::function<torch::Tensor(torch::Tensor)>& net, const torch::Tensor& data,
                         const torch::Tensor& target) {
  constexpr std::int64_t kAtOnce = 500;
  const torch::NoGradGuard no_grad;
  std::int64_t right = 0;
  for (std::int64_t first = 0; first < data.size(0); first += kAtOnce) {
    const std::int64_t last = std::min(first + kAtOnce, data.size(0));
    const torch::Tensor guess = net(data.slice(0, first, last)).argmax(1);
    right += guess.eq(target.slice(0, first, last)).sum().item<std::int64_t>();
  }
  return right;
}

}  // namespace fashion_mnist

#include "fashion_mnist_model.h"

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <vector>

namespace fashion_mnist {
namespace {

retinue::LabelledImages read_part(const std::filesystem::path& folder, bool train) {
  retinue::LabelledImages part = retinue::read_mnist(folder, train);
  if (part.images.size(2) != kSide || part.images.size(3) != kSide)
    throw retinue::DataError(folder, "has images of other sizes than 28 x 28");
  return part;
}

}  // namespace

std::filesystem::path data_folder(const std::string& requested) {
  if (!requested.empty()) return requested;
  const char* named = std::getenv("RETINUE_DATA");
  return named != nullptr && *named != '\0' ? named : "/usr/share/datasets/fashion-mnist";
}

Dataset read_dataset(const std::filesystem::path& folder) {
  if (!std::filesystem::is_directory(folder))
    throw retinue::DataError(folder,
                             "is missing; install the package dataset-fashion-mnist, or name the folder with "
                             "--data or RETINUE_DATA");
  return {read_part(folder, true), read_part(folder, false)};
}

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

ImageBatches::ImageBatches(const retinue::LabelledImages& images) : pixels_(images.images), labels_(images.labels) {}

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

#include "datasets/image_file.h"

#include <c10/util/StringUtil.h>

#include <algorithm>

#include "datasets/data_file.h"
#include "retinue/datasets/data_error.h"

namespace retinue {
namespace {

constexpr std::int64_t kMostPixels = std::int64_t{1} << 28;

bool begins_with(std::span<const std::uint8_t> bytes, std::initializer_list<std::uint8_t> wanted) {
  return bytes.size() >= wanted.size() && std::equal(wanted.begin(), wanted.end(), bytes.begin());
}

}  // namespace

std::string begin_image(std::int64_t height, std::int64_t width, Decode what, DecodedImage& image) {
  if (height < 1 || width < 1 || height > kMostPixels / width)
    return c10::str("claims to have ", width, " x ", height, " pixels");
  image.size = {height, width};
  if (what == Decode::kPixels) image.pixels.resize(static_cast<std::size_t>(height * width * image.channels));
  return "";
}

void decode_file(const std::filesystem::path& file, Decode what, DecodedImage& image) {
  thread_local std::vector<std::uint8_t> bytes;
  read_whole_file(file, bytes);
  std::string problem;
  if (bytes.empty())
    problem = "is empty";
  else if (begins_with(bytes, {0xff, 0xd8}))
    problem = decode_jpeg(bytes, what, image);
  else if (begins_with(bytes, {0x89, 'P', 'N', 'G'}))
    problem = decode_png(bytes, what, image);
  else
    problem = "is neither a JPEG nor a PNG file";
  if (!problem.empty()) throw DataError(file, problem);
}

}  // namespace retinue

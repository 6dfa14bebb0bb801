// JPEG and PNG files, folders of them, and their transforms.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <map>
#include <string>
#include <vector>

#include "datasets/data_files.h"
#include "retinue/datasets/image_folder.h"
#include "retinue/datasets/npy.h"
#include "retinue/torch/data_loader.h"
#include "support/says.h"
#include "support/usage_error.h"

namespace retinue {
namespace {

using test::contents_of;
using test::data_error_of;
using test::golden;
using test::says;
using torch::data::samplers::SequentialSampler;

std::int64_t largest_difference(const at::Tensor& left, const at::Tensor& right) {
  if (left.sizes() != right.sizes()) return 256;
  return (left.to(torch::kLong) - right.to(torch::kLong)).abs().max().item<std::int64_t>();
}

class ImageFiles : public test::DataFiles {};

TEST_F(ImageFiles, HaveThePixelsThatPillowReads) {
  for (const char* name : {"rgb.png", "alpha.png", "grey.png", "palette.png", "bits.png", "deep.png", "rgb.jpg",
                           "full.jpg", "progressive.jpg", "grey.jpg"}) {
    std::string stem = name;
    stem[stem.find('.')] = '_';
    // Decoders of JPEG may round in different ways. The grey of a JPEG is its own, and not what its RGB gives.
    const bool is_jpeg = says(name, ".jpg");
    EXPECT_LE(largest_difference(read_image(golden(name)), read_npy(golden(stem + ".npy"))), is_jpeg ? 1 : 0) << name;
    EXPECT_LE(largest_difference(read_image(golden(name), 1), read_npy(golden(stem + "_grey.npy"))), is_jpeg ? 4 : 0)
        << name;
  }
}

TEST_F(ImageFiles, RefusesEachTruncationAndSurvivesEachDamage) {
  for (const char* name : {"rgb.png", "palette.png", "rgb.jpg", "progressive.jpg", "grey.jpg"}) {
    const std::string whole = contents_of(golden(name));
    const auto file = write("x", whole);
    for (std::size_t length = 0; length < whole.size(); ++length) {
      write("x", whole.substr(0, length));
      EXPECT_NE(data_error_of(file, [&] { read_image(file); }), "no DataError") << name << " " << length;
    }
    for (std::size_t at = 0; at < whole.size(); ++at)
      for (const char wrong : {'\0', '\xff', '\x7f'}) {
        std::string damaged = whole;
        damaged[at] = wrong;
        write("x", damaged);
        try {
          read_image(file);
        } catch (const DataError&) {
        }
      }
  }
}

TEST_F(ImageFiles, RefusesWhatIsNone) {
  const auto error_of = [&](const std::string& contents) {
    const auto file = write("x.png", contents);
    return data_error_of(file, [&] { read_image(file); });
  };
  EXPECT_TRUE(says(error_of(""), "is empty"));
  EXPECT_TRUE(says(error_of("GIF89a"), "is neither a JPEG nor a PNG file"));
  EXPECT_TRUE(says(error_of(contents_of(golden("cmyk.jpg"))), "CMYK"));
  EXPECT_TRUE(says(data_error_of(folder_ / "no.png", [&] { read_image(folder_ / "no.png"); }), "is missing"));
  std::string huge = contents_of(golden("grey.jpg"));
  const std::size_t frame = huge.find("\xff\xc0");
  for (std::size_t at = frame + 5; at < frame + 9; ++at) huge[at] = '\xfe';
  EXPECT_TRUE(says(error_of(huge), "claims to have 65278 x 65278 pixels"));
  EXPECT_THROW(read_image(golden("rgb.png"), 4), UsageError);
}

class ImageFolders : public test::DataFiles {
 protected:
  ImageFolders() {
    add("cats/b.png", "rgb.png");
    add("cats/a.JPG", "rgb.jpg");
    add("birds/deep/er/c.jpeg", "grey.jpg");
    add("birds/z.png", "grey.png");
    write("birds/notes.txt", "seen in May");
    write("readme", "not in a class");
  }
  void add(const std::string& name, const std::string& of) const { write(name, contents_of(golden(of))); }
};

TEST_F(ImageFolders, HaveAClassForEachFolder) {
  ImageFolder folder(folder_);
  EXPECT_EQ(folder.classes(), (std::vector<std::string>{"birds", "cats"}));
  std::vector<std::string> names;
  for (const auto& sample : folder.samples())
    names.push_back(fmt::format("{} {}", sample.target, sample.file.filename().string()));
  EXPECT_EQ(names, (std::vector<std::string>{"0 z.png", "0 c.jpeg", "1 a.JPG", "1 b.png"}));
  const auto item = folder.get(3);
  EXPECT_EQ(item.target.item<std::int64_t>(), 1);
  EXPECT_TRUE(torch::equal(item.data, read_npy(golden("rgb_png.npy")).to(torch::kFloat) / 255));

  const auto loader = make_data_loader<SequentialSampler>(
      ImageFolder(folder_, {.channels = 1, .transforms = {.mean = {0.5}, .std = {0.25}}}),
      {.batch_size = 4, .workers = 2});
  for (auto& batch : *loader) {
    EXPECT_TRUE(torch::equal(batch.target, torch::tensor({0, 0, 1, 1})));
    EXPECT_TRUE(
        torch::equal(batch.data[0], (read_npy(golden("grey_png_grey.npy")).to(torch::kFloat) / 255 - 0.5) / 0.25));
  }
}

TEST_F(ImageFolders, ResizeAsPillowDoes) {
  for (const auto& [name, size] :
       {std::pair{"rgb_png_resized.npy", ImageSize{8, 11}}, std::pair{"rgb_png_enlarged.npy", ImageSize{31, 40}}}) {
    ImageFolder folder(folder_, {.resize = size});
    const at::Tensor pixels = (folder.get(3).data * 255).round().to(torch::kByte);
    EXPECT_LE(largest_difference(pixels, read_npy(golden(name))), 1);
  }
  EXPECT_EQ(ImageFolder(folder_, {.resize_shorter_side = 26}).item_layout().data.sizes,
            (std::vector<std::int64_t>{3, 26, 34}));
  EXPECT_EQ(ImageFolder(folder_, {.resize_shorter_side = 26, .transforms = {.center_crop = ImageSize{20, 24}}})
                .item_layout()
                .data.sizes,
            (std::vector<std::int64_t>{3, 20, 24}));
}

TEST_F(ImageFolders, RefusesWhatTheyCannotStack) {
  std::string other = contents_of(golden("rgb_png.npy"));
  FILE* const python = popen(
      fmt::format("python3 - '{}' <<'END'\n"
                  "import struct, sys, zlib\n"
                  "def chunk(kind, data):\n"
                  "  return struct.pack('>I', len(data)) + kind + data + struct.pack('>I', zlib.crc32(kind + data))\n"
                  "open(sys.argv[1], 'wb').write(b'\\x89PNG\\r\\n\\x1a\\n' + "
                  "chunk(b'IHDR', struct.pack('>2I5B', 2, 3, 8, 2, 0, 0, 0)) + "
                  "chunk(b'IDAT', zlib.compress(3 * (b'\\0' + bytes(range(6))))) + chunk(b'IEND', b''))\n"
                  "END\n",
                  (folder_ / "cats/small.png").string())
          .c_str(),
      "we");
  ASSERT_EQ(pclose(python), 0);
  EXPECT_TRUE(torch::equal(read_image(folder_ / "cats/small.png").select(1, 2),
                           torch::tensor({{0, 3}, {1, 4}, {2, 5}}, torch::kByte)));
  ImageFolder folder(folder_);
  EXPECT_TRUE(says(data_error_of(folder_ / "cats/small.png", [&] { folder.get(4); }), "an image of 3 x 2 pixels"));
  ImageFolder cropped(folder_, {.transforms = {.random_crop = ImageSize{10, 10}}});
  EXPECT_TRUE(says(data_error_of(folder_ / "cats/small.png", [&] { cropped.get(4); }), "larger than an image"));
  EXPECT_EQ(ImageFolder(folder_, {.resize = ImageSize{4, 4}}).get(4).data.sizes(),
            (std::vector<std::int64_t>{3, 4, 4}));
}

TEST_F(ImageFolders, RefusesFoldersThatAreNone) {
  const auto error_of = [&](const std::filesystem::path& named, const std::filesystem::path& root) {
    return data_error_of(named, [&] { ImageFolder folder(root); });
  };
  EXPECT_TRUE(says(error_of(folder_ / "none", folder_ / "none"), "is missing"));
  EXPECT_TRUE(says(error_of(folder_ / "cats", folder_ / "cats"), "has no folders"));
  EXPECT_TRUE(says(test::usage_error_of([&] { ImageFolder(folder_, {.channels = 2}); }), "1 or 3 channels"));
  EXPECT_TRUE(says(test::usage_error_of([&] {
                     ImageFolder(folder_, {.resize = ImageSize{2, 2}, .resize_shorter_side = 3});
                   }),
                   "exclude each other"));
  add("dogs/x.webp", "rgb.png");
  EXPECT_TRUE(says(error_of(folder_ / "dogs/x.webp", folder_), "can't be read; convert it"));
  std::filesystem::remove(folder_ / "dogs/x.webp");
  EXPECT_TRUE(says(error_of(folder_ / "dogs", folder_), "has no images"));
}

}  // namespace
}  // namespace retinue

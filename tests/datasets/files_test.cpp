// IDX, npy and CSV.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <clocale>
#include <cstdio>
#include <string>
#include <vector>

#include "datasets/data_files.h"
#include "retinue/datasets/csv.h"
#include "retinue/datasets/idx.h"
#include "retinue/datasets/npy.h"
#include "support/says.h"

namespace retinue {
namespace {

using test::data_error_of;
using test::golden;
using test::says;

class IdxFiles : public test::DataFiles {
 protected:
  std::filesystem::path write_gzipped(const std::string& name, const std::string& contents) const {
    const std::filesystem::path file = folder_ / name;
    FILE* const gzip = popen(fmt::format("gzip -1 > '{}'", file.string()).c_str(), "we");
    EXPECT_EQ(std::fwrite(contents.data(), 1, contents.size(), gzip), contents.size());
    EXPECT_EQ(pclose(gzip), 0);
    return file;
  }
  /// What Python's struct makes of `format` and the numbers.
  static std::string packed(const std::string& format, const std::string& numbers) {
    FILE* const python =
        popen(fmt::format("python3 -c \"import struct, sys; sys.stdout.buffer.write(struct.pack('{}', {}))\"", format,
                          numbers)
                  .c_str(),
              "re");
    std::string bytes;
    for (int byte; (byte = std::fgetc(python)) != EOF;) bytes.push_back(static_cast<char>(byte));
    EXPECT_EQ(pclose(python), 0);
    return bytes;
  }
};

TEST_F(IdxFiles, AreReadInAllTypes) {
  const struct {
    const char* format;
    int code;
    at::ScalarType type;
  } cases[] = {{"6B", 0x08, at::kByte}, {"6b", 0x09, at::kChar},  {"6h", 0x0b, at::kShort},
               {"6i", 0x0c, at::kInt},  {"6f", 0x0d, at::kFloat}, {"6d", 0x0e, at::kDouble}};
  for (const auto& each : cases) {
    const std::string bytes =
        packed(fmt::format(">4B2I{}", each.format), fmt::format("0, 0, {}, 2, 2, 3, 1, 2, 3, 4, 5, 100", each.code));
    const at::Tensor wanted = torch::tensor({1, 2, 3, 4, 5, 100}).reshape({2, 3}).to(each.type);
    for (const auto& file : {write("plain", bytes), write_gzipped("x.gz", bytes)}) {
      const at::Tensor read = read_idx(file);
      EXPECT_EQ(read.scalar_type(), each.type);
      EXPECT_TRUE(torch::equal(read, wanted));
      EXPECT_TRUE(torch::equal(read_idx(file, {-1, 3}), wanted));
      EXPECT_TRUE(says(data_error_of(file, [&] { read_idx(file, {-1, 4}); }), "[2, 3]"));
      EXPECT_TRUE(says(data_error_of(file, [&] { read_idx(file, {-1}); }), "of other sizes"));
    }
  }
}

TEST_F(IdxFiles, RefusesEachTruncation) {
  const std::string bytes = packed(">4B2I6h", "0, 0, 0x0b, 2, 2, 3, 1, -2, 3, 4, 5, 100");
  const std::string gzipped = test::contents_of(write_gzipped("x.gz", bytes));
  for (const std::string& whole : {bytes, gzipped}) {
    const auto file = write("whole", whole);
    EXPECT_EQ(read_idx(file).numel(), 6);
    for (std::size_t length = 0; length < whole.size(); ++length) {
      write("whole", whole.substr(0, length));
      EXPECT_NE(data_error_of(file, [&] { read_idx(file); }), "no DataError") << length;
    }
  }
}

TEST_F(IdxFiles, RefusesWhatIsNone) {
  const auto error_of = [&](const std::string& contents) {
    const auto file = write("x", contents);
    return data_error_of(file, [&] { read_idx(file); });
  };
  EXPECT_TRUE(says(error_of("a letter to somebody"), "is not an IDX file"));
  EXPECT_TRUE(says(error_of(packed(">4BI", "0, 0, 8, 1, 4000000000")), "is truncated"));
  EXPECT_TRUE(says(error_of(packed(">4B3I", "0, 0, 8, 3, 4000000000, 4000000000, 4000000000")), "claims sizes"));
  EXPECT_TRUE(says(error_of(packed(">4B4I", "0, 0, 8, 4, 0, 4000000000, 4000000000, 4000000000")), "claims sizes"));
  EXPECT_TRUE(says(error_of(packed(">4BI3B", "0, 0, 8, 1, 2, 1, 2, 3")), "longer than its header says"));
  EXPECT_TRUE(says(data_error_of(folder_ / "none", [&] { read_idx(folder_ / "none"); }), "is missing"));
  EXPECT_TRUE(says(data_error_of(folder_, [&] { read_idx(folder_); }), "is not a file"));
  std::string damaged = test::contents_of(write_gzipped("x.gz", std::string(5000, 'x')));
  for (std::size_t i = damaged.size() / 2; i < damaged.size() - 1; ++i) damaged[i] = '\xff';
  EXPECT_NE(error_of(damaged), "no DataError");
}

TEST_F(IdxFiles, OfImagesAndLabelsBelongTogether) {
  write_gzipped("train-images-idx3-ubyte.gz", packed(">4B3I8B", "0, 0, 8, 3, 2, 2, 2, 1, 2, 3, 4, 5, 6, 7, 8"));
  write("train-labels-idx1-ubyte", packed(">4BI2B", "0, 0, 8, 1, 2, 9, 0"));
  const LabelledImages read = read_mnist(folder_, true);
  EXPECT_TRUE(torch::equal(read.images, torch::arange(1, 9, torch::kByte).reshape({2, 1, 2, 2})));
  EXPECT_TRUE(torch::equal(read.labels, torch::tensor({9, 0})));
  const auto labels = write("train-labels-idx1-ubyte", packed(">4BI2B", "0, 0, 8, 1, 2, 10, 0"));
  EXPECT_TRUE(says(data_error_of(labels, [&] { read_mnist(folder_, true); }), "has a class 10"));
  write("train-labels-idx1-ubyte", packed(">4BI3B", "0, 0, 8, 1, 3, 1, 2, 3"));
  EXPECT_TRUE(
      says(data_error_of(labels, [&] { read_mnist(folder_, true); }), "holds 3 labels, but there are 2 images"));
  EXPECT_THROW(read_mnist(folder_, false), DataError);
}

TEST_F(IdxFiles, AreFashionMnist) {
  const std::filesystem::path folder = "/usr/share/datasets/fashion-mnist";
  if (!std::filesystem::exists(folder)) GTEST_SKIP() << "the package dataset-fashion-mnist is not installed";
  const LabelledImages test = read_mnist(folder, false);
  EXPECT_EQ(test.images.sizes(), (std::vector<std::int64_t>{10000, 1, 28, 28}));
  EXPECT_TRUE(torch::equal(torch::bincount(test.labels), torch::full({10}, 1000)));
}

class NpyFiles : public test::DataFiles {};

TEST_F(NpyFiles, AreWhatNumPyWrote) {
  const at::Tensor counted = torch::arange(24).reshape({2, 3, 4});
  const std::pair<const char*, at::ScalarType> cases[] = {
      {"float32", at::kFloat},  {"int8", at::kChar},      {"int16", at::kShort},    {"int32", at::kInt},
      {"int64", at::kLong},     {"uint8", at::kByte},     {"uint16", at::kUInt16},  {"float16", at::kHalf},
      {"fortran", at::kDouble}, {"version2", at::kFloat}, {"version3", at::kFloat}, {"complex64", at::kComplexFloat}};
  for (const auto& [name, type] : cases) {
    const at::Tensor read = read_npy(golden(fmt::format("{}.npy", name)));
    EXPECT_EQ(read.scalar_type(), type) << name;
    EXPECT_TRUE(torch::equal(read, counted.to(type))) << name;
  }
  EXPECT_EQ(read_npy(golden("fortran.npy")).strides(), (std::vector<std::int64_t>{1, 2, 6}));
  EXPECT_TRUE(torch::equal(read_npy(golden("bool.npy")), counted.remainder(3) == 0));
  EXPECT_EQ(read_npy(golden("scalar.npy")).item<float>(), 2.5f);
  EXPECT_EQ(read_npy(golden("empty.npy")).sizes(), (std::vector<std::int64_t>{0, 3}));
}

TEST_F(NpyFiles, KeepWhatAProgramWritesToItself) {
  const std::string before = test::contents_of(golden("float32.npy"));
  const auto file = write("x.npy", before);
  read_npy(file).zero_();
  EXPECT_EQ(test::contents_of(file), before);
}

TEST_F(NpyFiles, RefusesEachTruncationAndSurvivesEachDamage) {
  for (const char* name : {"float32.npy", "fortran.npy", "version2.npy", "scalar.npy"}) {
    const std::string whole = test::contents_of(golden(name));
    const auto file = write("x.npy", whole);
    for (std::size_t length = 0; length < whole.size(); ++length) {
      write("x.npy", whole.substr(0, length));
      EXPECT_NE(data_error_of(file, [&] { read_npy(file); }), "no DataError") << name << " " << length;
    }
    write("x.npy", whole + "x");
    EXPECT_TRUE(says(data_error_of(file, [&] { read_npy(file); }), "longer than its header says"));
    for (std::size_t at = 0; at < 128; ++at)
      for (const char wrong : {'\0', '9', '\xff', '(', '\''}) {
        std::string damaged = whole;
        damaged[at] = wrong;
        write("x.npy", damaged);
        try {
          read_npy(file).clone();
        } catch (const DataError&) {
        }
      }
  }
}

TEST_F(NpyFiles, RefusesWhatATensorCannotHave) {
  EXPECT_TRUE(says(data_error_of(golden("big_endian.npy"), [] { read_npy(golden("big_endian.npy")); }), "'>f4'"));
  EXPECT_TRUE(says(data_error_of(golden("text.npy"), [] { read_npy(golden("text.npy")); }), "'<U2'"));
  const auto foreign = write("x.npy", "PK\x03\x04 an npz file");
  EXPECT_TRUE(says(data_error_of(foreign, [&] { read_npy(foreign); }), "is not an npy file"));
  for (const char* sizes : {"(9223372036854775807, 9)", "(0, 9223372036854775807, 9)"}) {
    const std::string shape = fmt::format("{{'descr': '<f4', 'fortran_order': False, 'shape': {}, }}", sizes);
    const auto huge = write("y.npy", std::string("\x93NUMPY\1\0", 8) + static_cast<char>(shape.size()) + '\0' + shape);
    EXPECT_TRUE(says(data_error_of(huge, [&] { read_npy(huge); }), "claims sizes")) << sizes;
  }
}

class CsvFiles : public test::DataFiles {
 protected:
  std::string error_of(const std::string& contents, const CsvOptions& options = {}) const {
    const auto file = write("x.csv", contents);
    return data_error_of(file, [&] { read_csv(file, options); });
  }
};

TEST_F(CsvFiles, AreRowsOfNumbers) {
  const auto file = write("x.csv", "a,\"b, c\", d\r\n1,2.5,-3\r\n\r\n 4 ,\"5e-1\",+6\n");
  const CsvTable table = read_csv(file);
  EXPECT_EQ(table.columns, (std::vector<std::string>{"a", "b, c", "d"}));
  EXPECT_TRUE(torch::equal(table.values, torch::tensor({{1.0f, 2.5f, -3.0f}, {4.0f, 0.5f, 6.0f}})));
  EXPECT_TRUE(torch::equal(table.column("d"), torch::tensor({-3.0f, 6.0f})));
  EXPECT_THROW(table.column("e"), UsageError);
  const CsvTable numbers = read_csv(write("y.csv",
                                          "\xef\xbb\xbf"
                                          "1;9007199254740993\n-3;4"),
                                    {.delimiter = ';', .header = false, .type = at::kLong});
  EXPECT_TRUE(torch::equal(numbers.values, torch::tensor({{1L, 9007199254740993L}, {-3L, 4L}})));
  EXPECT_TRUE(
      read_csv(write("z.csv", "nan,inf\n"), {.header = false, .type = at::kDouble}).values.isnan()[0][0].item<bool>());
  EXPECT_EQ(read_csv(write("w.csv", "a,b\n")).values.sizes(), (std::vector<std::int64_t>{0, 2}));
}

TEST_F(CsvFiles, HaveTheNearestOfNumbersThatAreTooSmall) {
  const auto file = write("x.csv", "1e-50\n-1e-400\n1e-42\n1e-310\n");
  EXPECT_TRUE(
      torch::equal(read_csv(file, {.header = false}).values, torch::tensor({{0.0f}, {-0.0f}, {1e-42f}, {0.0f}})));
  EXPECT_TRUE(torch::equal(read_csv(file, {.header = false, .type = at::kDouble}).values,
                           torch::tensor({{1e-50}, {-0.0}, {1e-42}, {1e-310}}, at::kDouble)));
}

TEST_F(CsvFiles, MayHaveTheLineEndsOfAnySystem) {
  for (const char* text : {"a,b\n1,2\n\n3,4\n", "a,b\r\n1,2\r\n\r\n3,4\r\n", "a,b\r1,2\r\r3,4"}) {
    const CsvTable table = read_csv(write("x.csv", text));
    EXPECT_EQ(table.columns, (std::vector<std::string>{"a", "b"}));
    EXPECT_TRUE(torch::equal(table.values, torch::tensor({{1.0f, 2.0f}, {3.0f, 4.0f}})));
  }
  EXPECT_TRUE(says(error_of("a\r\n1\r\n\r\nx\r\n"), "has 'x' in line 4"));
}

TEST_F(CsvFiles, HaveADecimalPointInEveryLocale) {
  for (const char* locale : {"de_DE.UTF-8", "C.UTF-8"}) std::setlocale(LC_ALL, locale);
  EXPECT_EQ(read_csv(write("x.csv", "1.5\n"), {.header = false}).values.item<float>(), 1.5f);
  EXPECT_TRUE(says(error_of("1,5;2\n", {.delimiter = ';', .header = false}), "'1,5'"));
  std::setlocale(LC_ALL, "C");
}

TEST_F(CsvFiles, RefusesWhatIsNoNumber) {
  EXPECT_TRUE(says(error_of("a,b\n1,2\n3,x\n"), "has 'x' in line 3, column 2"));
  EXPECT_TRUE(says(error_of("a,b\n1,\n"), "has '' in line 2, column 2"));
  EXPECT_TRUE(says(error_of("a,b\n1,2\n3\n"), "has 1 fields in line 3, and 2 before"));
  EXPECT_TRUE(says(error_of("a\n1.5\n", {.type = at::kLong}), "'1.5'"));
  EXPECT_TRUE(says(error_of("a\n99999999999999999999\n", {.type = at::kLong}),
                   "in line 2, column 1, which is out of the range of Long"));
  EXPECT_TRUE(says(error_of("a\n1e50\n"), "which is out of the range of Float"));
  EXPECT_TRUE(says(error_of(std::string("a\n1\0\n", 5)), "has '1?' in line 2, column 1"));
  EXPECT_TRUE(says(error_of("a\n1 2\n"), "'1 2'"));
  EXPECT_TRUE(says(error_of("a\n+-1\n"), "'+-1'"));
  EXPECT_TRUE(says(error_of(""), "is empty"));
  EXPECT_THROW(read_csv(write("x.csv", "1\n"), {.header = false, .type = at::kInt}), UsageError);
}

}  // namespace
}  // namespace retinue

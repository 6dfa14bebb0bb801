#include "retinue/datasets/csv.h"

#include <ATen/ops/empty.h>
#include <c10/util/StringUtil.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <string>
#include <type_traits>

#include "datasets/data_file.h"

namespace retinue {
namespace {

std::string_view trimmed(std::string_view text) {
  const auto is_space = [](char each) { return each == ' ' || each == '\t'; };
  while (!text.empty() && is_space(text.front())) text.remove_prefix(1);
  while (!text.empty() && is_space(text.back())) text.remove_suffix(1);
  if (text.size() >= 2 && text.front() == '"' && text.back() == '"') text = text.substr(1, text.size() - 2);
  return text;
}

/// Calls `take` with each of a line's fields. Quotation marks may surround a field, but hold no delimiter for numbers.
template <class Take>
std::size_t split_line(std::string_view line, char delimiter, Take take) {
  std::size_t count = 0;
  for (;;) {
    const bool is_quoted = !line.empty() && line.front() == '"';
    const std::size_t closing = is_quoted ? line.find('"', 1) : std::string_view::npos;
    const std::size_t end = line.find(delimiter, closing == std::string_view::npos ? 0 : closing);
    take(count++, trimmed(line.substr(0, end)));
    if (end == std::string_view::npos) return count;
    line.remove_prefix(end + 1);
  }
}

/// Returns what is wrong with the text; empty: nothing.
template <class Number>
std::string parse_number(std::string_view text, Number& number) {
  if (text.size() > 1 && text.front() == '+' && text[1] != '-') text.remove_prefix(1);
  const char* const end = text.data() + text.size();
  const auto [stop, problem] = std::from_chars(text.data(), end, number);
  if (stop != end || problem == std::errc::invalid_argument)
    return std::is_integral_v<Number> ? "where a whole number must be" : "where a number must be";
  if (problem == std::errc()) return "";
  if constexpr (!std::is_integral_v<Number>) {
    long double wide = 0;  // A number that is too small is the nearest that there is, as in Python.
    if (std::from_chars(text.data(), end, wide).ec == std::errc() && std::fabs(wide) < 1) {
      number = static_cast<Number>(wide);
      return "";
    }
  }
  return c10::str("which is out of the range of ", c10::CppTypeToScalarType<Number>::value);
}

/// The begin of a field, for a message.
std::string shown(std::string_view field) {
  std::string text(field.substr(0, 40));
  std::replace_if(
      text.begin(), text.end(), [](char each) { return static_cast<unsigned char>(each) < ' '; }, '?');
  return text;
}

class CsvReader {
 public:
  CsvReader(const std::filesystem::path& file, const CsvOptions& options) : file_(file), options_(options) {
    read_whole_file(file, bytes_);
    rest_ = {reinterpret_cast<const char*>(bytes_.data()), bytes_.size()};
    constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";
    if (rest_.starts_with(kByteOrderMark)) rest_.remove_prefix(kByteOrderMark.size());
  }

  template <class Number>
  CsvTable read() {
    CsvTable table;
    std::string_view line;
    if (options_.header) {
      if (!next_line(line)) throw DataError(file_, "is empty: it has no line with the columns' names");
      columns_ = split_line(line, options_.delimiter,
                            [&](std::size_t, std::string_view name) { table.columns.emplace_back(name); });
    }
    std::vector<Number> values;
    std::int64_t rows = 0;
    for (; next_line(line); ++rows) read_row(line, values);
    table.values = at::empty({rows, static_cast<std::int64_t>(columns_)}, c10::CppTypeToScalarType<Number>::value);
    std::copy(values.begin(), values.end(), table.values.mutable_data_ptr<Number>());
    return table;
  }

 private:
  /// The next line that isn't empty; false at the end.
  bool next_line(std::string_view& line) {
    while (!rest_.empty()) {
      const std::size_t end = std::min(rest_.find_first_of("\r\n"), rest_.size());
      line = rest_.substr(0, end);
      rest_.remove_prefix(end);
      rest_.remove_prefix(rest_.starts_with("\r\n") ? 2 : std::min<std::size_t>(rest_.size(), 1));
      ++number_;
      if (!trimmed(line).empty()) return true;
    }
    return false;
  }

  template <class Number>
  void read_row(std::string_view line, std::vector<Number>& values) {
    const std::size_t found = split_line(line, options_.delimiter, [&](std::size_t column, std::string_view field) {
      const std::string problem = parse_number(field, values.emplace_back());
      if (!problem.empty())
        throw DataError(file_,
                        c10::str("has '", shown(field), "' in line ", number_, ", column ", column + 1, ", ", problem));
    });
    if (columns_ == 0) columns_ = found;
    if (found != columns_)
      throw DataError(file_, c10::str("has ", found, " fields in line ", number_, ", and ", columns_, " before"));
  }

  const std::filesystem::path& file_;
  const CsvOptions& options_;
  std::vector<std::uint8_t> bytes_;
  std::string_view rest_;
  std::size_t number_ = 0;   ///< Of the last line.
  std::size_t columns_ = 0;  ///< Known from the first line.
};

}  // namespace

at::Tensor CsvTable::column(std::string_view name) const {
  const auto found = std::find(columns.begin(), columns.end(), name);
  if (found == columns.end()) throw UsageError(c10::str("CsvTable: there is no column '", name, "'"));
  return values.select(1, found - columns.begin());
}

CsvTable read_csv(const std::filesystem::path& file, const CsvOptions& options) {
  CsvReader reader(file, options);
  switch (options.type) {
    case at::kFloat:
      return reader.read<float>();
    case at::kDouble:
      return reader.read<double>();
    case at::kLong:
      return reader.read<std::int64_t>();
    default:
      throw UsageError(c10::str("read_csv: values are of type kFloat, kDouble or kLong, not ", options.type));
  }
}

}  // namespace retinue

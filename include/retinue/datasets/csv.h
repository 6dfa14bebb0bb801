#pragma once

#include <ATen/core/Tensor.h>

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "retinue/datasets/data_error.h"

namespace retinue {

struct CsvOptions {
  char delimiter = ',';
  bool header = true;                ///< The first line has the columns' names.
  at::ScalarType type = at::kFloat;  ///< Of the values: kFloat, kDouble or kLong.
};

struct CsvTable {
  std::vector<std::string> columns = {};  ///< Their names; empty without a header.
  at::Tensor values = {};                 ///< [rows, columns]

  /// Returns a column's values, a view. Errors: UsageError for a name that isn't there.
  at::Tensor column(std::string_view name) const;
};

/// Reads a file of numbers. Numbers have a decimal point in every locale; nan and inf are numbers. Spaces around them
/// and quotation marks are allowed, empty lines are left out. Lines end with LF, CRLF or CR. Errors: DataError, which
/// names the line and the column, for anything that is no number, a number out of the range of `type`, and lines of
/// different lengths.
CsvTable read_csv(const std::filesystem::path& file, const CsvOptions& options = {});

}  // namespace retinue

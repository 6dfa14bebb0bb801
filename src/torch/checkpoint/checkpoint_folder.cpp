#include "torch/checkpoint/checkpoint_folder.h"

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>

#include "retinue/base/error.h"

namespace retinue {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kBegin = "step-";
constexpr std::string_view kEnd = ".pt";
constexpr std::string_view kUnfinishedEnd = ".pt.unfinished";

std::string file_name(std::int64_t step, std::string_view end) {
  char digits[24];
  std::snprintf(digits, sizeof digits, "%09lld", static_cast<long long>(step));
  return std::string(kBegin) + digits + std::string(end);
}

std::optional<std::int64_t> step_of(const std::string& name, std::string_view end) {
  if (!name.starts_with(kBegin)) return {};
  std::int64_t step = 0;
  std::from_chars(name.data() + kBegin.size(), name.data() + name.size(), step);
  if (name != file_name(step, end)) return {};
  return step;
}

void throw_if(const std::error_code& error, const char* what, const fs::path& path) {
  if (error) throw SystemError(std::string("cannot ") + what + " " + path.string(), error.value());
}

/// Of files whose names end so.
std::vector<std::int64_t> steps_in(const fs::path& folder, std::string_view end) {
  std::vector<std::int64_t> steps;
  std::error_code error;
  for (fs::directory_iterator entry(folder, error); !error && entry != fs::directory_iterator(); entry.increment(error))
    if (const auto step = step_of(entry->path().filename().native(), end)) steps.push_back(*step);
  throw_if(error, "list", folder);
  std::ranges::sort(steps);
  return steps;
}

void remove_file(const fs::path& path) {
  std::error_code error;
  fs::remove(path, error);
  throw_if(error, "remove", path);
}

}  // namespace

void CheckpointFolder::create() const {
  std::error_code error;
  fs::create_directories(path_, error);
  throw_if(error, "create the folder", path_);
}

fs::path CheckpointFolder::file_of(std::int64_t step) const {
  return path_ / file_name(step, kEnd);
}

fs::path CheckpointFolder::unfinished_file_of(std::int64_t step) const {
  return path_ / file_name(step, kUnfinishedEnd);
}

std::vector<std::int64_t> CheckpointFolder::steps() const {
  return steps_in(path_, kEnd);
}

void CheckpointFolder::remove_unfinished() const {
  for (const std::int64_t step : steps_in(path_, kUnfinishedEnd)) remove_file(unfinished_file_of(step));
}

void CheckpointFolder::remove_old(std::size_t keep, std::int64_t saved) const {
  if (keep == 0) return;
  std::vector<std::int64_t> old = steps();
  old.resize(old.size() - std::min(keep, old.size()));
  for (const std::int64_t step : old)
    if (step != saved) remove_file(file_of(step));
}

}  // namespace retinue

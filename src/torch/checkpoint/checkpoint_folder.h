#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <vector>

namespace retinue {

/// The folder of a Checkpoint. Errors: SystemError.
class CheckpointFolder {
 public:
  explicit CheckpointFolder(std::filesystem::path path) : path_(std::move(path)) {}

  const std::filesystem::path& path() const { return path_; }
  void create() const;
  std::filesystem::path file_of(std::int64_t step) const;
  /// Where it is while it is written.
  std::filesystem::path unfinished_file_of(std::int64_t step) const;
  /// In ascending order.
  std::vector<std::int64_t> steps() const;

  /// Removes what saves have left that were interrupted.
  void remove_unfinished() const;
  /// Removes all but the `keep` highest steps, and `saved`. 0: none.
  void remove_old(std::size_t keep, std::int64_t saved) const;

 private:
  std::filesystem::path path_;
};

}  // namespace retinue

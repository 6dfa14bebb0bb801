#pragma once

#include <cereal/types/string.hpp>
#include <cereal/types/vector.hpp>
#include <cstdint>
#include <string>
#include <vector>

namespace retinue {

/// The two output streams of a rank, as bits of a mask: as Std in launch.
constexpr std::uint32_t kStdoutBit = 1;
constexpr std::uint32_t kStderrBit = 2;

/// Where one rank's streams go. A stream that is in no mask stays the caller's.
struct RankLogs {
  std::uint32_t files = 0;      ///< To the rank's own file.
  std::uint32_t shown = 0;      ///< Of these, to the console too.
  std::uint32_t discarded = 0;  ///< To nowhere.
  std::string prefix;           ///< Heads each line that is shown.

  template <class Archive>
  void serialize(Archive& archive) {
    archive(files, shown, discarded, prefix);
  }
};

/// What becomes of the output of a context's ranks: the log part of a start request.
struct LogRequest {
  std::string name;                  ///< Of the ranks, for messages.
  std::string directory;             ///< Absolute; holds a directory for each local rank. Empty: there are no files.
  bool is_temporary = false;         ///< Made for this context: removed when no rank failed.
  std::uint32_t coloured = 0;        ///< Streams whose console shows prefixes in colours.
  std::vector<std::string> filters;  ///< Only lines with one of these are shown; empty: all.
  /// Of the shown streams' lines, those with one of these are copied to a file for all ranks; empty: none is.
  std::vector<std::string> stdout_copy_filters;
  std::vector<std::string> stderr_copy_filters;
  std::vector<RankLogs> ranks;  ///< By local rank; empty: all streams stay the caller's.
  std::string
      trace_directory;  ///< Absolute; for the last calls of ranks that failed, see failure_trace.h. Empty: none.

  template <class Archive>
  void serialize(Archive& archive) {
    archive(name, directory, is_temporary, coloured, filters, stdout_copy_filters, stderr_copy_filters, ranks,
            trace_directory);
  }

  /// Whether any stream is shown line by line.
  bool shows_any() const;
  std::string rank_directory(int local_rank) const;
  /// Path of the rank's error file, which its environment names.
  std::string error_file_of(int local_rank) const { return rank_directory(local_rank) + "/error.json"; }
  const std::vector<std::string>& copy_filters(std::uint32_t bit) const {
    return bit == kStdoutBit ? stdout_copy_filters : stderr_copy_filters;
  }
  /// Path of the file that copies of stream `bit`'s lines go to; empty if there is none.
  std::string copy_file_of(std::uint32_t bit) const;
  /// Path of the file of stream `bit`; empty if it has none.
  std::string file_of(int local_rank, std::uint32_t bit) const;
};

/// In a rank, before its first line: gives its streams the places that `logs` says. Errors: SystemError, which names
/// the file.
void direct_streams(const LogRequest& logs, int local_rank);

}  // namespace retinue

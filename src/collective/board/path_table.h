#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace retinue {

/// Where collectives change their path. Units: bytes, but for `one_level`. The members of a group have the same.
struct PathTable {
  /// What a member gives out of job memory is staged up to this: beyond it the direct path's second hop costs less than
  /// staging's copy.
  std::uint64_t staged_in_job = std::uint64_t{8} << 10;
  /// The same where only the root gives or takes, and only givers wait for the second hop.
  std::uint64_t staged_in_job_one_way = std::uint64_t{8} << 10;
  /// The same as the first out of private memory, of which more goes through chunks.
  std::uint64_t staged = std::uint64_t{64} << 10;
  /// The same where only the root gives or takes: through chunks, both ends copy side by side.
  std::uint64_t staged_one_way = std::uint64_t{16} << 10;
  /// Of a staged reduction each taker reads all givers' data: bounds what all give together.
  std::uint64_t staged_reads = std::uint64_t{128} << 10;
  /// Copied into staging, or a chunk, by plain stores, which leave lines in a cache; more at a time goes past it.
  std::uint64_t stored_plainly = std::uint64_t{128} << 10;

  /// Of the pieces that data go through chunks in: an eighth of what a member gives, where that is more.
  std::uint64_t smallest_chunk = std::uint64_t{16} << 10;

  /// A message up to this, and up to a quarter of a channel's space, goes through this space and needs nobody's help;
  /// what is more is announced first.
  std::uint64_t sent_at_once = std::uint64_t{16} << 10;

  /// Lines of up to so many members travel from each to each, also where they don't share a cache; of more by a Relay.
  std::uint64_t one_level = 8;

  friend bool operator==(const PathTable&, const PathTable&) = default;
};

/// Where a job's table comes from.
enum class TableSource : std::uint32_t {
  kNone = 0,
  kBuiltIn,
  kEnvironment,  ///< RETINUE_PATH_TABLE
  kCache,        ///< Measured by an earlier job.
  kToMeasure,    ///< Built in; the group that finds this measures.
  kMeasured,
};

std::string_view name_of(TableSource source);

/// As "staged_in_job=8192,staged=65536,staged_one_way=16384,...".
std::string text_of(const PathTable& table);
/// The built-in table with what the text changes. Errors: UsageError, which begins with `whence`.
PathTable parse_path_table(std::string_view text, std::string_view whence);

struct ChosenTable {
  PathTable table;
  TableSource source = TableSource::kBuiltIn;
};

/// What a job begins with: RETINUE_PATH_TABLE, else what was measured on this kind of machine before, else the built-in
/// table, to be measured where the result can be kept. Errors: UsageError for a wrong RETINUE_PATH_TABLE.
ChosenTable first_path_table();

/// For more members than CPUs, each of whose hops takes a turn of the scheduler.
PathTable paths_of_a_crowd(const PathTable& table);

/// Where the measured table of this kind of machine is kept for later jobs: in $XDG_CACHE_HOME/retinue or
/// ~/.cache/retinue; nullopt without either.
std::optional<std::string> path_table_file();
/// Doesn't throw: a table that can't be kept is measured again.
void keep_path_table(const PathTable& table) noexcept;

/// How long the same takes on both sides of a border. Units: microseconds.
struct BorderSample {
  std::uint64_t bytes;
  double below_us;  ///< As if the border were higher.
  double above_us;
};

/// The border that samples, in increasing order of sizes, speak for: up to `built_in`, the way below it is taken unless
/// the other is clearly faster; beyond it the other way round.
std::uint64_t border_of(std::span<const BorderSample> samples, std::uint64_t built_in);

}  // namespace retinue

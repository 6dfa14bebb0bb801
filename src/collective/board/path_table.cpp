#include "collective/board/path_table.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <filesystem>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

#include "base/parse_number.h"
#include "base/split.h"
#include "collective/board/board.h"
#include "ipc/memory/job_layout.h"
#include "os/files/environment.h"
#include "os/files/file_descriptor.h"
#include "os/files/kernel_files.h"
#include "retinue/base/error.h"

namespace retinue {
namespace {

namespace fs = std::filesystem;

/// Changed with what the figures mean, so that no job takes another version's.
constexpr int kTableVersion = 5;

struct Field {
  std::string_view name;
  std::uint64_t PathTable::*value;
  std::uint64_t limit;
};

constexpr std::uint64_t kNoLimit = std::uint64_t{1} << 40;
constexpr std::uint64_t kMostMembers = kMaxProcesses;
constexpr Field kFields[] = {
    {"staged_in_job", &PathTable::staged_in_job, kStageBytes},
    {"staged_in_job_one_way", &PathTable::staged_in_job_one_way, kStageBytes},
    {"staged", &PathTable::staged, kStageBytes},
    {"staged_one_way", &PathTable::staged_one_way, kStageBytes},
    {"staged_reads", &PathTable::staged_reads, kNoLimit},
    {"stored_plainly", &PathTable::stored_plainly, kNoLimit},
    {"smallest_chunk", &PathTable::smallest_chunk, kChunkBytes},
    {"sent_at_once", &PathTable::sent_at_once, kNoLimit},
    {"one_level", &PathTable::one_level, kMostMembers},
};

std::string known_fields() {
  std::string text;
  for (const Field& field : kFields) text += fmt::format("{}{}=N", text.empty() ? "" : ", ", field.name);
  return text;
}

const Field* field_of(std::string_view name) {
  for (const Field& field : kFields)
    if (field.name == name) return &field;
  return nullptr;
}

/// What tells kinds of machines apart for which other borders hold, as far as a moment's look can tell.
std::string machine_kind() {
#if defined(__x86_64__)
  unsigned signature = 0;
  unsigned ebx = 0;
  unsigned ecx = 0;
  unsigned edx = 0;
  __get_cpuid(1, &signature, &ebx, &ecx, &edx);
  const std::string cpu = fmt::format("{:08x}", signature);
#else
  const std::string cpu =
      first_line_of("/sys/devices/system/cpu/cpu0/regs/identification/midr_el1").value_or("unknown");
#endif
  return fmt::format("{}-{}cpus", cpu, sysconf(_SC_NPROCESSORS_CONF));
}

}  // namespace

std::string_view name_of(TableSource source) {
  switch (source) {
    case TableSource::kNone:
      return "none";
    case TableSource::kBuiltIn:
    case TableSource::kToMeasure:
      return "built in";
    case TableSource::kEnvironment:
      return "RETINUE_PATH_TABLE";
    case TableSource::kCache:
      return "measured by an earlier job";
    case TableSource::kMeasured:
      return "measured";
  }
  return "unknown";
}

std::string text_of(const PathTable& table) {
  std::string text;
  for (const Field& field : kFields)
    text += fmt::format("{}{}={}", text.empty() ? "" : ",", field.name, table.*field.value);
  return text;
}

PathTable paths_of_a_crowd(const PathTable& table) {
  PathTable result = table;
  result.staged_in_job_one_way = table.staged;
  result.staged_one_way = table.staged;
  result.smallest_chunk = kChunkBytes;
  result.sent_at_once = std::max(table.sent_at_once, table.staged);
  result.one_level = kMostMembers;
  return result;
}

PathTable parse_path_table(std::string_view text, std::string_view whence) {
  PathTable table;
  for (const std::string_view item : split(text, ',')) {
    const auto equals = item.find('=');
    const Field* field = field_of(item.substr(0, equals));
    if (equals == std::string_view::npos || field == nullptr)
      throw UsageError(fmt::format("{}: \"{}\" is not one of {}", whence, item, known_fields()));
    const std::string_view number = item.substr(equals + 1);
    const std::optional<std::uint64_t> value = parse_number<std::uint64_t>(number);
    if (!value || *value > field->limit)
      throw UsageError(
          fmt::format("{}: {} must be a number up to {}, not \"{}\"", whence, field->name, field->limit, number));
    table.*field->value = *value;
  }
  return table;
}

std::optional<std::string> path_table_file() {
  std::string folder = find_variable("XDG_CACHE_HOME").value_or("");
  if (!folder.starts_with('/')) {
    folder = find_variable("HOME").value_or("");
    if (!folder.starts_with('/')) return std::nullopt;
    folder += "/.cache";
  }
  return fmt::format("{}/retinue/paths-{}-{}", folder, kTableVersion, machine_kind());
}

ChosenTable first_path_table() {
  if (const auto wanted = find_variable("RETINUE_PATH_TABLE"))
    return {parse_path_table(*wanted == "default" ? "" : *wanted, "RETINUE_PATH_TABLE"), TableSource::kEnvironment};
  const auto file = path_table_file();
  if (!file) return {};
  if (const auto line = first_line_of(*file)) {
    try {
      return {parse_path_table(*line, *file), TableSource::kCache};
    } catch (const UsageError&) {
      // Somebody else's, or torn: measured anew.
    }
  }
  std::error_code error;
  const std::string home = find_variable("HOME").value_or("");
  if (!file->starts_with(home + "/") || fs::exists(home, error))  // A home that isn't there is not for us to make.
    fs::create_directories(fs::path(*file).parent_path(), error);
  const bool can_be_kept = access(fs::path(*file).parent_path().c_str(), W_OK) == 0;
  return {{}, can_be_kept ? TableSource::kToMeasure : TableSource::kBuiltIn};
}

void keep_path_table(const PathTable& table) noexcept {
  try {
    const auto file = path_table_file();
    if (!file) return;
    std::string draft = *file + ".XXXXXX";
    const FileDescriptor out(mkostemp(draft.data(), O_CLOEXEC));
    if (out.get() < 0) return;
    const std::string line = text_of(table) + "\n";
    const bool written = write(out.get(), line.data(), line.size()) == static_cast<ssize_t>(line.size());
    // Whole or not at all: jobs that start meanwhile read it.
    if (!written || rename(draft.c_str(), file->c_str()) != 0) unlink(draft.c_str());
  } catch (const std::exception&) {
    // Of memory.
  }
}

std::uint64_t border_of(std::span<const BorderSample> samples, std::uint64_t built_in) {
  constexpr double kClearly = 1.2;
  std::uint64_t border = 0;
  for (const auto& [bytes, below_us, above_us] : samples) {
    const bool is_below = bytes <= built_in ? below_us <= kClearly * above_us : kClearly * below_us <= above_us;
    if (!is_below) break;
    border = bytes;
  }
  if (border == 0) return samples.empty() ? built_in : samples.front().bytes / 2;
  return border == samples.back().bytes ? std::max(border, built_in) : border;
}

}  // namespace retinue

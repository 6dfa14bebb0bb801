#pragma once

#include <cstdint>
#include <string>

#include "process/trace/merged_calls.h"

namespace retinue {

/// Name of the file with chrome_trace(); beside it stand "rank_<rank>", as flight_dumps() gives them.
constexpr const char* kTraceFile = "trace.json";

/// Writes a file anew: whole, or not at all, by way of `part` in the same folder, which only a killed writer leaves.
/// Errors: SystemError.
void write_whole_file(const std::string& path, const std::string& text, const std::string& part);
/// The same by `path`.part.
void write_whole_file(const std::string& path, const std::string& text);

/// Makes a folder, with those above it, where there is none. Errors: SystemError.
void make_folder(const std::string& path);

/// Writes a context's calls into a folder, which is made: trace.json and the dump of each rank. Each file is whole or
/// not there. Errors: SystemError.
void write_trace_folder(const std::string& folder, const MergedCalls& calls, std::uint32_t context);
/// The dumps alone.
void write_flight_dumps(const std::string& folder, const MergedCalls& calls, std::uint32_t context);

}  // namespace retinue

#pragma once

#include <string>
#include <vector>

#include "bench.h"

namespace retinue::bench {

/// The machine and the commit that figures belong to, as a line of text.
std::string machine_line();

std::string table(const std::vector<Row>& rows);

/// Writes the rows as a JSON array. Errors: std::runtime_error.
void write_json(const std::vector<Row>& rows, const std::string& path);

}  // namespace retinue::bench

#pragma once

#include <cstddef>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace retinue {

/// So many points of a curve are shown; of more, the smallest and the largest value of each part.
constexpr std::size_t kMostPoints = 1000;
constexpr std::size_t kMostCurves = 100;

/// The scalars in files of JSON lines, as a SummaryWriter writes them, as a report shows them: a list of objects with
/// the names "tag", "steps" and "values", by tag. Values that aren't finite are null. What is no such line is left out,
/// and so is what a resumed run purged. Of a large file only the end is read. A file that can't be read has none.
nlohmann::json scalar_curves(const std::vector<std::string>& files);

}  // namespace retinue

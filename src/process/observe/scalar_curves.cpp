#include "process/observe/scalar_curves.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <limits>
#include <map>
#include <system_error>
#include <utility>

namespace retinue {
namespace {

/// Which are read in a second.
constexpr std::streamoff kMostScalarBytes = 32 << 20;

using Curve = std::map<std::int64_t, double>;  // By step.
using Curves = std::map<std::string, Curve>;

void purge(Curves& curves, std::int64_t step) {
  for (auto& [tag, curve] : curves) curve.erase(curve.lower_bound(step), curve.end());
}

void add_line(Curves& curves, const nlohmann::json& line) {
  if (!line.is_object()) return;
  if (const auto purged = line.find("purge_step"); purged != line.end() && purged->is_number_integer())
    return purge(curves, purged->get<std::int64_t>());
  const auto step = line.find("step");
  const auto scalars = line.find("scalars");
  if (step == line.end() || !step->is_number_integer() || scalars == line.end() || !scalars->is_object()) return;
  for (const auto& [tag, value] : scalars->items()) {
    if (curves.size() >= kMostCurves && !curves.contains(tag)) continue;
    curves[tag][step->get<std::int64_t>()] =
        value.is_number() ? value.get<double>() : std::numeric_limits<double>::quiet_NaN();
  }
}

void add_file(Curves& curves, const std::string& file) {
  std::error_code ignored;
  if (!std::filesystem::is_regular_file(file, ignored)) return;
  std::ifstream stream(file, std::ios::binary | std::ios::ate);
  const std::streamoff bytes = stream.tellg();
  std::string line;
  stream.seekg(std::max<std::streamoff>(0, bytes - kMostScalarBytes));
  if (bytes > kMostScalarBytes) std::getline(stream, line);
  while (std::getline(stream, line)) add_line(curves, nlohmann::json::parse(line, nullptr, false));
}

/// The points, or of each of as many parts the smallest and the largest.
std::vector<std::pair<std::int64_t, double>> thinned(const Curve& curve) {
  std::vector<std::pair<std::int64_t, double>> points(curve.begin(), curve.end());
  if (points.size() <= kMostPoints) return points;
  std::vector<std::pair<std::int64_t, double>> some;
  constexpr std::size_t kParts = kMostPoints / 2;
  for (std::size_t part = 0; part < kParts; ++part) {
    const auto from = points.begin() + static_cast<std::ptrdiff_t>(points.size() * part / kParts);
    const auto to = points.begin() + static_cast<std::ptrdiff_t>(points.size() * (part + 1) / kParts);
    auto [low, high] = std::minmax_element(from, to, [](const auto& a, const auto& b) {
      // NaN is larger than all, so that a gap stays one.
      return !std::isnan(a.second) && (std::isnan(b.second) || a.second < b.second);
    });
    if (high < low) std::swap(low, high);
    some.push_back(*low);
    if (high != low) some.push_back(*high);
  }
  return some;
}

}  // namespace

nlohmann::json scalar_curves(const std::vector<std::string>& files) {
  Curves curves;
  for (const std::string& file : files) add_file(curves, file);
  nlohmann::json all = nlohmann::json::array();
  for (const auto& [tag, curve] : curves) {
    nlohmann::json steps = nlohmann::json::array();
    nlohmann::json values = nlohmann::json::array();
    for (const auto& [step, value] : thinned(curve)) {
      steps.push_back(step);
      values.push_back(std::isfinite(value) ? nlohmann::json(value) : nlohmann::json());
    }
    if (!steps.empty()) all.push_back({{"tag", tag}, {"steps", std::move(steps)}, {"values", std::move(values)}});
  }
  return all;
}

}  // namespace retinue

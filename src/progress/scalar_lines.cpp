#include "progress/scalar_lines.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

namespace retinue {
namespace {

/// As protocol buffers have it in JSON.
std::string json_number(double value) {
  if (std::isnan(value)) return "\"NaN\"";
  if (std::isinf(value)) return value > 0 ? "\"Infinity\"" : "\"-Infinity\"";
  return fmt::format("{}", value);
}

}  // namespace

void ScalarLines::add(const EventTime& time, std::string_view tag, double value) {
  if (!scalars_.empty() && time.step != time_.step) end_step();
  time_ = time;
  const auto found =
      std::ranges::find(scalars_, tag, [](const auto& scalar) { return std::string_view(scalar.first); });
  if (found != scalars_.end())
    found->second = value;
  else
    scalars_.emplace_back(tag, value);
}

void ScalarLines::add_purge(const EventTime& time) {
  end_step();
  file_.add(fmt::format("{{\"purge_step\":{},\"wall_time\":{:.6f}}}\n", time.step, time.wall_time));
}

void ScalarLines::end_step() {
  if (scalars_.empty()) return;
  std::string line = fmt::format("{{\"step\":{},\"wall_time\":{:.6f},\"scalars\":{{", time_.step, time_.wall_time);
  for (const auto& [tag, value] : scalars_) {
    if (line.back() != '{') line += ',';
    line += fmt::format("{}:{}", nlohmann::json(tag).dump(), json_number(value));
  }
  file_.add(line + "}}\n");
  scalars_.clear();
}

void ScalarLines::write() {
  end_step();
  file_.write();
}

void ScalarLines::forget_pending() {
  scalars_.clear();
  file_.forget_pending();
}

}  // namespace retinue

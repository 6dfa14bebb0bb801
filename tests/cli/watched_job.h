#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "cli/shell_run.h"
#include "support/wait_until.h"

namespace retinue::test {

/// What `retinue ps --json` says of the job of that name; null when it is not listed. Other tests' jobs may run.
inline nlohmann::json listed_job(const std::string& name) {
  const auto listed = nlohmann::json::parse(shell_run("$RETINUE ps --json 2>/dev/null").output);
  for (const auto& job : listed["jobs"])
    if (job.value("name", "") == name) return job;
  return nullptr;
}

/// Whether the job is listed and its ranks come to these states, in rank order.
inline bool ranks_come_to(const std::string& name, const std::vector<std::string>& states) {
  return wait_until([&] {
    const nlohmann::json job = listed_job(name);
    if (job.is_null() || job["ranks"].size() != states.size()) return false;
    for (std::size_t rank = 0; rank < states.size(); ++rank)
      if (job["ranks"][rank]["state"] != states[rank]) return false;
    return true;
  });
}

/// No other job's, also where tests run at the same time.
inline std::string unique_name(const std::string& name) {
  return name + "_of_test_" + std::to_string(getpid());
}

}  // namespace retinue::test

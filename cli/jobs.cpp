#include "jobs.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>

#include "retinue/base/error.h"

namespace retinue {
namespace {

std::string list_of(const std::vector<FoundJob>& jobs) {
  std::string text;
  for (const FoundJob& job : jobs) text += fmt::format("\n  {} (id {}, program {})", job.name(), job.id, job.program());
  return text;
}

bool is_named(const FoundJob& job, const std::string& text) {
  return text == job.name() || text == job.id || (job.memory && text == std::to_string(job.program()));
}

bool begins_so(const FoundJob& job, const std::string& text) {
  return job.name().starts_with(text) || job.id.starts_with(text);
}

std::vector<FoundJob> matching(const std::vector<FoundJob>& jobs, const std::string& text) {
  std::vector<FoundJob> found;
  const auto keep = [&](bool (*fits)(const FoundJob&, const std::string&)) {
    std::ranges::copy_if(jobs, std::back_inserter(found), [&](const FoundJob& job) { return fits(job, text); });
  };
  keep(&is_named);
  if (found.empty() && !text.empty()) keep(&begins_so);
  return found;
}

}  // namespace

FoundJob choose_job(const std::string& text) {
  std::vector<FoundJob> jobs = find_jobs(WhoseJobs::kOwn);
  std::vector<FoundJob> found = matching(jobs, text);
  if (found.empty() && geteuid() == 0) {
    jobs = find_jobs(WhoseJobs::kAll);
    found = matching(jobs, text);
  }
  if (found.empty())
    throw Error(jobs.empty() ? fmt::format("there is no job '{}': you have no running job on this machine", text)
                             : fmt::format("there is no job '{}'; the running jobs are:{}", text, list_of(jobs)));
  if (found.size() > 1)
    throw Error(fmt::format("'{}' matches several jobs; give the id of one of them:{}", text, list_of(found)));
  if (!found.front().memory) throw Error(fmt::format("job {}: {}", found.front().id, found.front().problem));
  return found.front();
}

std::vector<RankView> choose_ranks(const FoundJob& job, const std::vector<RankView>& ranks, const RankChoice& choice) {
  std::vector<RankView> chosen;
  std::string there;
  for (const RankView& rank : ranks) {
    const bool is_meant = (choice.rank < 0 || rank.rank == choice.rank) &&
                          (choice.context < 0 || rank.context == static_cast<std::uint32_t>(choice.context));
    if (is_meant && rank.is_alive()) chosen.push_back(rank);
    there += fmt::format("\n  rank {} of context {} (pid {}): {}", rank.rank, rank.context, rank.pid,
                         rank.end.empty() ? rank.state : rank.end);
  }
  if (!chosen.empty()) return chosen;
  if (ranks.empty()) throw Error(fmt::format("job {} has no ranks now", job.name()));
  throw Error(fmt::format("job {} has no such running rank; its ranks are:{}", job.name(), there));
}

}  // namespace retinue

#pragma once

#include <string>
#include <string_view>
#include <vector>

/// What of this machine the job may use.
namespace retinue {

/// GPUs as CUDA programs see them: the entries of CUDA_VISIBLE_DEVICES where it is set, else the number of each
/// /dev/nvidia<n>.
std::vector<std::string> visible_gpus();

/// Whether -n says it without looking at the machine.
bool is_plain_count(std::string_view text);

/// What -n says: a number, `cpu`, `gpu`, or `auto`: the GPUs if there are any, else the CPUs. Errors: UsageError.
int rank_count_of(const std::string& text, int cpus, const std::vector<std::string>& gpus);

}  // namespace retinue

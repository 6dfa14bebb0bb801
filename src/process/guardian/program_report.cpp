#include "process/guardian/program_report.h"

#include <filesystem>
#include <system_error>

#include "os/files/environment.h"
#include "os/sync/futex.h"
#include "process/failure/error_file.h"
#include "process/failure/helper.h"

namespace retinue {

ProgramReport::ProgramReport() {
  const auto path = find_variable(kErrorFileVariable);
  if (!path) return;
  std::error_code error;
  const auto absolute = std::filesystem::absolute(*path, error);  // The program may change its directory.
  error_file_ = error ? *path : absolute.string();
}

void ProgramReport::begin(CrashRecord& record) {
  if (helper_ != 0 || record.reported.load(std::memory_order_relaxed) != 0) return;
  record_ = &record;
  const bool is_complete = record.phase.load(std::memory_order_acquire) == 2;
  if (is_complete && !error_file_.empty()) helper_ = start_helper_for_program(record, error_file_);
  if (helper_ == 0) on_exit();
}

void ProgramReport::on_exit() {
  helper_ = 0;
  record_->reported.store(1, std::memory_order_release);  // Pairs with the program's wait.
  futex_wake_all(record_->reported);
}

}  // namespace retinue

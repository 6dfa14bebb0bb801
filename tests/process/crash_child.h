#pragma once

#include <gtest/gtest.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <functional>
#include <string>

#include "ipc/memory/crash_record.h"
#include "process/crash/crash_handler.h"
#include "process/crash/exception_report.h"
#include "process/crash/throw_trace.h"
#include "process/symbols/symbolizer.h"
#include "support/fork_shared.h"

namespace retinue {

/// A forked process that fails, with its record in shared memory. The stack is symbolised in this process, as the
/// helper does it, when the other is dead.
class CrashChild {
 public:
  explicit CrashChild(const std::function<void(CrashRecord&)>& body) {
    const pid_t parent = getpid();
    pid_ = fork();
    if (pid_ == 0) be_child(parent, body);
    while (waitpid(pid_, &status_, 0) < 0 && errno == EINTR) {
    }
  }
  CrashChild(const CrashChild&) = delete;
  CrashChild& operator=(const CrashChild&) = delete;

  const CrashRecord& record() const { return *record_; }
  bool is_complete() const { return record_->phase.load(std::memory_order_acquire) == 2; }
  int status() const { return status_; }
  int signal() const { return WIFSIGNALED(status_) ? WTERMSIG(status_) : 0; }
  int pid() const { return pid_; }
  std::string stack() const { return Symbolizer().symbolize(*record_); }

 private:
  [[noreturn]] void be_child(pid_t parent, const std::function<void(CrashRecord&)>& body) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(1);
    const rlimit no_core{0, 0};
    setrlimit(RLIMIT_CORE, &no_core);
    // A sanitizer's own handlers would end the child in their way.
    for (const int signal : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT}) std::signal(signal, SIG_DFL);
    enable_throw_trace();
    body(*record_);
    _exit(0);
  }

  test::ForkShared<CrashRecord> record_;
  pid_t pid_ = 0;
  int status_ = 0;
};

/// What a rank does around its function.
template <class Function>
void run_guarded(CrashRecord& record, Function function) {
  try {
    function();
  } catch (...) {
    record_current_exception(record);
  }
}

inline std::string line_of_stack(const std::string& stack, std::size_t number) {
  std::size_t begin = 0;
  for (std::size_t i = 0; i < number && begin != std::string::npos; ++i) begin = stack.find('\n', begin + 1);
  if (begin == std::string::npos) return {};
  begin += stack[begin] == '\n' ? 1 : 0;
  return stack.substr(begin, stack.find('\n', begin) - begin);
}

/// "at file.cpp:12": what a stack line says of a place.
inline std::string place(const char* file, int line) {
  const std::string path(file);
  return "at " + path.substr(path.rfind('/') + 1) + ":" + std::to_string(line) + " ";
}

inline testing::AssertionResult contains(const std::string& text, const std::string& part) {
  if (text.find(part) != std::string::npos) return testing::AssertionSuccess();
  return testing::AssertionFailure() << "\"" << part << "\" is not in:\n" << text;
}

}  // namespace retinue

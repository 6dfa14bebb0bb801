#include "retinue/launch/process.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>

#include "launch/spawn/start.h"
#include "os/files/file_descriptor.h"
#include "process/failure/failure_text.h"
#include "retinue/base/error.h"
#include "retinue/launch/process_context.h"

namespace retinue {
namespace {

std::string next_name() {
  static std::atomic<int> count = 0;
  return fmt::format("Process-{}", ++count);
}

StartOptions start_options_of(const ProcessOptions& options) {
  StartOptions start = {.name = options.name,
                        .start_method = options.start_method,
                        .daemon = options.daemon,
                        .stop = options.stop,
                        .exit_grace = options.exit_grace,
                        .environment = {{0, options.environment}},
                        .directory = options.directory,
                        .threads_per_rank = options.threads};
  if (!options.cpus.empty()) start.cpu_affinity = CpuAffinity::lists({options.cpus});
  return start;
}

}  // namespace

class ProcessBase::Impl {
 public:
  Impl(ProcessOptions given, detail::EntryKey key, detail::Encoded archive)
      : options(std::move(given)), entry(std::move(key)), arguments(std::move(archive)) {
    if (options.name.empty()) options.name = next_name();
  }

  /// How it ended, if it has within `timeout`.
  std::optional<RankOutcome> end(std::chrono::nanoseconds timeout = std::chrono::nanoseconds(0)) {
    if (!context) return std::nullopt;
    const std::optional<RunResult> result = context->wait(timeout);
    if (result) return result->outcomes().front();
    // The guardian writes into the sentinel just before it publishes the end; there must be no time between the two.
    pollfd entry{sentinel.get(), POLLIN, 0};
    if (poll(&entry, 1, 0) != 1 || (entry.revents & POLLIN) == 0) return std::nullopt;
    return context->wait().outcomes().front();
  }

  ProcessOptions options;
  detail::EntryKey entry;
  detail::Encoded arguments;
  std::optional<ProcessContext> context;
  FileDescriptor sentinel;
  bool is_closed = false;
};

ProcessBase::ProcessBase(ProcessOptions options, detail::EntryKey entry, detail::Encoded arguments)
    : impl_(std::make_unique<Impl>(std::move(options), std::move(entry), std::move(arguments))) {}
ProcessBase::~ProcessBase() = default;
ProcessBase::ProcessBase(ProcessBase&&) noexcept = default;
ProcessBase& ProcessBase::operator=(ProcessBase&&) noexcept = default;

ProcessBase::Impl& ProcessBase::impl(const char* function) const {
  if (impl_ == nullptr)
    throw UsageError(fmt::format("Process::{}: this Process was moved from: use the one it was moved to", function));
  if (impl_->is_closed) throw UsageError(fmt::format("Process::{}: '{}' is closed", function, impl_->options.name));
  return *impl_;
}

ProcessBase::Impl& ProcessBase::started(const char* function) const {
  Impl& own = impl(function);
  if (!own.context)
    throw UsageError(
        fmt::format("Process::{}: '{}' has not been started: call start() first", function, own.options.name));
  return own;
}

void ProcessBase::start() {
  Impl& own = impl("start");
  if (own.context)
    throw UsageError(
        fmt::format("Process::start: '{}' was started already; a Process can be started only once: make another",
                    own.options.name));
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) throw SystemError("making the sentinel of a process", errno);
  FileDescriptor sentinel(ends[0]);
  const FileDescriptor guardians(ends[1]);
  own.context = start_one(start_options_of(own.options), own.entry, own.arguments, guardians.get());
  own.sentinel = std::move(sentinel);
  own.arguments = {};
}

void ProcessBase::join() {
  started("join").context->wait();
}

bool ProcessBase::join(std::chrono::nanoseconds timeout) {
  return started("join").end(timeout).has_value();
}

bool ProcessBase::is_alive() const {
  Impl& own = impl("is_alive");
  return own.context && !own.end();
}

std::optional<int> ProcessBase::pid() const {
  Impl& own = impl("pid");
  if (!own.context) return std::nullopt;
  return own.context->pids().front();
}

std::optional<int> ProcessBase::exitcode() const {
  const std::optional<RankOutcome> end = impl("exitcode").end();
  if (!end) return std::nullopt;
  const bool is_killed = end->end == RankEnd::kSignaled || end->end == RankEnd::kStopped;
  return is_killed && end->signal != 0 ? -end->signal : end->exit_code;
}

std::string ProcessBase::failure() const {
  Impl& own = impl("failure");
  const std::optional<RankOutcome> end = own.end();
  return end && is_failure(*end) ? failure_text({&*end, 1}, own.options.name) : std::string();
}

void ProcessBase::terminate() {
  started("terminate").context->terminate();
}

void ProcessBase::kill() {
  started("kill").context->kill();
}

const std::string& ProcessBase::name() const {
  return impl("name").options.name;
}

bool ProcessBase::daemon() const {
  return impl("daemon").options.daemon;
}

int ProcessBase::sentinel() const {
  return started("sentinel").sentinel.get();
}

void ProcessBase::close() {
  if (impl_ != nullptr && impl_->is_closed) return;
  Impl& own = impl("close");
  if (own.context && !own.end())
    throw UsageError(
        fmt::format("Process::close: '{}' still runs: join() it first, or terminate() it", own.options.name));
  own.context.reset();
  own.sentinel.reset();
  own.is_closed = true;
}

}  // namespace retinue

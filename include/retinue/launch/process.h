#pragma once

#include <chrono>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "retinue/launch/detail/entry.h"
#include "retinue/launch/options.h"

namespace retinue {

struct ProcessOptions {
  /// Begins the messages about the process. Default: Process-1, Process-2 and so on.
  std::string name = {};
  /// true: the process is stopped as soon as the program ends, and may not start processes of its own.
  bool daemon = false;
  std::optional<StartMethod> start_method = std::nullopt;
  StopPolicy stop = {};
  /// The time that it has to end by itself when the program ends; then it is stopped.
  std::chrono::milliseconds exit_grace = std::chrono::seconds(30);
  /// Variables added to the caller's environment.
  std::map<std::string, std::string> environment = {};
  /// The directory where it starts. Empty: the caller's directory.
  std::string directory = {};
  /// The number of threads that its libraries use. 0: as many as it has CPUs.
  int threads = 0;
  /// The CPUs that it may run on. Empty: the caller's.
  std::vector<int> cpus = {};
};

/// The functions that every Process<fn> has, named after Python's multiprocessing.Process.
///
/// Destroying the object doesn't stop a running process. The process ends with the program, as ProcessOptions describe,
/// or with the rank that started it.
/// Threads: start() and close() one at a time, and none beside them; all others: any.
/// Errors: UsageError from every function after close(), and of a moved-from object. SystemError from functions that
/// look at the running process if the job's guardian was killed.
class ProcessBase {
 public:
  ~ProcessBase();
  ProcessBase(ProcessBase&&) noexcept;
  ProcessBase& operator=(ProcessBase&&) noexcept;

  /// Starts the process and returns at once. Errors: UsageError if called twice, without a Runtime, in a daemonic
  /// process, or with invalid options; SystemError if no process can be started.
  void start();

  /// Waits until the process has ended. Doesn't throw if the process failed: exitcode() and failure() report that, and
  /// standard error shows it. Errors: UsageError before start().
  void join();
  /// As join(), but returns false if the process still runs after `timeout`.
  bool join(std::chrono::nanoseconds timeout);

  /// Returns whether the process runs: true from start() to its end.
  bool is_alive() const;
  /// Returns the process id, or nothing before start().
  std::optional<int> pid() const;
  /// Returns 0 if the function returned, 1 if it threw, N if it called exit(N), -N if signal N ended the process, or
  /// nothing before its end.
  std::optional<int> exitcode() const;
  /// Returns what failed, with the stack: the text that was written to standard error. Returns an empty string if
  /// nothing failed, before the process's end, and if terminate() or kill() stopped it.
  std::string failure() const;

  /// Begins to end the process by its stop policy: SIGTERM, later SIGKILL. Returns at once. Errors: UsageError before
  /// start().
  void terminate();
  /// As terminate(), but sends SIGKILL at once.
  void kill();

  const std::string& name() const;
  bool daemon() const;

  /// Returns a descriptor for poll, select and epoll that is readable when join() would not block. It belongs to this
  /// object: don't read from it and don't close it. Errors: UsageError before start().
  int sentinel() const;

  /// Releases the resources of this object, including the sentinel. Errors: UsageError while the process runs.
  void close();

 protected:
  ProcessBase(ProcessOptions options, detail::EntryKey entry, detail::Encoded arguments);

 private:
  class Impl;
  Impl& impl(const char* function) const;
  Impl& started(const char* function) const;

  std::unique_ptr<Impl> impl_;
};

namespace detail {

template <class... Given>
constexpr bool kIsForOtherConstructor = false;
template <class First, class... Rest>
constexpr bool kIsForOtherConstructor<First, Rest...> =
    std::is_same_v<std::decay_t<First>, ProcessOptions> || std::is_base_of_v<ProcessBase, std::decay_t<First>>;

}  // namespace detail

/// A process that runs `fn(arguments...)` or `fn(RankContext&, arguments...)`, where `fn` is a function or a
/// captureless lambda with arguments as in spawn(). Options may come first: Process<fn> p({.name = "loader"},
/// arguments...). The return value of `fn` is dropped; use spawn() and ProcessContext::wait() to get it.
template <auto fn>
class Process : public ProcessBase {
 public:
  template <class... Arguments>
  requires(!detail::kIsForOtherConstructor<Arguments...>) explicit Process(Arguments&&... arguments)
      : Process(ProcessOptions(), std::forward<Arguments>(arguments)...) {}

  template <class... Arguments>
  explicit Process(ProcessOptions options, Arguments&&... arguments)
      : ProcessBase(std::move(options), detail::entry_key<fn, detail::EntryStyle::kProcess>(),
                    detail::encode<fn, detail::EntryStyle::kProcess>(std::forward<Arguments>(arguments)...)) {}
};
// Calls without a function as template argument.
template <class First, class... Rest>
requires(!std::is_base_of_v<ProcessBase, std::decay_t<First>>) Process(First&&, Rest&&...)
->Process<detail::FunctionInArguments{}>;
template <class First, class... Rest>
Process(ProcessOptions, First&&, Rest&&...) -> Process<detail::FunctionInArguments{}>;

}  // namespace retinue

#pragma once

#include <chrono>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "retinue/launch/entry.h"
#include "retinue/launch/options.h"

namespace retinue {

struct ProcessOptions {
  /// Heads what is said about it. Default: Process-1, Process-2 and so on.
  std::string name = {};
  /// true: stopped as soon as the program ends; may start no processes of its own.
  bool daemon = false;
  std::optional<StartMethod> start_method = std::nullopt;
  StopPolicy stop = {};
  /// Time to end by itself when the program ends; then it is stopped.
  std::chrono::milliseconds exit_grace = std::chrono::seconds(30);
  /// Added to the caller's environment.
  std::map<std::string, std::string> environment = {};
  /// Where it starts; empty: in the caller's directory.
  std::string directory = {};
  /// Threads that its libraries use; 0: as many as it has CPUs.
  int threads = 0;
  /// CPUs that it may run on; empty: the caller's.
  std::vector<int> cpus = {};
};

/// What every Process<fn> can do, named after Python's multiprocessing.Process.
///
/// Destroying one that runs lets it go on; it ends with the program, as ProcessOptions say, or with the rank that
/// started it.
/// Threads: one at a time.
/// Errors: UsageError from every function after close(), and of one that was moved from. SystemError from those that
/// look at the running process if the job's guardian was killed.
class ProcessBase {
 public:
  ~ProcessBase();
  ProcessBase(ProcessBase&&) noexcept;
  ProcessBase& operator=(ProcessBase&&) noexcept;

  /// Starts it and returns at once. Errors: UsageError when called twice, without a Runtime, in a daemonic process, or
  /// for wrong options; SystemError when no process can be started.
  void start();

  /// Waits until it has ended. Never throws for its failure: exitcode() and failure() tell it, and standard error has
  /// it. Errors: UsageError before start().
  void join();
  /// The same, but returns false when it still runs after `timeout`.
  bool join(std::chrono::nanoseconds timeout);

  /// Whether it runs: true from start() to its end.
  bool is_alive() const;
  /// Nothing before start().
  std::optional<int> pid() const;
  /// 0: the function returned; 1: it threw; N: it called exit(N); -N: signal N ended it. Nothing before its end.
  std::optional<int> exitcode() const;
  /// What went wrong, with the stack: the text that went to standard error. Empty if nothing did, before its end, and
  /// when it was stopped by terminate() or kill().
  std::string failure() const;

  /// Begins to end it by its stop policy: SIGTERM, later SIGKILL. Returns at once. Errors: UsageError before start().
  void terminate();
  /// The same by SIGKILL at once.
  void kill();

  const std::string& name() const;
  bool daemon() const;

  /// A descriptor for poll, select and epoll that is readable when join() would not block. It belongs to this object:
  /// don't read from it, don't close it. Errors: UsageError before start().
  int sentinel() const;

  /// Gives back what this object holds, the sentinel among it. Errors: UsageError while the process runs.
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

/// One process that runs `fn(arguments...)`, or `fn(RankContext&, arguments...)`: a function or a captureless lambda
/// whose arguments are as spawn() takes them. Options may come first: Process<fn> p({.name = "loader"}, arguments...).
/// What `fn` returns is dropped: spawn() and ProcessContext::wait() give it back.
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
// Without a function as template argument.
template <class First, class... Rest>
requires(!std::is_base_of_v<ProcessBase, std::decay_t<First>>) Process(First&&, Rest&&...)
->Process<detail::FunctionInArguments{}>;
template <class First, class... Rest>
Process(ProcessOptions, First&&, Rest&&...) -> Process<detail::FunctionInArguments{}>;

}  // namespace retinue

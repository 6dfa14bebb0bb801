#include "process/crash/crash_handler.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <stdexcept>
#include <string>
#include <thread>

#include "process/crash_child.h"

namespace retinue {
namespace {

int* volatile wild_pointer = nullptr;
void (*volatile null_function)() = nullptr;
volatile int deepest = -1;

__attribute__((noinline, no_sanitize("undefined"))) void write_wildly() {
  *wild_pointer = 1;
  asm volatile("");
}

__attribute__((noinline, no_sanitize("undefined"))) void call_null() {
  null_function();
  asm volatile("");
}

[[gnu::noinline]] int recurse_without_end(int depth) {
  volatile char frame[512];
  frame[0] = static_cast<char>(depth);
  if (depth == deepest) return 0;
  const int deeper = recurse_without_end(depth + 1);
  asm volatile("");
  return deeper + frame[0];
}

[[gnu::noinline]] void abort_here() {
  std::abort();
}

void throw_uncaught_in_thread() {
  std::thread([] { throw std::runtime_error("from a thread"); }).join();
}

void expect_signal(const CrashChild& child, int signal, const char* function) {
  ASSERT_TRUE(child.is_complete());
  EXPECT_EQ(child.record().kind, CrashKind::kSignal);
  EXPECT_EQ(child.record().signal, signal);
  EXPECT_EQ(child.signal(), signal) << "the exit status must stay true: " << child.status();
  EXPECT_TRUE(contains(child.stack(), function));
}

TEST(CrashHandler, RecordsASegmentationFault) {
  const CrashChild child([](CrashRecord& record) {
    install_crash_handlers(record);
    wild_pointer = reinterpret_cast<int*>(0x10);
    write_wildly();
  });
  expect_signal(child, SIGSEGV, "write_wildly()");
  EXPECT_EQ(child.record().fault_address, 0x10u);
  EXPECT_STREQ(child.record().message, "");
  EXPECT_TRUE(contains(line_of_stack(child.stack(), 0), "write_wildly() at crash_handler_test.cpp:"));
}

TEST(CrashHandler, FollowsACallThroughANullPointerToItsCaller) {
  const CrashChild child([](CrashRecord& record) {
    install_crash_handlers(record);
    call_null();
  });
  expect_signal(child, SIGSEGV, "call_null()");
  EXPECT_EQ(line_of_stack(child.stack(), 0), "#0 0x0");
  EXPECT_TRUE(contains(line_of_stack(child.stack(), 1), "call_null() at crash_handler_test.cpp:"));
}

TEST(CrashHandler, RecordsAStackOverflowWithBothEndsOfTheStack) {
  const CrashChild child([](CrashRecord& record) {
    install_crash_handlers(record);
    std::exit(recurse_without_end(0));
  });
  expect_signal(child, SIGSEGV, "recurse_without_end(int)");
  EXPECT_STREQ(child.record().message, "stack overflow");
  EXPECT_TRUE(contains(child.stack(), "more frames"));
  EXPECT_TRUE(contains(child.stack(), "more of the same"));
  EXPECT_TRUE(contains(child.stack(), "RecordsAStackOverflow"));
}

TEST(CrashHandler, RecordsAStackOverflowOfAThreadThatAskedForIt) {
  const CrashChild child([](CrashRecord& record) {
    install_crash_handlers(record);
    std::thread worker([] {
      use_signal_stack();
      std::exit(recurse_without_end(0));
    });
    worker.join();
  });
  expect_signal(child, SIGSEGV, "recurse_without_end(int)");
}

TEST(CrashHandler, RecordsAbort) {
  const CrashChild child([](CrashRecord& record) {
    install_crash_handlers(record);
    abort_here();
  });
  expect_signal(child, SIGABRT, "abort_here()");
  EXPECT_TRUE(contains(line_of_stack(child.stack(), 0), "abort_here()"));
}

TEST(CrashHandler, RecordsWhoSentASignal) {
  const pid_t sender = getpid();
  const CrashChild child([](CrashRecord& record) {
    install_crash_handlers(record);
    const pid_t target = getpid();
    if (fork() == 0) {
      kill(target, SIGFPE);
      _exit(0);
    }
    for (;;) pause();
  });
  ASSERT_TRUE(child.is_complete());
  EXPECT_EQ(child.signal(), SIGFPE);
  EXPECT_EQ(child.record().fault_address, 0u);
  EXPECT_TRUE(contains(child.record().message, "sent by process "));
  EXPECT_FALSE(contains(child.record().message, "process " + std::to_string(sender)));
}

TEST(CrashHandler, RecordsAnExceptionThatEndsInTerminate) {
  const CrashChild child([](CrashRecord& record) {
    install_crash_handlers(record);
    std::thread([] { throw std::runtime_error("nobody catches this"); }).join();
  });
  ASSERT_TRUE(child.is_complete());
  EXPECT_EQ(child.record().kind, CrashKind::kTerminate);
  EXPECT_STREQ(child.record().type, "std::runtime_error");
  EXPECT_STREQ(child.record().message, "nobody catches this");
  EXPECT_EQ(child.signal(), SIGABRT);
  EXPECT_TRUE(contains(line_of_stack(child.stack(), 0), "crash_handler_test.cpp:"));
}

[[gnu::noinline]] void terminate_here() {
  std::terminate();
}

TEST(CrashHandler, RecordsTerminateWithoutAnException) {
  const CrashChild child([](CrashRecord& record) {
    install_crash_handlers(record);
    terminate_here();
  });
  ASSERT_TRUE(child.is_complete());
  EXPECT_EQ(child.record().kind, CrashKind::kTerminate);
  EXPECT_STREQ(child.record().type, "");
  EXPECT_STREQ(child.record().message, "std::terminate without an exception");
  EXPECT_EQ(child.signal(), SIGABRT);
  EXPECT_TRUE(contains(line_of_stack(child.stack(), 0), "terminate_here()"));
}

TEST(CrashHandler, CallsTheHandlerThatItFound) {
  const CrashChild child([](CrashRecord& record) {
    std::signal(SIGILL, [](int) { _exit(77); });
    install_crash_handlers(record);
    std::raise(SIGILL);
  });
  ASSERT_TRUE(child.is_complete());
  EXPECT_EQ(child.record().signal, SIGILL);
  ASSERT_TRUE(WIFEXITED(child.status()));
  EXPECT_EQ(WEXITSTATUS(child.status()), 77);
}

TEST(CrashHandler, LeavesIgnoredSignalsIgnored) {
  const CrashChild child([](CrashRecord& record) {
    std::signal(SIGFPE, SIG_IGN);
    install_crash_handlers(record);
    std::raise(SIGFPE);
  });
  EXPECT_FALSE(child.is_complete());
  EXPECT_EQ(child.status(), 0);
}

TEST(CrashHandler, KeepsAnExceptionWhenTheProcessCrashesAfterIt) {
  const CrashChild child([](CrashRecord& record) {
    install_crash_handlers(record);
    run_guarded(record, [] { throw std::runtime_error("the cause"); });
    abort_here();
  });
  ASSERT_TRUE(child.is_complete());
  EXPECT_EQ(child.record().kind, CrashKind::kException);
  EXPECT_STREQ(child.record().message, "the cause");
  EXPECT_EQ(child.signal(), SIGABRT);
}

TEST(CrashHandler, EndsWhenAnExceptionCrashesWhileItIsDescribed) {
  struct Hostile : std::exception {
    const char* what() const noexcept override {
      write_wildly();
      return "";
    }
  };
  const CrashChild child([](CrashRecord& record) {
    install_crash_handlers(record);
    wild_pointer = nullptr;
    run_guarded(record, [] { throw Hostile(); });
  });
  EXPECT_EQ(child.signal(), SIGSEGV);
}

TEST(CrashHandler, RecordsAStackOverflowOfAnyThread) {
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
  GTEST_SKIP() << "sanitizers start threads in their own way";
#endif
  const CrashChild child([](CrashRecord& record) {
    install_crash_handlers(record);
    std::thread([] { recurse_without_end(0); }).join();
  });
  expect_signal(child, SIGSEGV, "recurse_without_end(int)");
  EXPECT_STREQ(child.record().message, "stack overflow");
  EXPECT_FALSE(contains(child.stack(), "run_guarded_thread"));
}

TEST(CrashHandler, LeavesThreadsAsTheyWere) {
  const CrashChild child([](CrashRecord& record) {
    install_crash_handlers(record);
    int sum = 0;
    for (int i = 0; i < 200; ++i) std::thread([&] { ++sum; }).join();
    pthread_t thread{};
    void* result = nullptr;
    const auto function = [](void* argument) -> void* { pthread_exit(argument); };
    if (pthread_create(&thread, nullptr, function, &sum) != 0) _exit(2);
    pthread_join(thread, &result);
    if (sum != 200 || result != &sum) _exit(3);
    throw_uncaught_in_thread();
  });
  EXPECT_EQ(child.signal(), SIGABRT) << child.status();
  EXPECT_STREQ(child.record().message, "from a thread");
}

struct CrashingException : std::exception {
  const char* what() const noexcept override {
    raise(SIGSEGV);
    return "never said";
  }
};

TEST(CrashHandler, TellsOfACrashInWhat) {
  const CrashChild child([](CrashRecord& record) {
    install_crash_handlers(record);
    run_guarded(record, [] { throw CrashingException(); });
  });
  EXPECT_EQ(child.signal(), SIGSEGV);
  ASSERT_TRUE(child.is_complete());
  EXPECT_EQ(child.record().kind, CrashKind::kSignal);
  EXPECT_EQ(child.record().signal, SIGSEGV);
  EXPECT_TRUE(contains(child.stack(), "CrashingException::what"));
}

}  // namespace
}  // namespace retinue

#include "process/crash/exception_report.h"

#include <string>
#include <string_view>
#include <typeinfo>

#include "base/demangle.h"
#include "os/sync/clock.h"
#include "process/crash/crash_writer.h"
#include "process/crash/throw_trace.h"
#include "retinue/base/detail/foreign_error.h"
#include "retinue/base/error.h"

namespace retinue {
namespace {

constexpr int kMaxNesting = 32;

struct Description {
  std::string type;
  std::string message;
  std::string stack;  ///< Where the exception has one of its own.
  bool is_peer_lost = false;
  std::exception_ptr nested;
};

std::string type_name(const std::exception_ptr& exception) {
  std::string name = demangled(exception.__cxa_exception_type()->name());
  // std::throw_with_nested throws a type of its own, derived from the one that the program named.
  constexpr std::string_view kWrapper = "std::_Nested_exception<";
  if (!name.starts_with(kWrapper) || !name.ends_with('>')) return name;
  const std::size_t end = name.find_last_not_of(' ', name.size() - 2);
  return name.substr(kWrapper.size(), end + 1 - kWrapper.size());
}

/// LibTorch's errors end with a stack of their own, without files and lines; the record has a better one.
std::string without_own_stack(const std::string& message) {
  constexpr std::string_view kIntroduction = " (most recent call first):";
  const std::size_t frames = message.find("\nframe #0: ");
  if (frames == std::string::npos) return message;
  const std::string_view head = std::string_view(message).substr(0, frames);
  return std::string(head.ends_with(kIntroduction) ? head.substr(0, head.size() - kIntroduction.size()) : head);
}

std::string text_or_none(const char* text) {
  return text == nullptr ? "(its message is a null pointer)" : text;
}

Description describe_one(const std::exception_ptr& exception) {
  Description description;
  description.type = type_name(exception);
  try {
    std::rethrow_exception(exception);
  } catch (const std::exception& error) {
    description.message = without_own_stack(text_or_none(error.what()));
    description.is_peer_lost = dynamic_cast<const PeerLost*>(&error) != nullptr;
    if (const auto* foreign = dynamic_cast<const detail::ForeignError*>(&error)) {
      description.type = foreign->type();
      description.stack = foreign->stack();
    }
    if (const auto* nested = dynamic_cast<const std::nested_exception*>(&error)) {
      description.nested = nested->nested_ptr();
    }
  } catch (const std::nested_exception& nested) {
    description.nested = nested.nested_ptr();
  } catch (const std::string& text) {
    description.message = text;
  } catch (const char* text) {
    description.message = text_or_none(text);
  } catch (int value) {
    description.message = std::to_string(value);
  } catch (...) {
    description.message = "(not a std::exception: it has no message)";
  }
  return description;
}

/// What fits of a stack whose last lines are the place of the error.
std::string_view end_of_stack(std::string_view stack, std::size_t bytes) {
  if (stack.size() < bytes) return stack;
  stack.remove_prefix(stack.size() - bytes + 1);
  return stack.substr(stack.find('\n') + 1);  // From a whole line, if there is one.
}

}  // namespace

bool describe_exception(const std::exception_ptr& exception, CrashRecord& record) {
  ThrowTrace trace;
  bool is_known = false;
  record.consequence = 0;
  FixedText message(record.message);
  if (exception == nullptr) {
    // What unwinds a cancelled thread, or comes from another language, is no C++ exception.
    FixedText(record.type) << "foreign exception";
    message << "the thread was cancelled, or another language threw";
  }
  std::exception_ptr current = exception;
  for (int depth = 0; current && depth < kMaxNesting; ++depth) {
    const Description description = describe_one(current);
    if (depth == 0) {
      FixedText(record.type) << description.type;
      message << description.message;
    } else {
      message << "\ncaused by " << description.type << ": " << description.message;
    }
    if (description.is_peer_lost) record.consequence = 1;
    if (!description.stack.empty()) {
      FixedText(record.stack) << end_of_stack(description.stack, sizeof record.stack);
      record.stack_phase.store(2, std::memory_order_release);
    }
    is_known |= find_throw_trace(current, trace);
    current = description.nested;
  }
  record.time_ns = is_known ? trace.time_ns : monotonic_ns();
  write_frames(trace.stack, record);
  return is_known;
}

void record_current_exception(CrashRecord& record) noexcept {
  if (!claim_crash_record(record) && !reclaim_survived_signal(record)) return;
  record.kind = CrashKind::kException;
  record.signal = 0;
  record.fault_address = 0;
  try {
    describe_exception(std::current_exception(), record);
  } catch (...) {
    // Out of memory: what was written so far stands.
    record.time_ns = monotonic_ns();
  }
  complete_crash_record(record);
}

}  // namespace retinue

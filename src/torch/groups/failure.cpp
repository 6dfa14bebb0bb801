#include "torch/groups/failure.h"

#include <c10/util/Exception.h>
#include <c10/util/StringUtil.h>
#include <c10/util/Type.h>

#include <typeinfo>
#include <vector>

#include "retinue/base/error.h"
#include "retinue/torch/objects.h"

namespace retinue {
namespace {

/// Without what SystemError appends to it, and appends again.
std::string text_before_errno(const SystemError& error) {
  const std::string text = error.what();
  const std::string appended = SystemError("", error.errno_value()).what();
  return text.substr(0, text.size() - appended.size());
}

}  // namespace

Failure current_failure() {
  try {
    throw;
  } catch (const SystemError& error) {
    return {text_before_errno(error), error.errno_value(), std::current_exception()};
  } catch (const c10::Error& error) {
    return {error.what_without_backtrace(), 0, std::current_exception()};
  } catch (const Error& error) {
    return {error.what(), 0, std::current_exception()};
  } catch (const std::exception& error) {
    return {c10::str(c10::demangle(typeid(error).name()), ": ", error.what()), 0, std::current_exception()};
  } catch (...) {
    return {"something that is no std::exception", 0, std::current_exception()};
  }
}

void throw_failure(const std::string& doing, const Failure& failure, int rank, int size) {
  const std::string text = c10::str(doing, ": ", size > 1 ? c10::str("rank ", rank, ": ") : "", failure.text);
  if (failure.errno_value != 0) throw SystemError(text, failure.errno_value);
  throw UsageError(text);
}

void throw_if_any_failed(const std::string& doing, const Failure& mine, const ProcessGroup& group,
                         const std::source_location& where) {
  const std::vector<Failure> failures = all_gather_object(mine, group, where);
  for (std::size_t rank = 0; rank < failures.size(); ++rank)
    if (failures[rank]) throw_failure(doing, failures[rank], static_cast<int>(rank), static_cast<int>(failures.size()));
}

}  // namespace retinue

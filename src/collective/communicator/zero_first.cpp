#include "retinue/collective/zero_first.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string_view>

#include "base/char_field.h"
#include "base/thrown_text.h"
#include "retinue/base/error.h"
#include "retinue/collective/communicator.h"

namespace retinue {
namespace {

/// How rank 0 fared.
struct ZeroFirstStatus {
  enum Outcome : std::uint32_t { kPrepared = 0, kUsageError = 1, kOtherError = 2 };

  std::uint32_t outcome = kPrepared;
  char text[1020] = {};

  void fail(Outcome how, std::string_view why) {
    outcome = how;
    fill(text, why);
  }
};

ZeroFirstStatus status_of(const std::exception_ptr& error) {
  ZeroFirstStatus status;
  if (!error) return status;
  try {
    std::rethrow_exception(error);
  } catch (const UsageError& usage) {
    status.fail(ZeroFirstStatus::kUsageError, usage.what());
  } catch (const std::exception& other) {
    status.fail(ZeroFirstStatus::kOtherError, other.what());
  } catch (...) {
    status.fail(ZeroFirstStatus::kOtherError, "an exception that is not a std::exception");
  }
  return status;
}

}  // namespace

detail::ZeroFirstGroup detail::ZeroFirstOf<Communicator>::make(Communicator& group, CallSite site) {
  return {.rank = group.rank(),
          .size = group.size(),
          .name = group.group().name,
          .broadcast = [&group, at = site.inside(OuterCall::kZeroFirst)](void* data, std::size_t bytes) {
            group.broadcast(data, bytes, 0, at);
          }};
}

ZeroFirst::ZeroFirst(detail::ZeroFirstGroup group, CallSite site, Made /*made*/)
    : group_(std::move(group)), site_(site), exceptions_(std::uncaught_exceptions()) {
  told_ = group_.rank != 0 || group_.size == 1;
  if (!told_) thrown_ = std::make_shared<ThrownText>();
  if (group_.rank <= 0 || group_.size == 1) return;
  ZeroFirstStatus status;
  group_.broadcast(&status, sizeof status);
  if (status.outcome == ZeroFirstStatus::kPrepared) return;
  const std::string text = fmt::format("group \"{}\": rank 0, for which this rank waits at {}, failed: {}", group_.name,
                                       site.text(), text_of(status.text));
  if (status.outcome == ZeroFirstStatus::kUsageError) throw UsageError(text);
  throw Error(text);
}

ZeroFirst::~ZeroFirst() {
  if (told_) return;
  std::exception_ptr error;
  if (std::uncaught_exceptions() > exceptions_) {
    const std::string last = thrown_->last();
    error = std::make_exception_ptr(Error(
        fmt::format("an exception left the scope of its ZeroFirst at {}; {}", site_.text(),
                    last.empty() ? "the report of rank 0 shows it" : "the last exception thrown there is " + last)));
  }
  share_failure(error);
}

void ZeroFirst::share_failure(const std::exception_ptr& error) noexcept {
  if (told_) return;
  told_ = true;
  try {
    ZeroFirstStatus status = status_of(error);
    group_.broadcast(&status, sizeof status);
  } catch (const std::exception&) {
    // The group is of no use any more: its next call throws the same.
  }
}

}  // namespace retinue

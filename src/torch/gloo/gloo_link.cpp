#include "torch/gloo/gloo_link.h"

#include <c10/util/StringUtil.h>

#include "retinue/base/error.h"

namespace retinue {
namespace {

sigset_t only_sigpipe() {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGPIPE);
  return set;
}

}  // namespace

WithoutSigpipe::WithoutSigpipe() : before_() {
  const sigset_t set = only_sigpipe();
  pthread_sigmask(SIG_BLOCK, &set, &before_);
}

WithoutSigpipe::~WithoutSigpipe() {
  if (sigismember(&before_, SIGPIPE) == 1) return;
  const sigset_t set = only_sigpipe();
  const timespec at_once{};
  sigtimedwait(&set, nullptr, &at_once);  // One that came meanwhile.
  pthread_sigmask(SIG_SETMASK, &before_, nullptr);
}

void GlooLink::check_open() const {
  if (!gloo_)
    throw Closed(c10::str("group \"", peers_.group(),
                          "\": its connections were closed, by destroy_process_group() or after an error"));
}

void GlooLink::close() {
  c10::intrusive_ptr<c10d::Backend> gloo;
  const std::lock_guard lock(mutex_);
  std::swap(gloo, gloo_);
}

void GlooLink::leak() {
  const std::lock_guard lock(mutex_);
  static_cast<void>(gloo_.release());
}

void GlooLink::note_message_error(const std::exception_ptr& error) {
  const std::lock_guard lock(mutex_);
  if (!first_message_error_) first_message_error_ = error;
}

std::exception_ptr GlooLink::first_message_error() const {
  const std::lock_guard lock(mutex_);
  return first_message_error_;
}

}  // namespace retinue

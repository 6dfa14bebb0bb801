#include "collective/communicator/begun_collectives.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace retinue {

CollectiveCall CollectiveOperation::with_own_lists(CollectiveCall what, std::vector<ConstBytes>& inputs,
                                                   std::vector<Bytes>& outputs) {
  inputs.assign(what.inputs.begin(), what.inputs.end());
  outputs.assign(what.outputs.begin(), what.outputs.end());
  what.inputs = inputs;
  what.outputs = outputs;
  return what;
}

CollectiveOperation::CollectiveOperation(OperationDriver& engine, const Session& session, const CollectiveCall& what,
                                         CallSite site)
    : Operation(engine, site),
      session_(session),
      what_(with_own_lists(what, inputs_, outputs_)),
      call_(checked_call(what_, session.rank(), session.size(), site)) {}

std::string CollectiveOperation::name() const {
  return fmt::format("{}, started at {}", name_of(call_.shape.kind), call_.site.text());
}

const CollectiveOperation* BegunCollectives::find(const Operation& operation) const {
  const auto found = std::find(operations_.begin(), operations_.end(), &operation);
  return found == operations_.end() ? nullptr : *found;
}

void BegunCollectives::start(CollectiveOperation& operation) {
  operations_.push_back(&operation);
  operation.start();
  if (operations_.size() > 1 || !session_.can_publish(operation.call())) return;
  try {
    publish(operation.call());
  } catch (...) {
    end_first(std::current_exception());
  }
}

void BegunCollectives::publish(const Call& call) {
  const std::uint64_t started = log_.now();
  session_.publish(call);
  log_.begin(call, session_.sequence(), started);
  stage_ = Stage::kPublished;
}

void BegunCollectives::advance() {
  while (!operations_.empty()) {
    try {
      if (!go_on(*operations_.front())) return;
      end_first(nullptr);
    } catch (...) {
      session_.fail_by_surprise();
      end_first(std::current_exception());
      if (session_.failure()) fail_all(session_.failure());
    }
  }
}

bool BegunCollectives::go_on(CollectiveOperation& operation) {
  const Call& call = operation.call();
  if (stage_ == Stage::kQueued) {
    if (!session_.can_publish(call)) return false;
    publish(call);
  }
  const PutAside put_aside(session_);
  if (stage_ == Stage::kPublished) {
    if (!session_.all_have_come()) return false;
    steps_ = take_path(session_, call, session_.await_arrival(call));
    stage_ = Stage::kOnItsPath;
    operation.note_that_all_have_come();
  }
  return session_.can_go_on() && steps_.go_on();
}

void BegunCollectives::end_first(std::exception_ptr error) {
  CollectiveOperation& first = *operations_.front();
  operations_.pop_front();
  stage_ = Stage::kQueued;
  steps_ = Steps();
  if (!session_.failure()) session_.end_call();
  if (error == nullptr)
    log_.end();
  else
    log_.fail();
  first.complete(std::move(error));
  ended_.note(first);
}

void BegunCollectives::fail_all(const std::exception_ptr& error) {
  if (stage_ != Stage::kQueued) session_.await_nobody_inside();  // Their buffers are their caller's again.
  while (!operations_.empty()) end_first(error);
}

}  // namespace retinue

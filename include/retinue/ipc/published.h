#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "retinue/base/error.h"
#include "retinue/ipc/archive.h"
#include "retinue/ipc/job_memory.h"

/// Names for objects that processes of a job share, for processes that they aren't passed to: above all guests of the
/// job.
namespace retinue {

namespace detail {

/// Errors: UsageError for a name that is empty, too long, or used by another living block.
void publish_block(const SharedBlock& block, const std::string& name);
/// Waits until something alive has that name. Errors: TimeoutError; SystemError when the job ends.
SharedBlock find_published(const std::shared_ptr<JobMemory>& memory, const std::string& name,
                           std::chrono::nanoseconds timeout);

}  // namespace detail

/// Lets all processes of the job find the object (a Queue, SimpleQueue, Lock or the like) by a name of at most 63
/// bytes, as long as a process holds the object: a name holds nothing. Errors: UsageError for an empty handle,
/// for an invalid name, and for a name that another object has.
template <class Object>
void publish(const std::string& name, const Object& object) {
  const detail::Encoded encoded = detail::encode_value(object);
  if (encoded.references.size() != 1 || encoded.bytes.size() != sizeof(BlockHandle))
    throw UsageError("publish: a name needs one object of job memory, such as a Queue or a Lock, that is not empty");
  detail::publish_block(encoded.references.front(), name);
}

/// Returns what was published by that name in the job of this process.
/// Blocking: until something has that name, at most `timeout`.
/// Errors: TimeoutError; UsageError if it isn't an Object; SystemError when the job ends.
template <class Object>
Object published(const std::string& name, std::chrono::nanoseconds timeout) {
  const SharedBlock block = detail::find_published(JobMemory::current(), name, timeout);
  const detail::ReadScope scope;
  Object object;
  detail::decode_value(detail::encode_value(block).bytes, object);
  return object;
}

}  // namespace retinue

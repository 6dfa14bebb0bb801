#pragma once

#include <string>
#include <utility>
#include <vector>

#include "python/extension/boxed.h"
#include "python/extension/objects.h"
#include "retinue/ipc/archive.h"
#include "retinue/ipc/shared_block.h"

namespace retinue::python {

/// A pickle, and the blocks of job memory that it refers to by their index.
struct Message {
  std::string pickle;
  std::vector<SharedBlock> blocks;

  template <class Archive>
  void serialize(Archive& archive) {
    archive(pickle, blocks);
  }
};

/// Adds the type Block, a hold on a block of job memory, to the module. Errors: ErrorIsSet.
void add_block_type(PyObject* module);

/// allocate(bytes) for Python: makes a Block.
PyObject* allocate(PyObject* module, PyObject* bytes);

/// Errors: ErrorIsSet if it isn't a list of Blocks.
std::vector<SharedBlock> blocks_of(PyObject* list);
/// As a list of Blocks.
Reference list_of(std::vector<SharedBlock> blocks);

/// Errors: ErrorIsSet if they aren't bytes and a list of Blocks.
Message message_of(PyObject* pickle, PyObject* blocks);
/// As (bytes, list of Blocks).
Reference tuple_of(Message message);

/// The method sent() of objects in job memory: (bytes, blocks), from which received(bytes) makes a handle of the same
/// object in another process, while that holds the blocks.
template <class Value>
PyObject* sent(PyObject* self, PyObject*) {
  return answer([&] {
    detail::Encoded encoded = detail::encode_value(value_of<Value>(self));
    return tuple_of({std::move(encoded.bytes), std::move(encoded.references)});
  });
}

/// The static method received(bytes).
template <class Value>
PyObject* received(PyObject*, PyObject* bytes) {
  return answer([&] {
    const detail::ReadScope scope;
    Value value;
    detail::decode_value(bytes_of(bytes), value);
    return boxed(std::move(value));
  });
}

}  // namespace retinue::python

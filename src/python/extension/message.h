#pragma once

#include <string>
#include <vector>

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

}  // namespace retinue::python

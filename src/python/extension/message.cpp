#include "python/extension/message.h"

#include <utility>

#include "retinue/base/error.h"

namespace retinue::python {
namespace {

PyObject* address_of_block(PyObject* self, PyObject*) {
  return answer([&] { return checked(PyLong_FromVoidPtr(value_of<SharedBlock>(self).data())); });
}

PyObject* bytes_of_block(PyObject* self, PyObject*) {
  return answer([&] { return checked(PyLong_FromSize_t(value_of<SharedBlock>(self).bytes())); });
}

PyMethodDef block_methods[] = {
    {"address", &address_of_block, METH_NOARGS, "Where it is in this process, as long as this object exists."},
    {"bytes", &bytes_of_block, METH_NOARGS, "Its size."},
    {nullptr, nullptr, 0, nullptr},
};

}  // namespace

void add_block_type(PyObject* module) {
  add_type<SharedBlock>(module, "retinue._core.Block", block_methods);
}

PyObject* allocate(PyObject*, PyObject* bytes) {
  return answer([&] {
    const std::size_t size = PyLong_AsSize_t(bytes);
    if (PyErr_Occurred() != nullptr) throw ErrorIsSet();
    SharedBlock block;
    {
      const WithoutGil without_gil;
      block = SharedBlock::allocate(size);
    }
    return boxed(std::move(block));
  });
}

std::vector<SharedBlock> blocks_of(PyObject* list) {
  std::vector<SharedBlock> blocks;
  const Py_ssize_t size = PyList_Size(list);
  if (size < 0) throw ErrorIsSet();
  for (Py_ssize_t i = 0; i < size; ++i) {
    PyObject* const block = PyList_GetItem(list, i);
    if (reinterpret_cast<PyObject*>(Py_TYPE(block)) != type_of_boxed<SharedBlock>)
      throw UsageError("a list of Blocks is needed");
    blocks.push_back(value_of<SharedBlock>(block));
  }
  return blocks;
}

Reference list_of(std::vector<SharedBlock> blocks) {
  Reference list = checked(PyList_New(0));
  for (SharedBlock& block : blocks)
    if (PyList_Append(list.get(), boxed(std::move(block)).get()) != 0) throw ErrorIsSet();
  return list;
}

Message message_of(PyObject* pickle, PyObject* blocks) {
  return {std::string(bytes_of(pickle)), blocks_of(blocks)};
}

Reference tuple_of(Message message) {
  const Reference pickle =
      checked(PyBytes_FromStringAndSize(message.pickle.data(), static_cast<Py_ssize_t>(message.pickle.size())));
  const Reference blocks = list_of(std::move(message.blocks));
  return checked(PyTuple_Pack(2, pickle.get(), blocks.get()));
}

}  // namespace retinue::python

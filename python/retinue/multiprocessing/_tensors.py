"""How tensors travel: by the block of job memory that they are in, or in a copy that the receiver has to itself."""

import ctypes
import math
import operator

import torch

from retinue.multiprocessing import _shared, _start


def empty_shared(size, dtype):
    """Is retinue.empty_shared, which has its size as separate arguments too."""
    size = tuple(map(operator.index, size))
    if any(number < 0 for number in size):
        raise ValueError(f"the sizes are {size}: none may be negative")
    dtype = dtype or torch.get_default_dtype()
    elements = math.prod(size)
    if elements == 0:
        return torch.empty(size, dtype=dtype, device="cpu")
    _start.warm()
    return _elements(_shared.allocate(elements * dtype.itemsize), dtype).view(size)


def kinds():
    """Returns the types that reduce_tensor is for. Subclasses have PyTorch's own way."""
    return torch.Tensor, torch.nn.Parameter


def _elements(buffer, dtype):
    """Returns the elements that fit into a buffer."""
    count = len(buffer) // dtype.itemsize
    return torch.frombuffer(buffer, dtype=dtype, count=count) if count else torch.empty(0, dtype=dtype, device="cpu")


def _made(kind, tensor, requires_grad):
    if kind:
        return torch.nn.Parameter(tensor, requires_grad)
    return tensor.requires_grad_(requires_grad)


def _tensor(kind, dtype, size, stride, offset, requires_grad, memory):
    """Returns what reduce_tensor took apart. `memory`: a bytearray, or the index of a block."""
    dtype = getattr(torch, dtype)
    if isinstance(memory, int):
        memory = _shared.buffer_of(_shared.block(memory))
    storage = _elements(memory, dtype).untyped_storage()
    return _made(kind, torch.empty(0, dtype=dtype, device="cpu").set_(storage, offset, size, stride), requires_grad)


def _is_plain(tensor):
    return (tensor.device.type == "cpu" and not tensor.is_nested and tensor.layout is torch.strided and not tensor.is_quantized
            and not tensor.is_conj() and not tensor.is_neg() and (tensor.is_leaf or not tensor.requires_grad))


def _bytes_of(storage):
    return torch.empty(0, dtype=torch.uint8, device="cpu").set_(storage)


def reduce_tensor(blocks, tensor):
    """A reducer of _shared. PyTorch's own way: NotImplemented."""
    if not _is_plain(tensor):
        return NotImplemented
    storage = tensor.untyped_storage()
    address, size = storage.data_ptr(), storage.nbytes()
    stride, offset = tensor.stride(), tensor.storage_offset()
    block = _shared.block_at(address, size)
    if block is not None:
        memory = blocks.add(block)
    elif not blocks.copies or storage.is_shared():
        return NotImplemented
    elif size <= 2 * tensor.numel() * tensor.element_size() or blocks.copy_at(address) is not None:
        # All of it, so that tensors that share it still do.
        memory = blocks.copy_once(storage, address, lambda: _copy(blocks, _bytes_of(storage)))
    else:
        memory = _copy(blocks, tensor.detach())
        stride, offset = _strides_of_contiguous(tensor.size()), 0
    kind = type(tensor) is torch.nn.Parameter
    dtype = str(tensor.dtype).removeprefix("torch.")
    return _tensor, (kind, dtype, tuple(tensor.size()), stride, offset, tensor.requires_grad, memory)


def _strides_of_contiguous(size):
    return tuple(math.prod(size[i + 1:]) for i in range(len(size)))


def _copy(blocks, tensor):
    """Returns a copy as a bytearray, or as the index of a block where it is long."""
    size = tensor.numel() * tensor.element_size()
    if size < _shared.LEAST_BLOCK:
        tensor = tensor.contiguous()  # Which lives until its bytes are read.
        return bytearray(ctypes.string_at(tensor.data_ptr(), size))
    buffer = _shared.allocate(size)
    _elements(buffer, tensor.dtype).view(tensor.size()).copy_(tensor)
    return blocks.add(buffer.block)

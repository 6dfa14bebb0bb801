"""Values and arrays of ctypes in job memory."""

import ctypes
from multiprocessing import sharedctypes

from retinue.multiprocessing import _shared, _start, _synchronize


def _bytes_of(kind):
    return max(ctypes.sizeof(kind), 1)  # An array may be empty.


@_shared.reducer(_shared.CData)
def _reduce(blocks, value):
    """What isn't in job memory is pickled as without it."""
    block = _shared.block_at(ctypes.addressof(value), _bytes_of(value))
    if block is None:
        return NotImplemented
    kind, lengths = type(value), []
    while issubclass(kind, ctypes.Array):  # Types of arrays have no name that pickle could use.
        lengths.append(kind._length_)
        kind = kind._type_
    return _restored, (kind, lengths, blocks.add(block))


def _restored(kind, lengths, index):
    for length in reversed(lengths):
        kind = kind * length
    return kind.from_buffer(_shared.buffer_of(_shared.block(index)))


def _new(kind):
    _start.warm()
    size = _bytes_of(kind)
    buffer = _shared.allocate(size)
    ctypes.memset(buffer, 0, size)
    return kind.from_buffer(buffer)


def _type_of(typecode_or_type):
    return sharedctypes.typecode_to_type.get(typecode_or_type, typecode_or_type)


def RawValue(typecode_or_type, *args):
    """multiprocessing.RawValue."""
    value = _new(_type_of(typecode_or_type))
    value.__init__(*args)
    return value


def RawArray(typecode_or_type, size_or_initializer):
    """multiprocessing.RawArray."""
    element = _type_of(typecode_or_type)
    if isinstance(size_or_initializer, int):
        return _new(element * size_or_initializer)
    array = _new(element * len(size_or_initializer))
    array.__init__(*size_or_initializer)
    return array


def _locked(value, lock):
    if lock is False:
        return value
    if lock is True or lock is None:
        lock = _synchronize.RLock()
    if not hasattr(lock, "acquire"):
        raise AttributeError(f"{lock!r} has no method 'acquire'")
    return sharedctypes.synchronized(value, lock)


def Value(typecode_or_type, *args, lock=True):
    """multiprocessing.Value."""
    return _locked(RawValue(typecode_or_type, *args), lock)


def Array(typecode_or_type, size_or_initializer, *, lock=True):
    """multiprocessing.Array."""
    return _locked(RawArray(typecode_or_type, size_or_initializer), lock)

"""Values on their way to other processes: pickles whose large parts are blocks of job memory."""

import collections
import copyreg
import ctypes
import io
import pickle
import sys
import threading
import weakref
from multiprocessing import reduction

from retinue import _core

# Fewer bytes cost less inside of the pickle than as a block of their own.
LEAST_BLOCK = 32 * 1024
_HEADER = 4  # Bytes before the pickle: how many of the blocks are its out-of-band buffers. The others follow these.
_BYTES = b"\xff" * _HEADER  # In their place before what is no pickle.

_buffers = weakref.WeakValueDictionary()  # Of this process, by address: what is in job memory already is sent by handle.
_lock = threading.RLock()
_loading = threading.local()  # `blocks`: what the pickle refers to that is being loaded.


def buffer_of(block):
    """Returns a writable buffer that is the block's memory, and keeps it. Views of the buffer keep it too."""
    address = block.address()
    with _lock:
        buffer = _buffers.get(address)
        if buffer is None:
            buffer = (ctypes.c_ubyte * block.bytes()).from_address(address)
            buffer.block = block
            _buffers[address] = buffer
    return buffer


def allocate(size):
    """Returns a new buffer in job memory, with unspecified contents. Errors: RuntimeError if there is no memory."""
    return buffer_of(_core.allocate(size))


def _copy_of(view):
    buffer = allocate(view.nbytes)
    memoryview(buffer).cast("B")[:] = view
    return buffer.block


class _Blocks:
    """The blocks of one pickle, while it is made."""

    def __init__(self, copies):
        self.copies = copies  # Whether what isn't in job memory may be copied there, for one process.
        self.buffers = []
        self.others = []
        self._copies = {}  # Of what is in the value more than once, by its address.
        self._copied = []  # Lives as long, so that its address is its own.

    def all(self):
        return self.buffers + self.others

    def take(self, buffer):
        """pickle's buffer_callback. Returns True where the buffer is to be part of the pickle."""
        try:
            view = buffer.raw()
        except BufferError:  # It isn't contiguous.
            return True
        if view.nbytes < LEAST_BLOCK:
            return True
        self.buffers.append(_block_of_array(view) or _copy_of(view))
        return False

    def add(self, block):
        """Returns the index by which the pickle refers to the block: the loader's argument for it."""
        self.others.append(block)
        return len(self.others) - 1

    def copy_at(self, address):
        """Returns what copy_once returned for that address, or None."""
        return self._copies.get(address)

    def copy_once(self, owner, address, copy):
        """Returns what `copy` returns, the same each time for what is at that address as long as `owner` lives."""
        if address not in self._copies:
            self._copies[address] = copy()
            self._copied.append(owner)
        return self._copies[address]


def block_at(address, size):
    """Returns the block that begins at that address of this process and has that size in bytes, or None."""
    buffer = _buffers.get(address)
    return buffer.block if buffer is not None and len(buffer) == size else None


def _block_of_array(view):
    """Returns the block that a NumPy array is all of, or None."""
    interface = getattr(view.obj, "__array_interface__", None)
    return interface and block_at(interface["data"][0], view.nbytes)


def block(index):
    """To be called by what a pickle calls to make an object. Returns the block of that index."""
    return _loading.blocks[index]


CData = ctypes.c_int.__mro__[-2]  # What all types of ctypes derive from.
_reducers = {}  # By type: function(blocks, value), which returns as __reduce__ does, or NotImplemented.


def reducer(kind):
    """Decorates the function that pickles objects of exactly that type; for CData, of all types of ctypes."""

    def set_reducer(function):
        _reducers[kind] = function
        return function

    return set_reducer


def _add_torch():
    # Another thread may be importing it: a program that has a tensor has imported it.
    torch = sys.modules.get("torch")
    if hasattr(torch, "Tensor") and hasattr(torch, "frombuffer") and torch.Tensor not in _reducers:
        from retinue.multiprocessing import _tensors

        for kind in _tensors.kinds():
            _reducers[kind] = _tensors.reduce_tensor


_table = collections.ChainMap(reduction.ForkingPickler._extra_reducers, copyreg.dispatch_table)


class _Pickler(pickle.Pickler):
    """For what is sent in a way of its own."""

    dispatch_table = _table

    def __init__(self, file, blocks, buffer_callback):
        super().__init__(file, pickle.HIGHEST_PROTOCOL, buffer_callback=buffer_callback)
        self._blocks = blocks

    def reducer_override(self, value):
        reduce = _reducers.get(CData if isinstance(value, CData) else type(value))
        return NotImplemented if reduce is None else reduce(self._blocks, value)


def _value_pickler():
    """Returns such a class that pickles by value what no other process could import. Errors: ImportError."""
    import cloudpickle

    class Pickler(cloudpickle.Pickler):
        dispatch_table = collections.ChainMap(*_table.maps, *cloudpickle.Pickler.dispatch_table.maps)

        def __init__(self, file, blocks, buffer_callback):
            super().__init__(file, pickle.HIGHEST_PROTOCOL, buffer_callback)
            self._blocks = blocks

        def reducer_override(self, value):
            reduced = _Pickler.reducer_override(self, value)
            return super().reducer_override(value) if reduced is NotImplemented else reduced

    return Pickler


def _pickled(value, blocks, pickler, buffer_callback=None):
    _add_torch()
    file = io.BytesIO()
    file.write(bytes(_HEADER))
    pickler(file, blocks, buffer_callback).dump(value)
    if blocks.buffers:
        file.getbuffer()[:_HEADER] = len(blocks.buffers).to_bytes(_HEADER, "little")
    return file.getvalue()


def dumps_arguments(value, by_value=False):
    """Returns a pickle for one or more processes, and its list of blocks. Each has copies of its own of what is copied.

    `by_value`: by cloudpickle. Errors: what pickle raises; ImportError without cloudpickle.
    """
    blocks = _Blocks(copies=False)
    return _pickled(value, blocks, _value_pickler() if by_value else _Pickler), blocks.all()


def dumps(value):
    """Returns a pickle for one process, and its list of blocks. NumPy arrays and tensors are copied into blocks, unless
    they are in job memory already.

    Errors: what pickle raises; RuntimeError if there is no memory.
    """
    blocks = _Blocks(copies=True)
    return _message_of(_pickled(value, blocks, _Pickler, blocks.take), blocks.all())


def _message_of(pickled, blocks):
    """Returns what _core sends: of a long pickle, a block."""
    if len(pickled) < LEAST_BLOCK:
        return pickled, blocks
    return b"", [*blocks, _copy_of(memoryview(pickled))]


def _opened(pickled, blocks):
    """Returns a view of the pickle with its header, and the blocks that it refers to."""
    if pickled:
        return memoryview(pickled), blocks
    return memoryview(buffer_of(blocks[-1])).cast("B"), blocks[:-1]


def message_of_bytes(data):
    """Returns a message, as dumps does, of bytes that are no pickle of ours."""
    return _message_of(_BYTES + data, [])


def bytes_of(pickled, blocks):
    """Returns what message_of_bytes got; of another message, a pickle of its value."""
    view, others = _opened(pickled, blocks)
    if view[:_HEADER] == _BYTES or not others:
        return view[_HEADER:]
    return reduction.ForkingPickler.dumps(loads(pickled, blocks))


def loads(pickled, blocks):
    """Returns the value of which dumps or dumps_arguments returned these, or that is pickled in what message_of_bytes got."""
    view, blocks = _opened(pickled, blocks)
    if view[:_HEADER] == _BYTES:
        return pickle.loads(view[_HEADER:])
    count = int.from_bytes(view[:_HEADER], "little")
    outer = getattr(_loading, "blocks", None)
    _loading.blocks = blocks[count:]
    try:
        return pickle.loads(view[_HEADER:], buffers=map(buffer_of, blocks[:count]))
    finally:
        _loading.blocks = outer


class SharedObject:
    """What reaches other processes by the job memory that it is in: `_object`, an object of _core."""

    def __init_subclass__(cls, **kwargs):
        super().__init_subclass__(**kwargs)
        reducer(cls)(_reduce_object)

    def __getstate__(self):
        return self.__dict__

    def __setstate__(self, state):
        self.__dict__.update(state)

    def __reduce__(self):
        raise RuntimeError(f"a {type(self).__name__} reaches other processes only as an argument of a process that "
                           "retinue.multiprocessing starts, or in one of its queues and pipes")


def _reduce_object(blocks, value):
    shared = value._object
    if shared is None:
        raise OSError(f"the {type(value).__name__} is closed")
    sent, held = shared.sent()
    for block in held:
        blocks.add(block)
    state = value.__getstate__()
    if isinstance(state, dict):  # Of a derived class, which may return all that it has.
        state = {name: part for name, part in state.items() if name != "_object"}
    return _restored_object, (type(value), type(shared), sent, state)


def _restored_object(kind, shared, sent, state):
    value = kind.__new__(kind)
    value.__setstate__(state)
    value._object = shared.received(sent)
    return value

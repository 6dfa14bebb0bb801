"""Pipes in job memory."""

import io
from multiprocessing import connection

from retinue import _core
from retinue.multiprocessing import _shared, _start


class Connection(_shared.SharedObject, connection._ConnectionBase):
    """multiprocessing.connection.Connection. It is open for as long as a process has it, or a message in which it is."""

    _object = None

    def __init__(self, shared, readable=True, writable=True):
        self._object = shared
        self._readable = readable
        self._writable = writable

    @property
    def _handle(self):
        return self._object

    @_handle.setter
    def _handle(self, handle):
        self._object = handle

    def _close(self):
        """Does nothing: close() drops the handle."""

    def fileno(self):
        """Returns a descriptor that is readable when recv() would return or raise at once."""
        self._check_closed()
        self._check_readable()
        return self._object.descriptor()

    def _send(self, pickled, blocks):
        if not self._object.send(pickled, blocks):
            raise BrokenPipeError("no process has the other end of the pipe any more")

    def _recv(self):
        message = self._object.recv()
        if message is None:
            raise EOFError("all messages were received, and no process has the other end of the pipe any more")
        return message

    def _poll(self, timeout):
        return self._object.poll(timeout)

    def send(self, obj):
        """Sends an object; waits while the pipe is full. Errors: what pickle raises; BrokenPipeError."""
        self._check_closed()
        self._check_writable()
        self._send(*_shared.dumps(obj))

    def recv(self):
        """Waits for an object. NumPy arrays and tensors lie in job memory, and belong to the caller. Errors: EOFError."""
        self._check_closed()
        self._check_readable()
        return _shared.loads(*self._recv())

    def _send_bytes(self, buf):
        self._send(*_shared.message_of_bytes(buf))

    def _recv_bytes(self, maxsize=None):
        data = _shared.bytes_of(*self._recv())
        if maxsize is not None and len(data) > maxsize:
            return None
        received = io.BytesIO()
        received.write(data)
        return received


def Pipe(duplex=True):
    """multiprocessing.Pipe."""
    _start.warm()
    first, second = _core.pipe(duplex)
    return Connection(first, True, duplex), Connection(second, duplex, True)

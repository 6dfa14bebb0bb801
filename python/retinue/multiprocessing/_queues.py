"""Queues in job memory: a put copies a value there once, and a get copies nothing that is large."""

import queue

from retinue import _core
from retinue.multiprocessing import _shared, _start, _synchronize


class SimpleQueue(_shared.SharedObject):
    """multiprocessing.SimpleQueue. It has no capacity: it holds what fits into job memory."""

    def __init__(self):
        _start.warm()
        self._object = _core.SimpleQueue.create()

    def put(self, obj):
        """Puts a value, which another process can get at once. Does not wait. Errors: what pickle raises."""
        self._object.put(*_shared.dumps(obj), 0)

    def get(self):
        """Waits for a value, and returns it. NumPy arrays and tensors lie in job memory, and belong to the caller."""
        return _shared.loads(*self._object.get(None))

    def empty(self):
        """Returns whether it is empty at the moment of the call."""
        return self._object.empty()

    def close(self):
        """Does nothing, as there is nothing to be closed: memory is freed with the last process that has the queue."""


class Queue(_shared.SharedObject):
    """multiprocessing.Queue. A put leaves nothing to be done in the background: its value arrives if the process ends."""

    def __init__(self, maxsize=0):
        _start.warm()
        self._maxsize = max(maxsize, 0)
        self._object = _core.Queue.create(self._maxsize) if maxsize > 0 else _core.SimpleQueue.create()
        self._is_closed = False

    def _check_open(self):
        if self._is_closed:
            raise ValueError(f"Queue {self!r} is closed")

    def put(self, obj, block=True, timeout=None):
        """Puts a value; waits while the queue is full. Errors: queue.Full if it still is; what pickle raises."""
        self._check_open()
        if not self._object.put(*_shared.dumps(obj), timeout if block else 0):
            raise queue.Full

    def get(self, block=True, timeout=None):
        """Returns a value; waits while there is none. NumPy arrays and tensors lie in job memory, and belong to the caller.

        Errors: queue.Empty if none came in time.
        """
        self._check_open()
        message = self._object.get(timeout if block else 0)
        if message is None:
            raise queue.Empty
        return _shared.loads(*message)

    def put_nowait(self, obj):
        """As put(obj, False)."""
        self.put(obj, False)

    def get_nowait(self):
        """As get(False)."""
        return self.get(False)

    def qsize(self):
        """Returns how many values nobody got yet, at the moment of the call."""
        return self._object.size()

    def empty(self):
        """Returns whether it is empty at the moment of the call."""
        return self._object.empty()

    def full(self):
        """Returns whether it is full at the moment of the call."""
        return self._maxsize > 0 and self._object.full()

    def close(self):
        """This process uses the queue no more."""
        self._is_closed = True

    def join_thread(self):
        """Does nothing: put has done all."""

    def cancel_join_thread(self):
        """Does nothing: put has done all."""


class JoinableQueue(Queue):
    """multiprocessing.JoinableQueue."""

    def __init__(self, maxsize=0):
        super().__init__(maxsize)
        self._unfinished = _synchronize.Semaphore(0)
        self._changed = _synchronize.Condition()

    def put(self, obj, block=True, timeout=None):
        """As Queue.put."""
        self._unfinished.release()  # Before a process can get it, and be done with it.
        try:
            super().put(obj, block, timeout)
        except BaseException:
            self.task_done()
            raise

    def task_done(self):
        """Says that a value that was got is done with. Errors: ValueError if all that were put are."""
        with self._changed:
            if not self._unfinished.acquire(False):
                raise ValueError("task_done() called too many times")
            if self._unfinished.get_value() == 0:
                self._changed.notify_all()

    def join(self):
        """Waits until all values that were put are done with."""
        with self._changed:
            while self._unfinished.get_value() > 0:
                self._changed.wait()

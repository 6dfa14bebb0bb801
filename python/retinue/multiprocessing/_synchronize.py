"""Locks, events and their like in job memory. A process that is killed while it holds a lock does not keep it."""

import threading
import time

from retinue import _core
from retinue.multiprocessing import _shared, _start


class _Acquired(_shared.SharedObject):

    def __enter__(self):
        return self.acquire()

    def __exit__(self, *_):
        self.release()

    def acquire(self, block=True, timeout=None):
        """Waits until it is free, at most `timeout` seconds, and takes it. Returns whether it was free in time."""
        return self._object.acquire(timeout if block else 0)


class Lock(_Acquired):
    """multiprocessing.Lock. Only the thread that acquired it can release it; a Semaphore(1) any thread can."""

    _kind = _core.Lock

    def __init__(self):
        _start.warm()
        self._object = self._kind.create()

    def __repr__(self):
        return f"<{type(self).__name__}({'locked' if self.locked() else 'unlocked'})>"

    def release(self):
        """Releases it. Errors: ValueError if this thread does not hold it."""
        self._object.release()

    def locked(self):
        """Returns whether some thread holds it, at the moment of the call."""
        return self._object.locked()

    def _check_held(self):
        """Errors: AssertionError, as multiprocessing's."""
        if not self._object.is_held():
            raise AssertionError("the calling thread does not hold the lock: acquire it first")

    def owner_died(self):
        """Returns whether the holder before this one died with it, so that what it guards may be half changed."""
        return self._object.owner_died()


class RLock(Lock):
    """multiprocessing.RLock: its holder can acquire it again, and releases it as often."""

    _kind = _core.RLock

    def release(self):
        """Releases it once. Errors: AssertionError if this thread does not hold it."""
        self._check_held()
        super().release()


class Semaphore(_Acquired):
    """multiprocessing.Semaphore. It has no owner: a process that is killed before its release leaves it one less."""

    _kind = _core.Semaphore

    def __init__(self, value=1):
        _start.warm()
        self._object = self._kind.create(value)

    def __repr__(self):
        return f"<{type(self).__name__}(value={self.get_value()})>"

    def release(self):
        """Adds one. Errors: ValueError if that is too much."""
        self._object.release()

    def get_value(self):
        """Returns the value at the moment of the call."""
        return self._object.get_value()

    # What multiprocessing.queues.Queue asks of the semaphore that a context made for it, as in concurrent.futures.
    _semlock = property(lambda self: self)
    _get_value = get_value

    def _is_zero(self):
        return self.get_value() == 0


class BoundedSemaphore(Semaphore):
    """multiprocessing.BoundedSemaphore: its value never exceeds the first one."""

    _kind = _core.BoundedSemaphore


class Event(_shared.SharedObject):
    """multiprocessing.Event."""

    def __init__(self):
        _start.warm()
        self._object = _core.Event.create()

    def __repr__(self):
        return f"<Event at {id(self):#x} {'set' if self.is_set() else 'unset'}>"

    def is_set(self):
        """Returns whether it is set."""
        return self._object.is_set()

    def set(self):
        """Sets it, and wakes all that wait."""
        self._object.set()

    def clear(self):
        """Clears it."""
        self._object.clear()

    def wait(self, timeout=None):
        """Waits until it is set, at most `timeout` seconds. Returns whether it was in time, even if only for a moment."""
        return self._object.wait(timeout)


class Condition(_Acquired):
    """multiprocessing.Condition. A notify for a process that is killed goes to another one that waits."""

    def __init__(self, lock=None):
        _start.warm()
        lock = RLock() if lock is None else lock
        if not isinstance(lock, Lock):
            raise TypeError(f"lock is a {type(lock).__module__}.{type(lock).__qualname__}: it must be a Lock or RLock of "
                            "retinue.multiprocessing")
        self._lock = lock
        self._object = _core.Condition.create(lock._object)

    def __repr__(self):
        return f"<Condition({self._lock!r})>"

    def acquire(self, block=True, timeout=None):
        """As its lock's acquire."""
        return self._lock.acquire(block, timeout)

    def release(self):
        """As its lock's release."""
        self._lock.release()

    def wait(self, timeout=None):
        """Releases the lock, waits for a notify, at most `timeout` seconds, and acquires it. Returns whether one came.

        Errors: AssertionError if this thread does not hold the lock.
        """
        self._lock._check_held()
        return self._object.wait(timeout)

    def wait_for(self, predicate, timeout=None):
        """Waits until `predicate()` is true, at most `timeout` seconds. Returns what it returned last."""
        end = None if timeout is None else time.monotonic() + timeout
        while not (result := predicate()):
            left = None if end is None else end - time.monotonic()
            if left is not None and left <= 0:
                break
            self.wait(left)
        return result

    def notify(self, n=1):
        """Wakes the `n` that have waited longest. Errors: AssertionError if this thread does not hold the lock."""
        self._lock._check_held()
        self._object.notify(n)

    def notify_all(self):
        """Wakes all that wait. Errors: AssertionError if this thread does not hold the lock."""
        self._lock._check_held()
        self._object.notify_all()


class Barrier(_shared.SharedObject):
    """multiprocessing.Barrier. It also breaks when a process is killed that waits there."""

    def __init__(self, parties, action=None, timeout=None):
        _start.warm()
        self._object = _core.Barrier.create(parties)
        self._action = action
        self._timeout = timeout

    def __repr__(self):
        state = "broken" if self.broken else f"waiters={self.n_waiting}/{self.parties}"
        return f"<Barrier at {id(self):#x}: {state}>"

    def wait(self, timeout=None):
        """Waits for the others, at most `timeout` seconds, by default as long as the constructor says.

        Returns how many had come before: each from 0 to parties-1 is one's.
        Errors: threading.BrokenBarrierError, which says how it broke; what the action raised, for the one that called it.
        """
        place = self._object.wait(self._action, self._timeout if timeout is None else timeout)
        if isinstance(place, str):
            raise threading.BrokenBarrierError(place)
        return place

    def reset(self):
        """Repairs and empties it. Those that wait get a BrokenBarrierError."""
        self._object.reset()

    def abort(self):
        """Breaks it."""
        self._object.abort()

    @property
    def parties(self):
        """How many it waits for."""
        return self._object.parties()

    @property
    def n_waiting(self):
        """How many wait, at the moment of the call."""
        return self._object.n_waiting()

    @property
    def broken(self):
        """Whether it is broken."""
        return self._object.broken()

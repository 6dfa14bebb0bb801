"""Process, and the contexts that multiprocessing's other classes take their processes from."""

import itertools
import os
import signal
import sys
import traceback
from multiprocessing import context as _context
from multiprocessing import process as _process
from multiprocessing import util as _util

from retinue import _core
from retinue.multiprocessing import _connection, _queues, _serve, _sharedctypes, _start, _synchronize


def _run(_rank, process):
    """In the new process: runs it, as BaseProcess._bootstrap does, but leaves exceptions to the caller, who reports them."""
    _process._process_counter = itertools.count(1)
    _process._children = set()
    _util._close_stdin()
    _process._current_process = process
    try:
        process.run()
    except Exception:
        if sys.stderr is not sys.__stderr__ and sys.stderr is not None:  # Which is all that reports go to.
            print(f"Process {process.name}:", file=sys.stderr)
            traceback.print_exc()
            sys.stderr.flush()
        raise


class _Popen:
    """What BaseProcess calls to start a process and to look after it."""

    def __init__(self, process, executed):
        self.returncode = None
        self._owner = os.getpid()
        self._is_interrupted = False
        # Ranks get these of their own, as from torchrun. A Process is no rank, and keeps its parent's.
        names = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE")
        [payload] = _start.payloads_of(_run, (process,), variables={name: os.environ.get(name) for name in names})
        _start.warm()
        self._process = _core.start_process(payload, process.name, executed, bool(process.daemon))
        self.pid = self._process.pid()
        self.sentinel = self._process.sentinel()

    def _is_mine(self):
        return os.getpid() == self._owner  # A fork of the parent is not the parent.

    def poll(self):
        if self.returncode is None and self._is_mine():
            try:
                self.returncode = self._process.exitcode()
            except ProcessLookupError:  # The guardian was killed, and the process with it.
                self.returncode = -signal.SIGKILL
        return self.returncode

    def _runs(self):
        return self.poll() is None and self._is_mine()

    def wait(self, timeout=None):
        try:
            return self.poll() if self._is_mine() and self._process.join(timeout) else self.returncode
        except ProcessLookupError:
            return self.poll()
        except KeyboardInterrupt:
            self.pass_interrupt_on()
            raise

    def pass_interrupt_on(self):
        """The terminal's Ctrl-C reaches only processes of the program's own group."""
        if not self._is_interrupted:
            self._is_interrupted = True
            self.interrupt()

    def interrupt(self):
        if self._runs():
            os.kill(self.pid, signal.SIGINT)

    def terminate(self):
        if self._runs():
            self._process.terminate()

    def kill(self):
        if self._runs():
            self._process.kill()

    def close(self):
        if self.poll() is not None and self._is_mine():
            try:
                self._process.close()
            except ProcessLookupError:
                pass


def _interrupt_children():
    """Where Ctrl-C ends the program, it ends its processes too."""
    if _serve.is_interrupted():
        for process in _process.active_children():
            if isinstance(process._popen, _Popen):
                process._popen.pass_interrupt_on()


_serve.call_at_exit(_interrupt_children)


class Process(_process.BaseProcess):
    """multiprocessing.Process as a fork of a guardian that has imported what takes long."""

    _start_method = None  # In it, multiprocessing's own default is what the program set.

    @staticmethod
    def _Popen(process):
        return _Popen(process, _start.is_executed(None))


class _ExecutedProcess(_process.BaseProcess):
    _start_method = None

    @staticmethod
    def _Popen(process):
        return _Popen(process, True)


def signal_of(code):
    """Returns the name of the signal of such an exit code, or None."""
    return next((each.name for each in signal.Signals if each == -code), f"signal {-code}") if code < 0 else None


def end_of(code):
    """Returns how a process ended, as "was killed by SIGKILL"."""
    return f"was killed by {signal_of(code)}" if code < 0 else f"exited with code {code}"


class Context(_context.BaseContext):
    """For the parameter that is called `context`, `mp_context` or `multiprocessing_context`."""

    _name = "forkserver"
    Process = Process

    Lock = _synchronize.Lock
    RLock = _synchronize.RLock
    Semaphore = _synchronize.Semaphore
    BoundedSemaphore = _synchronize.BoundedSemaphore
    Event = _synchronize.Event
    Condition = _synchronize.Condition
    Barrier = _synchronize.Barrier
    Value = staticmethod(_sharedctypes.Value)
    Array = staticmethod(_sharedctypes.Array)
    RawValue = staticmethod(_sharedctypes.RawValue)
    RawArray = staticmethod(_sharedctypes.RawArray)
    Pipe = staticmethod(_connection.Pipe)
    Queue = _queues.Queue
    JoinableQueue = _queues.JoinableQueue

    def Pool(self, processes=None, initializer=None, initargs=(), maxtasksperchild=None):
        from retinue.multiprocessing import _pool

        return _pool.Pool(processes, initializer, initargs, maxtasksperchild, self)

    # SimpleQueue is multiprocessing's own: libraries, which get a context, use the connections in it.

    def get_start_method(self, allow_none=False):
        return self._name

    def set_start_method(self, method, force=False):
        raise RuntimeError("a context has its start method: get another one by get_context(method)")


class _ExecutedContext(Context):
    _name = "spawn"
    Process = _ExecutedProcess


_contexts = {False: Context(), True: _ExecutedContext()}


def get_context(method=None):
    """Returns what starts processes by `method`: None or "forkserver", or "spawn"."""
    return _contexts[_start.is_executed(method)]

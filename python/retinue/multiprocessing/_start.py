"""What each start of a process needs: the guardian, and the function with its arguments as bytes."""

import atexit
import io
import os
import pickle
import sys
import threading
from multiprocessing import context as _context
from multiprocessing import resource_sharer, resource_tracker
from multiprocessing import spawn as _spawn
from multiprocessing import util as _util

from retinue import _core
from retinue.multiprocessing import _serve

# What takes seconds to import; the guardian does so once. By default: those of these that this process has.
_SLOW_MODULES = ("numpy", "torch")
# Ranks get these of their own, as from torchrun. A Process is no rank, and keeps its parent's.
RANK_VARIABLES = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE")

_lock = threading.Lock()
_is_registered = False


def _stop():
    # Python's own handler waits for processes, or terminates daemonic ones, which needs the job.
    _util._exit_function()
    _core.stop()


def _check_interpreter():
    """Errors: RuntimeError in a program that is no interpreter, but has one in it: it could not be executed as one."""
    try:
        is_interpreter = os.path.samefile(sys.executable, "/proc/self/exe")
    except OSError:
        is_interpreter = False
    if not is_interpreter:
        raise RuntimeError(f"processes can't be started here: this process is not Python's program sys.executable, "
                           f"{sys.executable!r}, but {os.readlink('/proc/self/exe')!r}")


def warm(*modules):
    """Starts the guardian, the process whose forks run functions, with these modules imported.

    The first start of a process does so by itself, with NumPy and PyTorch if this process has imported them. Later
    calls have no effect, since there is one guardian. It imports while this process goes on.
    Errors: RuntimeError in a program that is no Python interpreter; OSError if the guardian can't be started.
    """
    global _is_registered
    with _lock:
        if not _is_registered:
            _check_interpreter()
            program = sys.argv[0] if sys.argv and sys.argv[0] not in ("", "-c") else "python"
            _core.start(program, _serve.command(modules or [name for name in _SLOW_MODULES if name in sys.modules]))
            atexit.register(_stop)
            _is_registered = True


def is_executed(start_method):
    """Returns whether that method starts an interpreter for each process. Errors: ValueError for an unknown method."""
    if start_method not in (None, "forkserver", "spawn"):
        raise ValueError(f"start_method is {start_method!r}: it must be None, 'forkserver' or 'spawn'")
    return start_method == "spawn"


class _Spawning:
    """What the standard library asks, while it pickles for a new process, for how descriptors reach it."""

    def __init__(self):
        self.passes_descriptors = False

    def DupFd(self, fd):
        self.passes_descriptors = True
        return resource_sharer.DupFd(fd)

    @staticmethod
    def duplicate_for_child(fd):
        return fd


def _pickled_by_value(work):
    """Returns the pickle of a function without a name that another process could import. Errors: ImportError."""
    import cloudpickle

    buffer = io.BytesIO()
    pickler = cloudpickle.Pickler(buffer)
    pickler.dispatch_table = pickler.dispatch_table.new_child(_context.reduction.ForkingPickler._extra_reducers)
    pickler.dump(work)
    return buffer.getvalue()


def _pickled(work):
    main = sys.modules["__main__"]
    # What is typed into an interpreter or a notebook is in no file that another process could import.
    is_typed = getattr(main, "__file__", None) is None and getattr(main, "__spec__", None) is None
    try:
        if not is_typed:
            return bytes(_context.reduction.ForkingPickler.dumps(work))
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        try:
            return _pickled_by_value(work)
        except ImportError:
            raise error from None
    try:
        return _pickled_by_value(work)
    except ImportError:
        raise ImportError("functions that are typed in need the package cloudpickle to reach another process: install "
                          "it, or put them into a module") from None


def payloads_of(fn, args, nprocs=1):
    """Returns `fn(rank, *args)` as bytes for _serve: a list with one element for all ranks, or one for each.

    Errors: what pickle raises.
    """
    _util._flush_std_streams()  # Before the processes print.
    preparation = _spawn.get_preparation_data("")
    del preparation["name"], preparation["start_method"]
    spawning = _Spawning()
    _context.set_spawning_popen(spawning)
    try:
        works = [_pickled((fn, args))]
        if spawning.passes_descriptors:  # Each is for one process.
            works += [_pickled((fn, args)) for _ in range(nprocs - 1)]
        # Who made shared memory frees it. A process with a tracker of its own would do so at its end.
        fd = getattr(resource_tracker._resource_tracker, "_fd", None)
        tracker = None if fd is None else f"/proc/{os.getpid()}/fd/{fd}"
        return [pickle.dumps((preparation, tracker, work)) for work in works]
    finally:
        _context.set_spawning_popen(None)

"""What each start of a process needs: the guardian, and the function with its arguments as bytes."""

import multiprocessing
import os
import pickle
import signal
import sys
import threading
from multiprocessing import context as _context
from multiprocessing import process as _process
from multiprocessing import resource_sharer, resource_tracker
from multiprocessing import spawn as _spawn
from multiprocessing import util as _util

from retinue import _core
from retinue.multiprocessing import _serve, _shared

# What takes seconds to import; the guardian does so once. By default: those of these that this process has.
_SLOW_MODULES = ("numpy", "torch")

_lock = threading.Lock()
_warmed_by = None  # The process.
_default_method = None


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
    Errors: RuntimeError in a program that is no Python interpreter, and in a fork of a process that has a guardian;
    OSError if the guardian can't be started.
    """
    global _warmed_by
    with _lock:
        if _serve.is_guardian or _warmed_by == os.getpid():
            return
        if _warmed_by is not None:
            raise RuntimeError("this process is a fork of one that has started processes, and can't start any itself: "
                               "fork before the first start, or start this process by mp.Process instead of os.fork")
        _check_interpreter()
        program = sys.argv[0] if sys.argv and sys.argv[0] not in ("", "-c") else "python"
        _core.start(program, _serve.command(modules or [name for name in _SLOW_MODULES if name in sys.modules]))
        _warmed_by = os.getpid()


def _check_method(method):
    if method not in (None, "forkserver", "spawn"):
        raise ValueError(f"start_method is {method!r}: it must be None, 'forkserver' or 'spawn'")


def is_executed(start_method):
    """Returns whether that method, or the default if it is None, starts an interpreter for each process.

    Errors: ValueError for an unknown method.
    """
    _check_method(start_method)
    return (start_method or _default_method) == "spawn"


def set_start_method(method, force=False):
    """Sets the default: None or "forkserver", or "spawn". Errors: ValueError; RuntimeError for a second call without force."""
    global _default_method
    _check_method(method)
    if _default_method is not None and not force:
        raise RuntimeError("the start method has been set already: pass force=True to change it")
    _default_method = method


def get_start_method(allow_none=False):
    """Returns the default, as set_start_method set it."""
    return _default_method or (None if allow_none else "forkserver")


def get_all_start_methods():
    """Returns the start methods, the default first."""
    return ["forkserver", "spawn"]


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


def _pickled(work):
    main = sys.modules["__main__"]
    # What is typed into an interpreter or a notebook is in no file that another process could import.
    is_typed = getattr(main, "__file__", None) is None and getattr(main, "__spec__", None) is None
    if is_typed:
        try:
            return _shared.dumps_arguments(work, by_value=True)
        except ImportError:
            pass
        try:
            pickled = _shared.dumps_arguments(work)
        except (pickle.PicklingError, AttributeError):
            pickled = b"__main__", []
        if b"__main__" not in pickled[0]:
            return pickled
        raise ImportError("functions and classes that are typed in need the package cloudpickle to reach another "
                          "process: install it, or put them into a module")
    try:
        return _shared.dumps_arguments(work)
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        try:
            return _shared.dumps_arguments(work, by_value=True)
        except ImportError:
            raise error from None


def payloads_of(fn, args, nprocs=1, variables=()):
    """Returns `fn(rank, *args)` for _serve, each as a pickle and the blocks that it refers to: a list with one element
    for all ranks, or one for each.

    `variables`: what the environment is to have there, by name; None: it has it not.
    Errors: what pickle raises; RuntimeError while the main module is imported by a process that was started.
    """
    if _serve.is_guardian:
        raise RuntimeError("a module that the guardian imports starts a process while it is imported: start it in a "
                           "function, or don't name that module to warm()")
    _util._flush_std_streams()  # Before the processes print.
    has_method = multiprocessing.get_start_method(allow_none=True) is not None
    preparation = _spawn.get_preparation_data("")
    del preparation["name"]
    if not has_method:
        del preparation["start_method"]
    spawning = _Spawning()
    _context.set_spawning_popen(spawning)
    try:
        works = [_pickled((fn, args))]
        # A descriptor is for one process, and PyTorch counts the processes that a tensor is pickled for.
        if spawning.passes_descriptors or "torch" in sys.modules:
            works += [_pickled((fn, args)) for _ in range(nprocs - 1)]
        # Who made shared memory frees it. A process with a tracker of its own would do so at its end.
        tracker = f"/proc/{os.getpid()}/fd/{resource_tracker.getfd()}"
        parent = (_process.current_process().name, os.getpid())
        ignored = [number for number in signal.valid_signals() if signal.getsignal(number) == signal.SIG_IGN]
        place = (parent, ignored, tracker, dict(variables), preparation)
        return [(pickle.dumps((*place, work)), blocks) for work, blocks in works]
    finally:
        _context.set_spawning_popen(None)

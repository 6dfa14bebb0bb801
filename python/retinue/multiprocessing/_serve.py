"""What the guardian and the ranks of Python programs execute, and how a process that used this module ends."""

import atexit
import gc
import importlib
import os
import pickle
import pkgutil  # noqa: F401: what imports a main module needs it, so each process would import it.
import signal
import sys
import threading
import time
import traceback
import weakref
from multiprocessing import process as _process
from multiprocessing import resource_tracker
from multiprocessing import spawn as _stdlib_spawn
from multiprocessing import util as _util

from retinue import _core
from retinue.multiprocessing import _shared

is_guardian = False  # Or is about to be: it imports modules, and may start nothing.
_MOST_CHARACTERS = 4000  # Of a message, and of each part of a traceback.
_at_exit = []  # Functions that are called first when this process ends.


def command(modules):
    """Returns the command that executes a guardian which imports `modules` before it forks."""
    path = [folder for folder in sys.path if isinstance(folder, str)]
    code = f"import sys; sys.path = {path!a}; from retinue.multiprocessing import _serve; _serve.main({list(modules)!a})"
    return [sys.executable, *_util._args_from_interpreter_flags(), "-c", code]


def main(modules):
    """Imports the modules and becomes what the environment says. Does not return."""
    global is_guardian
    is_guardian = True
    with open("/proc/self/comm", "w") as comm:  # As ps shows the processes.
        comm.write(os.path.basename(sys.executable))
    for name in modules:
        try:
            importlib.import_module(name)
        except Exception as error:
            print(f"retinue: the guardian can't import {name}, so each process will: {error!r}", file=sys.stderr)
    _core.set_runner(_run)
    _util._flush_std_streams()  # Else each fork would print what the modules printed.
    # Forks share the pages of what lives now, until it is written: the collector would write into each object.
    gc.collect()
    gc.freeze()
    _core.serve(sys.orig_argv)


def call_at_exit(function):
    """Has `function` called when this process ends, before its processes are ended."""
    _at_exit.append(function)


def _stop():
    if os.getpid() != _pid:
        return  # A fork of this process, whose children are its parent's.
    try:
        for function in _at_exit:
            function()
        # Python's own handler waits for processes, or terminates daemonic ones, which needs the job.
        _util._exit_function()
    finally:
        _core.stop(is_interrupted())


def is_interrupted():
    """Returns whether Ctrl-C ends this process."""
    return getattr(sys, "last_type", None) is KeyboardInterrupt


def _stop_at_exit():
    global _pid
    _pid = os.getpid()
    atexit.register(_stop)


_stop_at_exit()  # On import, so that it runs after the handlers that the program registers.


def _drop_exit_handlers():
    """Those of the guardian are not this process's."""
    atexit._clear()
    _util._finalizer_registry.clear()
    _util._run_after_forkers()
    weakref.finalize._registry.clear()
    weakref.finalize._registered_with_atexit = False
    if "logging" in sys.modules:
        atexit.register(sys.modules["logging"].shutdown)
    _stop_at_exit()


def _reload_environment(changes):
    """os.environ is a copy that the guardian made when it started."""
    variables = os.environ._data
    variables.clear()
    for variable in _core.environment():
        name, _, value = variable.partition(b"=")
        variables[name] = value
    for name, value in changes.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value


def _set_threads(cpus):
    """Ranks share the CPUs instead of fighting for them, unless the program says otherwise."""
    if "torch" in sys.modules:
        wanted = os.environ.get("OMP_NUM_THREADS", "").partition(",")[0]
        sys.modules["torch"].set_num_threads(int(wanted) if wanted.isdecimal() and int(wanted) > 0 else cpus)


def _seed():
    """Seeds generators anew. Python's own does so at a fork."""
    if "numpy.random" in sys.modules:
        sys.modules["numpy"].random.seed()
    if "torch" in sys.modules:
        sys.modules["torch"].default_generator.seed()


def _share_tracker(path):
    try:
        resource_tracker._resource_tracker._fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    except OSError:
        pass  # The parent has ended.


def _prepare(rank, cpus, parent, ignored, tracker, variables, preparation):
    """Makes a fork of the guardian what a new interpreter would be."""
    global is_guardian
    is_guardian = False
    _drop_exit_handlers()
    _reload_environment(variables)
    time.tzset()
    if sys.stdout is not None:
        sys.stdout.reconfigure(line_buffering=True)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for number in ignored:  # As an executed program inherits it. Python itself ignores SIGPIPE.
        signal.signal(number, signal.SIG_IGN)
    _seed()
    _set_threads(cpus)
    _share_tracker(tracker)
    # A pidfd is readable when the parent has ended.
    _process._parent_process = _process._ParentProcess(*parent, _core.pidfd_open(parent[1]))
    current = _process.current_process()
    current.name = f"Process-{rank}"
    # An unguarded start in the main module, which is imported now, is refused by that.
    current._inheriting = True
    try:
        _stdlib_spawn.prepare(preparation)
    finally:
        del current._inheriting


def _is_before_the_program(file):
    return file == _process.__file__ or os.path.dirname(file) == os.path.dirname(__file__)


def _printable(text):
    """Returns a text that a failure can hold, without what is no character, and without what is too long to be read."""
    text = text if len(text) <= _MOST_CHARACTERS else text[:_MOST_CHARACTERS] + " ...\n"
    return text.replace("\0", "\\0").encode("utf-8", "backslashreplace").decode()


def _described(error):
    """Returns type, message and traceback of an exception; the traceback begins with the program's own function."""
    frames = error.__traceback__
    while frames is not None and _is_before_the_program(frames.tb_frame.f_code.co_filename):
        frames = frames.tb_next
    kind = type(error)
    name = kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
    try:
        message = str(error)
    except Exception as second:
        message = f"(its message can't be had: {second!r})"
    lines = traceback.format_exception(kind, error, frames or error.__traceback__)
    return name, _printable(message), "".join(map(_printable, lines))


def _code_of(end):
    """Returns the exit code of a SystemExit, None for 0."""
    if end.code is None or isinstance(end.code, int):
        return (end.code or 0) & 0xFF or None
    print(end.code, file=sys.stderr)
    return 1


def _run(rank, cpus, payload, blocks):
    """Runs what a payload says, as `rank`. Returns None, an exit code, or what it raised, as _described does."""
    own = os.getpid()
    result = None
    try:
        *place, work = pickle.loads(payload)
        _prepare(rank, cpus, *place)
        fn, args = _shared.loads(work, blocks)
        try:
            fn(rank, *args)
        finally:
            if os.getpid() == own:
                _util._exit_function()
    except SystemExit as end:
        result = _code_of(end)
    except BaseException as error:
        result = _described(error)
    if os.getpid() == own:
        threading._shutdown()
        atexit._run_exitfuncs()
    _util._flush_std_streams()
    if os.getpid() != own:  # A fork that left the function as a program's fork leaves its main module.
        if isinstance(result, tuple):
            print(result[2], file=sys.stderr, end="", flush=True)
            result = 1
        os._exit(result or 0)
    return result

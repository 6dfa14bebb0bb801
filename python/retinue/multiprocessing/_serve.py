"""What the guardian and the ranks of Python programs execute."""

import atexit
import gc
import importlib
import os
import pickle
import signal
import sys
import threading
import traceback
from multiprocessing import process as _process
from multiprocessing import resource_tracker
from multiprocessing import spawn as _stdlib_spawn
from multiprocessing import util as _util

from retinue import _core


def command(modules):
    """Returns the command that executes a guardian which imports `modules` before it forks."""
    path = [folder for folder in sys.path if isinstance(folder, str)]
    code = f"import sys; sys.path = {path!r}; from retinue.multiprocessing import _serve; _serve.main({list(modules)!r})"
    return [sys.executable, *_util._args_from_interpreter_flags(), "-c", code]


def main(modules):
    """Imports the modules and becomes what the environment says. Does not return."""
    for name in modules:
        try:
            importlib.import_module(name)
        except ImportError as error:
            print(f"retinue: the guardian can't import {name}, so each process will: {error}", file=sys.stderr)
    _core.set_runner(_run)
    # Forks share the pages of what lives now, until it is written: the collector would write into each object.
    gc.collect()
    gc.freeze()
    _core.serve(sys.orig_argv)


def _reload_environment():
    """Python's copy of the environment is that of the guardian's start."""
    variables = os.environ._data
    variables.clear()
    for variable in _core.environment():
        name, _, value = variable.partition(b"=")
        variables[name] = value


def _set_threads(cpus):
    """Ranks share the CPUs instead of fighting for them, unless the program says otherwise."""
    if "torch" in sys.modules:
        wanted = os.environ.get("OMP_NUM_THREADS", "")
        sys.modules["torch"].set_num_threads(int(wanted) if wanted.isdecimal() and int(wanted) > 0 else cpus)


def _share_tracker(path):
    try:
        resource_tracker._resource_tracker._fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    except OSError:
        pass  # The parent has ended.


def _prepare(rank, cpus, preparation, tracker):
    """Makes a fork of the guardian what a new interpreter would be."""
    atexit._clear()
    _reload_environment()
    if sys.stdout is not None:
        sys.stdout.reconfigure(line_buffering=True)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    # Python's own generator does so at a fork.
    if "numpy.random" in sys.modules:
        sys.modules["numpy"].random.seed()
    if "torch" in sys.modules:
        sys.modules["torch"].default_generator.seed()
    _set_threads(cpus)
    if tracker:
        _share_tracker(tracker)
    _util._finalizer_registry.clear()
    _util._run_after_forkers()
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
    return name, message, "".join(lines)


def _code_of(end):
    """Returns the exit code of a SystemExit, None for 0."""
    if end.code is None or isinstance(end.code, int):
        return (end.code or 0) & 0xFF or None
    print(end.code, file=sys.stderr)
    return 1


def _run(rank, cpus, payload):
    """Runs what a payload says, as `rank`. Returns None, an exit code, or what it raised, as _described does."""
    result = None
    try:
        preparation, tracker, work = pickle.loads(payload)
        _prepare(rank, cpus, preparation, tracker)
        fn, args = pickle.loads(work)
        try:
            fn(rank, *args)
        finally:
            _util._exit_function()
    except SystemExit as end:
        result = _code_of(end)
    except BaseException as error:
        result = _described(error)
    threading._shutdown()
    atexit._run_exitfuncs()
    _util._flush_std_streams()
    return result

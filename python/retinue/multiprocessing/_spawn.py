"""Starts functions in processes of their own."""

import json
import signal
import sys

from retinue import _core
from retinue.multiprocessing import _serve, _start


class ProcessException(Exception):
    """A process failed. `outcomes` has a dict for each process: how it ended and why, as `error_index` did first."""

    def __init__(self, msg, error_index, error_pid, outcomes=()):
        super().__init__(msg)
        self.msg = msg
        self.error_index = error_index
        self.error_pid = error_pid
        self.outcomes = list(outcomes)

    def __reduce__(self):
        return type(self), (self.msg, self.error_index, self.error_pid, self.outcomes)


class ProcessRaisedException(ProcessException):
    """A function raised an exception, whose traceback is in the message."""


class ProcessExitedException(ProcessException):
    """A process ended without returning: by sys.exit(code), os._exit(code), or a signal (exit_code is -signal then)."""

    def __init__(self, msg, error_index, error_pid, exit_code, signal_name=None, outcomes=()):
        super().__init__(msg, error_index, error_pid, outcomes)
        self.exit_code = exit_code
        self.signal_name = signal_name

    def __reduce__(self):
        return type(self), (self.msg, self.error_index, self.error_pid, self.exit_code, self.signal_name, self.outcomes)


def _exception_of(failure):
    """Returns the exception for a failure as the extension describes it."""
    described = json.loads(failure)
    cause = described["ranks"][described["root_cause"]]
    place = (described["message"], cause["rank"], cause["pid"])
    if cause["end"] == "raised":
        return ProcessRaisedException(*place, described["ranks"])
    code = -cause["signal"] or cause["exit_code"]
    return ProcessExitedException(*place, code, cause["signal_name"] or None, described["ranks"])


_running = set()  # Contexts that the program is to wait for.


class ProcessContext:
    """The processes that one call of spawn or start_processes started."""

    def __init__(self, context, daemon):
        self._context = context
        self._error = None
        self._is_interrupted = False
        if not daemon:
            _running.add(self)

    def pids(self):
        """Returns the process ids, by index."""
        return self._context.pids()

    def join(self, timeout=None, grace_period=None):
        """Waits until all processes have ended, at most `timeout` seconds. Returns whether they have.

        If one fails, the others are ended: by SIGTERM, and 30 s later by SIGKILL. PyTorch's `grace_period` has no effect.
        Errors: ProcessRaisedException or ProcessExitedException for the process that failed first; again if called again.
        """
        if self._error is not None:
            raise self._error
        try:
            ended = self._context.join(timeout)
        except KeyboardInterrupt:
            self._pass_interrupt_on()
            raise
        if ended:
            _running.discard(self)
        if isinstance(ended, str):
            self._error = _exception_of(ended)
            raise self._error
        return ended

    def _pass_interrupt_on(self):
        """The terminal's Ctrl-C reaches only processes of the program's own group."""
        if not self._is_interrupted:
            self._is_interrupted = True
            self._context.signal(signal.SIGINT)

    def terminate(self):
        """Begins to end all processes: SIGTERM, later SIGKILL. Processes that this ends have not failed."""
        self._context.terminate()

    def kill(self):
        """Ends all processes by SIGKILL."""
        self._context.kill()


def _join_running():
    """As multiprocessing, a program that ends waits for its processes, but for daemonic ones."""
    for context in list(_running):
        if _serve.is_interrupted():
            context._pass_interrupt_on()
        try:
            context.join()
        except (ProcessException, OSError) as error:
            print(error, file=sys.stderr)


_serve.call_at_exit(_join_running)


def _call(index, fn, args):
    try:
        fn(index, *args)
    except KeyboardInterrupt:
        pass  # The program got it too, and says so.


def start_processes(fn, args=(), nprocs=1, join=True, daemon=False, start_method=None):
    """Runs `fn(index, *args)` in `nprocs` processes, index 0 to nprocs-1.

    `start_method`: None or "forkserver": forks of a guardian that has imported what takes long, which cost milliseconds.
    "spawn": an interpreter of its own for each. Functions and arguments are pickled in both cases, and the program's main
    module is imported in each process, so it must not start processes by its import: use `if __name__ == "__main__":`.
    Returns None if `join`, else a ProcessContext at once.
    Errors: as ProcessContext.join; ValueError for wrong arguments; what pickle raises.
    """
    executed = _start.is_executed(start_method)
    if nprocs < 1:
        raise ValueError(f"nprocs is {nprocs}: it must be at least 1")
    payloads = _start.payloads_of(_call, (fn, tuple(args)), nprocs)
    _start.warm()
    context = ProcessContext(_core.spawn(payloads, nprocs, executed, daemon), daemon)
    if not join:
        return context
    context.join()
    return None


def spawn(fn, args=(), nprocs=1, join=True, daemon=False, start_method=None):
    """Runs `fn(index, *args)` in `nprocs` processes: see start_processes."""
    return start_processes(fn, args, nprocs, join, daemon, start_method)

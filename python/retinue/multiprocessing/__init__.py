"""torch.multiprocessing's functions, with processes that start as forks of one that has imported PyTorch already.

`import retinue.multiprocessing as mp` takes the place of `import torch.multiprocessing as mp`. It needs no PyTorch.
"""

from multiprocessing import (
    AuthenticationError,
    BufferTooShort,
    ProcessError,
    TimeoutError,
    active_children,
    current_process,
    freeze_support,
    get_logger,
    log_to_stderr,
    parent_process,
)

from retinue.multiprocessing._connection import Pipe
from retinue.multiprocessing._process import Process, get_context
from retinue.multiprocessing._queues import JoinableQueue, Queue, SimpleQueue
from retinue.multiprocessing._sharedctypes import Array, RawArray, RawValue, Value
from retinue.multiprocessing._spawn import (
    ProcessContext,
    ProcessException,
    ProcessExitedException,
    ProcessRaisedException,
    spawn,
    start_processes,
)
from retinue.multiprocessing._start import get_all_start_methods, get_start_method, set_start_method, warm
from retinue.multiprocessing._synchronize import (
    Barrier,
    BoundedSemaphore,
    Condition,
    Event,
    Lock,
    RLock,
    Semaphore,
)

# multiprocessing's own, with processes of ours where they start some.
_context = get_context()
Manager = _context.Manager
Pool = _context.Pool
cpu_count = _context.cpu_count

__all__ = [
    "Array",
    "AuthenticationError",
    "Barrier",
    "BoundedSemaphore",
    "BufferTooShort",
    "Condition",
    "Event",
    "JoinableQueue",
    "Lock",
    "Manager",
    "Pipe",
    "Pool",
    "Process",
    "ProcessContext",
    "ProcessError",
    "ProcessException",
    "ProcessExitedException",
    "ProcessRaisedException",
    "Queue",
    "RLock",
    "RawArray",
    "RawValue",
    "Semaphore",
    "SimpleQueue",
    "TimeoutError",
    "Value",
    "active_children",
    "cpu_count",
    "current_process",
    "freeze_support",
    "get_all_start_methods",
    "get_context",
    "get_logger",
    "get_start_method",
    "log_to_stderr",
    "parent_process",
    "set_start_method",
    "spawn",
    "start_processes",
    "warm",
]


def __getattr__(name):
    if name in ("get_all_sharing_strategies", "get_sharing_strategy", "set_sharing_strategy"):
        try:
            import torch.multiprocessing
        except ImportError as error:
            raise AttributeError(f"module {__name__!r} has {name!r} only where PyTorch is installed") from error
        return getattr(torch.multiprocessing, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

"""Runs functions on ranks, which are forked: they need not import torch once more, which takes seconds."""

import os
import pickle
import select
import signal
import sys
import tempfile
import time
import traceback


def run_ranks(size, function, *args, timeout_s=100):
    """Calls function(rank, *args) in `size` processes, and returns their results in order.

    Errors: AssertionError with the traceback of each rank that failed, or that was killed after the timeout.
    """
    ends, pids = [], []
    sys.stdout.flush()
    sys.stderr.flush()
    for rank in range(size):
        ours, theirs = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.close(ours)
            os._exit(_run_rank(theirs, function, (rank, *args)))
        os.close(theirs)
        ends.append(ours)
        pids.append(pid)
    texts = _read_all(ends, time.monotonic() + timeout_s)
    results, errors = [], []
    for rank, (pid, text) in enumerate(zip(pids, texts)):
        if text is None:
            os.kill(pid, signal.SIGKILL)
        _, status = os.waitpid(pid, 0)
        if text is None:
            errors.append(f"rank {rank} had not ended after {timeout_s} s")
        elif status != 0 or not text:
            errors.append(f"rank {rank} ended with status {status}: {pickle.loads(text) if text else 'no word'}")
        else:
            results.append(pickle.loads(text))
    if errors:
        raise AssertionError("\n".join(errors))
    return results


def _run_rank(end, function, args):
    status, result = 0, None
    try:
        result = function(*args)
    except BaseException:
        status, result = 1, traceback.format_exc()
    with os.fdopen(end, "wb") as pipe:
        pickle.dump(result, pipe)
    sys.stdout.flush()
    sys.stderr.flush()
    return status


def _read_all(ends, deadline):
    """Returns what came of each, or None of those that are still open then."""
    texts = {end: b"" for end in ends}
    is_open = set(ends)
    while is_open and time.monotonic() < deadline:
        for end in select.select(list(is_open), [], [], deadline - time.monotonic())[0]:
            piece = os.read(end, 1 << 16)
            texts[end] += piece
            if not piece:
                is_open.remove(end)
    for end in ends:
        os.close(end)
    return [None if end in is_open else texts[end] for end in ends]


def with_group(rank, size, store_path, function, *args, backend="retinue", **options):
    """Calls function(rank, *args) in a group of `size` ranks that meet at a file."""
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    dist.init_process_group(backend, init_method=f"file://{store_path}", rank=rank, world_size=size, **options)
    try:
        return function(rank, *args)
    finally:
        dist.destroy_process_group()


def run_group(size, function, *args, timeout_s=100, **options):
    """run_ranks() of functions in a group of all ranks."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "store")

        def body(rank):
            return with_group(rank, size, path, function, *args, **options)

        return run_ranks(size, body, timeout_s=timeout_s)

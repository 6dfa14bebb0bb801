"""What the peers of the case `queue` share: ranks forked for one command, and the conversation with retinue-bench."""
import ctypes
import json
import multiprocessing
import multiprocessing.connection
import signal
import sys
import time

PR_SET_PDEATHSIG = 1


def now():
    return time.clock_gettime_ns(time.CLOCK_MONOTONIC)


def start_ranks(ranks, iterations, run):
    """Forks ranks that call run(rank, barrier, record, sums); returns their spans, and what they added up in sums."""
    context = multiprocessing.get_context("fork")
    times = context.RawArray("q", 2 * ranks * iterations)
    sums = context.RawArray("q", ranks)
    barrier = context.Barrier(ranks)

    def body(rank):
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)

        def record(i, enter, leave):
            if i >= 0:
                place = 2 * (rank * iterations + i)
                times[place : place + 2] = enter, leave

        run(rank, barrier, record, sums)

    processes = [context.Process(target=body, args=(rank,)) for rank in range(ranks)]
    for process in processes:
        process.start()
    pending = set(processes)
    while pending:
        multiprocessing.connection.wait([process.sentinel for process in pending])
        ended = {process for process in pending if process.exitcode is not None}
        pending -= ended
        if any(process.exitcode != 0 for process in ended):
            for process in pending:  # they would wait for it without end
                process.kill()
    if any(process.exitcode != 0 for process in processes):
        raise RuntimeError("a rank failed; its message is above")
    spans = []
    for rank in range(ranks):
        own = times[2 * rank * iterations : 2 * (rank + 1) * iterations]
        spans.append({"enter": own[::2], "exit": own[1::2]})
    return spans, list(sums)


def serve(commands):
    for line in sys.stdin:
        command, *numbers = line.split()
        try:
            answer = {"ranks": commands[command](*map(int, numbers))}
        except Exception as error:  # whatever it is, the bench must know it
            answer = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(answer), flush=True)

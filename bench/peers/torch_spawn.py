"""A peer: starting ranks that run a torch operation by torch.multiprocessing, on command.

retinue-bench writes lines "spawn|fork|forkserver RANKS", or "empty RANKS" for ranks that do nothing, to standard input and
reads one JSON object per line from standard output: {"us": microseconds from the call to the return of start_processes},
or {"error": text}.
"""
import json
import sys
import time

import torch
import torch.multiprocessing as mp

SIDE = 64


def multiply(rank, results):
    torch.set_num_threads(1)
    ones = torch.ones(SIDE, SIDE)
    results[rank] = ones.mm(ones).sum()


def nothing(rank):
    pass


def start_empty(ranks):
    begin = time.clock_gettime_ns(time.CLOCK_MONOTONIC)
    mp.spawn(nothing, nprocs=ranks)
    return {"us": (time.clock_gettime_ns(time.CLOCK_MONOTONIC) - begin) / 1000}


def start(method, ranks):
    results = torch.zeros(ranks, dtype=torch.float64).share_memory_()
    begin = time.clock_gettime_ns(time.CLOCK_MONOTONIC)
    mp.start_processes(multiply, args=(results,), nprocs=ranks, start_method=method)
    end = time.clock_gettime_ns(time.CLOCK_MONOTONIC)
    if results.tolist() != [SIDE**3] * ranks:
        raise RuntimeError("a rank's matrix product is wrong")
    return {"us": (end - begin) / 1000}


def main():
    for line in sys.stdin:
        method, ranks = line.split()
        try:
            answer = start_empty(int(ranks)) if method == "empty" else start(method, int(ranks))
        except Exception as error:  # whatever it is, the bench must know it
            answer = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()

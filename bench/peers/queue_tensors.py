"""A peer: tensors through a queue of torch.multiprocessing, on command. Conversation and answers as in queue_words.py.

    queue_tensors.py SimpleQueue|Queue

    handle BYTES WARMUPS ITERATIONS     a shared tensor there and back
    fresh BYTES WARMUPS ITERATIONS      a new tensor one way
"""
import sys

import torch
import torch.multiprocessing as mp

from queue_ranks import now, serve, start_ranks


def make_queue():
    return getattr(mp.get_context("fork"), sys.argv[1])()


def run_handle(size, warmups, iterations):
    there, back = make_queue(), make_queue()

    def run(rank, barrier, record, _):
        torch.set_num_threads(1)
        tensor = torch.empty(size // 4, dtype=torch.int32).share_memory_() if rank == 0 else None
        barrier.wait()
        for i in range(-warmups, iterations):
            if rank == 0:
                tensor.fill_(i)
            enter = now()
            if rank == 0:
                there.put(tensor)
                returned = back.get()
            else:
                returned = there.get()
                returned[0] += 1
                back.put(returned)
            record(i, enter, now())
            if rank == 0 and (returned[0] != i + 1 or not (returned[1:] == i).all()):
                raise RuntimeError("a tensor arrived with other contents")
        barrier.wait()

    return start_ranks(2, iterations, run)[0]


def run_fresh(size, warmups, iterations):
    queue = make_queue()

    def run(rank, barrier, record, _):
        torch.set_num_threads(1)
        tensor = None
        for i in range(-warmups, iterations):
            tensor = torch.full((size // 4,), i, dtype=torch.int32) if rank == 0 else None
            barrier.wait()
            enter = now()
            if rank == 0:
                queue.put(tensor)
            else:
                tensor = queue.get()
            record(i, enter, now())
            if rank == 1 and not (tensor == i).all():
                raise RuntimeError("a tensor arrived with other contents")
            barrier.wait()

    return start_ranks(2, iterations, run)[0]


if __name__ == "__main__":
    serve({"handle": run_handle, "fresh": run_fresh})

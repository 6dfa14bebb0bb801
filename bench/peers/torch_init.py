"""A rank of a peer: torch.distributed's init_process_group with gloo, on command.

retinue-bench starts one process per rank with RANK and WORLD_SIZE, writes lines "init PORT" to its standard input and reads
one JSON object per line from its standard output: {"enter": [ns], "exit": [ns]} on CLOCK_MONOTONIC, or {"error": text}.
"""
import json
import os
import sys
import time

import torch.distributed as dist

RANK = int(os.environ["RANK"])
WORLD = int(os.environ["WORLD_SIZE"])


def init(port):
    start = time.clock_gettime_ns(time.CLOCK_MONOTONIC)
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=RANK, world_size=WORLD)
    end = time.clock_gettime_ns(time.CLOCK_MONOTONIC)
    if dist.get_world_size() != WORLD:
        raise RuntimeError("the world has another size")
    dist.barrier()
    dist.destroy_process_group()
    return {"enter": [start], "exit": [end]}


def main():
    for line in sys.stdin:
        try:
            answer = init(line.split()[1])
        except Exception as error:  # whatever it is, the bench must know it
            answer = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()

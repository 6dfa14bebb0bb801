"""A rank of a peer: DeepSpeed's all_reduce through shared memory, on command.

It is DeepSpeed's inference_all_reduce on CPUs, called as DeepSpeed calls it. Commands, answers, buffers and timing are
those of torch_gloo.py, of which it knows one:

    all_reduce BYTES WARMUPS ITERATIONS

DEEPSPEED_OP is the op that bench/peers/install compiled. A rank that waits spins without end and never gives its CPU
away: retinue-bench bounds the time of an answer, and ends ranks that give none.
"""
import importlib.util
import os
import pathlib

import torch
import torch.distributed as dist

import torch_gloo
from torch_gloo import RANK, WORLD

WORKSPACE_BYTES = 66 << 20  # What the op shares of each rank.


def load_op(path):
    spec = importlib.util.spec_from_file_location(pathlib.Path(path).stem, path)
    op = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(op)
    return op


def connect(op):
    """Has the op share its buffers between all ranks, and takes their names away, which it would leave behind."""
    if op.vector_kernel_level() < 1:
        raise RuntimeError("DeepSpeed's op needs AVX2 for fp32")
    job = pathlib.Path(os.environ["PEER_STORE"]).parent.name
    os.environ.update(LOCAL_SIZE=str(WORLD), MASTER_ADDR="peer", MASTER_PORT=job)
    own = pathlib.Path(f"/dev/shm/deepspeed_allreduce_buffer_{os.getuid()}_peer_{job}_{RANK}")
    try:
        op.initialize(WORLD, RANK)
        # It doesn't look whether there was room, and its first use would be a SIGBUS.
        if own.stat().st_size < WORKSPACE_BYTES:
            raise RuntimeError(f"DeepSpeed's op needs {WORKSPACE_BYTES >> 20} MiB in /dev/shm for each rank")
        dist.barrier()
    finally:
        own.unlink(missing_ok=True)


def main():
    torch.set_num_threads(1)
    op = load_op(os.environ["DEEPSPEED_OP"])
    torch_gloo.join_group()
    connect(op)
    all_reduce = torch.ops.deepspeed.inference_all_reduce_.default
    operation = torch_gloo.Operation(lambda given, output, gives, takes: all_reduce(output), 1, 1,
                                     lambda place: (torch_gloo.ALL, 0), in_place=True)
    torch_gloo.serve({"all_reduce": operation.run})


if __name__ == "__main__":
    main()

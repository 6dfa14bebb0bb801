"""A rank of a peer: PyTorch's collectives and DDP over gloo, through torch.distributed, on command.

retinue-bench starts one process per rank with RANK, WORLD_SIZE and PEER_STORE, writes lines to its standard input and
reads one JSON object per line from its standard output: {"enter": [ns...], "exit": [ns...]} on CLOCK_MONOTONIC, one pair
per timed iteration, or {"error": text}.

    barrier 0 WARMUPS ITERATIONS
    all_reduce BYTES WARMUPS ITERATIONS
    local|ddp small|large WARMUPS ITERATIONS      training steps
"""
import json
import os
import sys
import time

import torch
import torch.distributed as dist
import torch.nn as nn

RANK = int(os.environ["RANK"])
WORLD = int(os.environ["WORLD_SIZE"])
MLPS = {"small": (784, 1024, 1024, 10), "large": (1024, 4096, 3072, 1024, 10)}
BATCH = 32


def measure(warmups, iterations, operation, before=lambda i: None, after=lambda i: None):
    """Times `operation`, and not what is done before and after it in each iteration."""
    enter, leave = [], []
    for i in range(-warmups, iterations):
        before(i)
        start = time.clock_gettime_ns(time.CLOCK_MONOTONIC)
        operation()
        end = time.clock_gettime_ns(time.CLOCK_MONOTONIC)
        after(i)
        if i >= 0:
            enter.append(start)
            leave.append(end)
    return {"enter": enter, "exit": leave}


def run_barrier(_, warmups, iterations):
    return measure(warmups, iterations, dist.barrier)


def run_all_reduce(bytes_text, warmups, iterations):
    count = int(bytes_text) // 4
    pattern = torch.arange(count, dtype=torch.float32) % 16
    tensor = torch.empty(count)
    wanted = torch.empty(count)

    def rewrite(i):
        torch.add(pattern, RANK + 1 + (i + 1024) % 8, out=tensor)

    def check(i):
        first = sum(rank + 1 + (i + 1024) % 8 for rank in range(WORLD))
        torch.mul(pattern, WORLD, out=wanted).add_(first)
        if not torch.equal(tensor, wanted):
            raise RuntimeError("all_reduce gave a wrong sum")

    return measure(warmups, iterations, lambda: dist.all_reduce(tensor), rewrite, check)


def make_net(name):
    torch.manual_seed(0)
    layers = []
    for width, following in zip(MLPS[name], MLPS[name][1:]):
        layers += [nn.Linear(width, following), nn.ReLU()]
    return nn.Sequential(*layers[:-1])


def run_steps(name, warmups, iterations, wrap):
    net = make_net(name)
    model = wrap(net)
    torch.manual_seed(1000 + RANK)
    data, target = torch.randn(BATCH, MLPS[name][0]), torch.randint(0, 10, (BATCH,))
    optimizer = torch.optim.SGD(model.parameters(), 1e-3)
    loss_of = nn.CrossEntropyLoss()
    last = {}

    def step():
        optimizer.zero_grad()
        last["loss"] = loss_of(model(data), target)
        last["loss"].backward()
        optimizer.step()

    def check(_):
        if not torch.isfinite(last["loss"]):
            raise RuntimeError("the loss is not finite")

    dist.barrier()
    samples = measure(warmups, iterations, step, after=check)
    if model is not net:
        check_equal(net)
    dist.barrier()
    return samples


def check_equal(net):
    for parameter in net.parameters():
        bits = parameter.detach().view(torch.int32)
        for op in (dist.ReduceOp.MIN, dist.ReduceOp.MAX):
            extreme = bits.clone()
            dist.all_reduce(extreme, op)
            if not torch.equal(extreme, bits):
                raise RuntimeError("the ranks' parameters differ")


COMMANDS = {
    "barrier": run_barrier,
    "all_reduce": run_all_reduce,
    "local": lambda name, warmups, iterations: run_steps(name, warmups, iterations, lambda net: net),
    "ddp": lambda name, warmups, iterations: run_steps(name, warmups, iterations, nn.parallel.DistributedDataParallel),
}


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method="file://" + os.environ["PEER_STORE"], rank=RANK, world_size=WORLD)
    for line in sys.stdin:
        command, what, warmups, iterations = line.split()
        try:
            answer = COMMANDS[command](what, int(warmups), int(iterations))
        except Exception as error:  # whatever it is, the bench must know it
            answer = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()

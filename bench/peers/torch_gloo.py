"""A rank of a peer: PyTorch's collectives and DDP over gloo, through torch.distributed, on command.

retinue-bench starts one process per rank with RANK, WORLD_SIZE and PEER_STORE, writes lines to its standard input and
reads one JSON object per line from its standard output: {"enter": [ns...], "exit": [ns...]} on CLOCK_MONOTONIC, one pair
per timed iteration, or {"error": text}.

    barrier 0 WARMUPS ITERATIONS
    OPERATION BYTES WARMUPS ITERATIONS            one of OPERATIONS; BYTES of a block
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


def first_value(rank, block, i):
    """What a rank puts at place 0 of a block; place k has k & 15 more. The same as in bench/collective/data_ops.cpp."""
    return 1 + ((i + 1024) & 7) + 8 * (rank + 37 * block)


class Operation:
    """A collective: how many blocks a rank gives and takes, the ranks whose blocks come out where, and the call."""

    def __init__(self, call, inputs, outputs, source, in_place=False, leaves_early=False):
        self.call, self.inputs, self.outputs, self.source = call, inputs, outputs, source
        self.in_place, self.leaves_early = in_place, leaves_early

    def run(self, bytes_text, warmups, iterations):
        count = int(bytes_text) // 4
        pattern = torch.arange(count, dtype=torch.float32) % 16
        wanted = torch.empty(count)
        output = torch.empty(count * (1 if self.in_place else self.outputs))
        given = output if self.in_place else torch.empty(count * self.inputs)
        takes = [output[i * count:(i + 1) * count] for i in range(self.outputs)]
        gives = [given[i * count:(i + 1) * count] for i in range(self.inputs)]

        def rewrite(i):
            for block, tensor in enumerate(gives):
                torch.add(pattern, first_value(RANK, block, i), out=tensor)
            if self.leaves_early:
                dist.barrier()

        def check(i):
            for place, tensor in enumerate(takes):
                ranks, block = self.source(place)
                torch.mul(pattern, len(ranks), out=wanted).add_(sum(first_value(rank, block, i) for rank in ranks))
                if not torch.equal(tensor, wanted):
                    raise RuntimeError("a result is wrong")

        return measure(warmups, iterations, lambda: self.call(given, output, gives, takes), rewrite, check)


def send_from_root(given, output, gives, takes):
    if RANK != 0:
        dist.recv(output, 0)
        return
    for rank in range(1, WORLD):
        dist.send(gives[rank], rank)


def send_around(given, output, gives, takes):
    sent = dist.isend(given, (RANK + 1) % WORLD)
    dist.recv(output, (RANK + WORLD - 1) % WORLD)
    sent.wait()


ALL = range(WORLD)
AT_ROOT = 1 if RANK == 0 else 0
OPERATIONS = {
    "all_reduce": Operation(lambda given, output, gives, takes: dist.all_reduce(output), 1, 1, lambda place: (ALL, 0),
                            in_place=True),
    "broadcast": Operation(lambda given, output, gives, takes: dist.broadcast(output, 0), AT_ROOT, 1,
                           lambda place: ([0], 0), in_place=True, leaves_early=True),
    "reduce": Operation(lambda given, output, gives, takes: dist.reduce(output, 0), 1, AT_ROOT, lambda place: (ALL, 0),
                        in_place=True, leaves_early=True),
    "all_gather": Operation(lambda given, output, gives, takes: dist.all_gather_into_tensor(output, given), 1, WORLD,
                            lambda place: ([place], 0)),
    "gather": Operation(lambda given, output, gives, takes: dist.gather(given, takes or None, 0), 1, AT_ROOT * WORLD,
                        lambda place: ([place], 0), leaves_early=True),
    "scatter": Operation(lambda given, output, gives, takes: dist.scatter(output, gives or None, 0), AT_ROOT * WORLD, 1,
                         lambda place: ([0], RANK), leaves_early=True),
    "reduce_scatter": Operation(lambda given, output, gives, takes: dist.reduce_scatter_tensor(output, given), WORLD, 1,
                                lambda place: (ALL, RANK)),
    "all_to_all": Operation(lambda given, output, gives, takes: dist.all_to_all_single(output, given), WORLD, WORLD,
                            lambda place: ([place], RANK)),
    "send": Operation(send_from_root, AT_ROOT * WORLD, 1 - AT_ROOT, lambda place: ([0], RANK), leaves_early=True),
    "sendrecv": Operation(send_around, 1, 1, lambda place: ([(RANK + WORLD - 1) % WORLD], 0), leaves_early=True),
}


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
    **{name: operation.run for name, operation in OPERATIONS.items()},
    "local": lambda name, warmups, iterations: run_steps(name, warmups, iterations, lambda net: net),
    "ddp": lambda name, warmups, iterations: run_steps(name, warmups, iterations, nn.parallel.DistributedDataParallel),
}


def join_group():
    dist.init_process_group("gloo", init_method="file://" + os.environ["PEER_STORE"], rank=RANK, world_size=WORLD)


def serve(commands):
    """Answers the lines of the standard input until it ends."""
    for line in sys.stdin:
        command, what, warmups, iterations = line.split()
        try:
            answer = commands[command](what, int(warmups), int(iterations))
        except Exception as error:  # whatever it is, the bench must know it
            answer = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(answer), flush=True)


def main():
    torch.set_num_threads(1)
    join_group()
    serve(COMMANDS)


if __name__ == "__main__":
    main()

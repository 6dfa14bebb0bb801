"""A rank of a peer: PyTorch's collectives and DDP over gloo, through torch.distributed, on command.

retinue-bench starts one process per rank with RANK, WORLD_SIZE and PEER_STORE, writes lines to its standard input and
reads one JSON object per line from its standard output: {"enter": [ns...], "exit": [ns...]} on CLOCK_MONOTONIC, one pair
per timed iteration, with what the process spent on all of them: "cpu_ns" and "page_faults", and with "memory_bytes"
after the warm-ups; or {"error": text}.

    barrier 0 WARMUPS ITERATIONS
    OPERATION BYTES WARMUPS ITERATIONS            one of OPERATIONS; BYTES of a block
    local:sgd|ddp:sgd|ddp:adamw NET WARMUPS ITERATIONS      training steps; one of NETS
"""
import json
import os
import resource
import sys
import time

import torch
import torch.distributed as dist
import torch.nn as nn

RANK = int(os.environ["RANK"])
WORLD = int(os.environ["WORLD_SIZE"])
BATCH = 32


def memory_bytes():
    """The memory of this process; of what it shares with others, its share."""
    with open("/proc/self/smaps_rollup") as rollup:
        return next(int(line.split()[1]) * 1024 for line in rollup if line.startswith("Pss:"))


def measure(warmups, iterations, operation, before=lambda i: None, after=lambda i: None):
    """Times `operation`, and not what is done before and after it in each iteration."""
    enter, leave = [], []
    begin, memory = None, 0
    for i in range(-warmups, iterations):
        if i == 0:
            memory = memory_bytes()
            begin = resource.getrusage(resource.RUSAGE_SELF)
        before(i)
        start = time.clock_gettime_ns(time.CLOCK_MONOTONIC)
        operation()
        end = time.clock_gettime_ns(time.CLOCK_MONOTONIC)
        after(i)
        if i >= 0:
            enter.append(start)
            leave.append(end)
    end = resource.getrusage(resource.RUSAGE_SELF)
    cpu = end.ru_utime + end.ru_stime - begin.ru_utime - begin.ru_stime
    return {"enter": enter, "exit": leave, "cpu_ns": int(cpu * 1e9), "page_faults": end.ru_minflt - begin.ru_minflt,
            "memory_bytes": memory}


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


class Mlp(nn.Module):
    """The nets are the same as in bench/torch/training_nets.cpp."""

    def __init__(self, *widths):
        super().__init__()
        layers = []
        for width, following in zip(widths, widths[1:]):
            layers += [nn.Linear(width, following), nn.ReLU()]
        self.layers = nn.Sequential(*layers[:-1])

    def forward(self, data):
        return self.layers(data)


class Block(nn.Module):
    def __init__(self, inputs, outputs, stride):
        super().__init__()
        self.first = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.second = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.first_norm, self.second_norm = nn.BatchNorm2d(outputs), nn.BatchNorm2d(outputs)
        self.shortcut = nn.Conv2d(inputs, outputs, 1, stride, bias=False) if inputs != outputs else nn.Identity()

    def forward(self, data):
        output = self.second_norm(self.second(torch.relu(self.first_norm(self.first(data)))))
        return torch.relu(output + self.shortcut(data))


class ResNet(nn.Module):
    def __init__(self):
        super().__init__()
        layers, width = [nn.Conv2d(1, 16, 3, padding=1)], 16
        for outputs in (16, 32, 64):
            for _ in range(3):
                layers.append(Block(width, outputs, 1 if width == outputs else 2))
                width = outputs
        self.layers, self.last = nn.Sequential(*layers), nn.Linear(64, 10)

    def forward(self, data):
        return self.last(self.layers(data.view(-1, 1, 28, 28)).mean((2, 3)))


class Transformer(nn.Module):
    def __init__(self):
        super().__init__()
        layer = nn.TransformerEncoderLayer(384, 6, dim_feedforward=1536, dropout=0.0)
        self.first, self.last = nn.Linear(64, 384), nn.Linear(384, 10)
        self.encoder = nn.TransformerEncoder(layer, 5, enable_nested_tensor=False)

    def forward(self, data):
        return self.last(self.encoder(self.first(data.view(16, -1, 64))).mean(0))


NETS = {
    "small": (lambda: Mlp(784, 1024, 1024, 10), 784),
    "large": (lambda: Mlp(1024, 4096, 3072, 1024, 10), 1024),
    "transformer": (Transformer, 1024),
    "resnet": (ResNet, 784),
}
OPTIMIZERS = {
    "sgd": lambda parameters: torch.optim.SGD(parameters, 1e-3),
    "adamw": lambda parameters: torch.optim.AdamW(parameters, 1e-3),
}


def run_steps(name, warmups, iterations, wrap, optimizer_name):
    make, features = NETS[name]
    torch.manual_seed(0)
    net = make()
    model = wrap(net)
    torch.manual_seed(1000 + RANK)
    data, target = torch.randn(BATCH, features), torch.randint(0, 10, (BATCH,))
    optimizer = OPTIMIZERS[optimizer_name](model.parameters())
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
    **{f"{mode}:{optimizer}": lambda name, warmups, iterations, wrap=wrap, optimizer=optimizer: run_steps(
        name, warmups, iterations, wrap, optimizer)
       for mode, wrap in (("local", lambda net: net), ("ddp", nn.parallel.DistributedDataParallel))
       for optimizer in OPTIMIZERS},
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

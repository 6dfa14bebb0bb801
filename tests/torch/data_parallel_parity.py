"""Trains the cases of data_parallel_parity_test.cpp with PyTorch's DistributedDataParallel over gloo.

Arguments: a folder, the number of ranks. Writes dictionaries of tensors to the folder: inputs.pt, with initial values
("net/parameter") and batches ("x/step/rank", "y/step/rank"), and RANK.pt with what a rank has after each case
("case/parameter").

Not here: a second backward without a forward before it, which Python leaves without averaging.
"""

import sys
import warnings

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import torch.nn.functional as F
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
from torch.distributed.algorithms.join import Join
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.checkpoint import checkpoint

STEPS = 5
BATCH = 6


class Conv(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(1, 4, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(4)
        self.last = nn.Linear(36, 5)

    def forward(self, x):
        return self.last(F.max_pool2d(torch.relu(self.norm(self.conv(x))), 2).flatten(1))


class Mlp(nn.Module):
    def __init__(self, heads=1, recomputes=False):
        super().__init__()
        self.first = nn.Linear(36, 8)
        self.second = nn.Linear(8, 8)
        self.head0 = nn.Linear(8, 5)
        if heads == 2:
            self.head1 = nn.Linear(8, 5)
        self.recomputes = recomputes

    def forward(self, x, head=0):
        x = torch.tanh(self.first(x.flatten(1)))
        if self.recomputes:
            x = checkpoint(lambda y: torch.tanh(self.second(y)), x, use_reentrant=True)
        else:
            x = torch.tanh(self.second(x))
        return self.head0(x) if head == 0 else self.head1(x)


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(36, 8)
        self.second = nn.Linear(8, 8)
        self.again = self.second
        self.last = nn.Linear(8, 5)

    def forward(self, x):
        x = torch.tanh(self.first(x.flatten(1)))
        return self.last(torch.tanh(self.again(torch.tanh(self.second(x)))))


class Words(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(20, 8, sparse=True)
        self.last = nn.Linear(8, 5)

    def forward(self, x):
        return self.last(self.words((x.flatten(1)[:, :5].abs() * 7).long() % 20).mean(1))


class TwoOutputs(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(36, 8)
        self.second = nn.Linear(36, 8)
        self.last0 = nn.Linear(8, 5)
        self.last1 = nn.Linear(8, 5)

    def forward(self, x, y):
        x, y = torch.tanh(self.first(x.flatten(1))), torch.tanh(self.second(y.flatten(1)))
        return self.last0(x), self.last1(x + y)


NETS = {"conv": Conv, "mlp": Mlp, "heads": lambda: Mlp(2), "tied": Tied, "words": Words, "outputs": TwoOutputs}


def make_inputs(world):
    torch.manual_seed(0)
    inputs = {}
    for name, make in NETS.items():
        inputs.update({f"{name}/{key}": value for key, value in make().state_dict().items()})
    for step in range(2 * STEPS):
        for rank in range(world):
            inputs[f"x/{step}/{rank}"] = torch.randn(BATCH, 1, 6, 6)
            inputs[f"y/{step}/{rank}"] = torch.randint(0, 5, (BATCH,))
    return inputs


def cases_of(rank, world, inputs):
    def made(name, make=None):
        net = (make or NETS[name])()
        net.load_state_dict({key: inputs[f"{name}/{key}"] for key in net.state_dict()})
        return net

    def x(step):
        return inputs[f"x/{step}/{rank}"]

    def y(step):
        return inputs[f"y/{step}/{rank}"]

    def sgd(model):
        return torch.optim.SGD(model.parameters(), 0.05, momentum=0.9)

    def loss_of(model, step):
        return F.cross_entropy(model(x(step)), y(step))

    def loop(model, loss=loss_of, optimizer=None, clip=None):
        optimizer = optimizer or sgd(model)
        for step in range(STEPS):
            optimizer.zero_grad()
            loss(model, step).backward()
            if clip:
                nn.utils.clip_grad_norm_(model.parameters(), clip)
            optimizer.step()
        return model.module

    yield "conv", lambda: loop(DDP(made("conv")))
    yield "small_buckets", lambda: loop(DDP(made("conv"), bucket_cap_mb=0.0001))
    yield "own_buffers", lambda: loop(DDP(made("conv"), broadcast_buffers=False))
    yield "clip", lambda: loop(DDP(made("conv")), clip=0.1)
    yield "tied", lambda: loop(DDP(made("tied")))
    yield "sparse", lambda: loop(DDP(made("words")))
    yield "double", lambda: loop(
        DDP(made("mlp").double()), lambda model, step: F.cross_entropy(model(x(step).double()), y(step))
    )
    yield "adam", lambda: loop(model := DDP(made("conv")), optimizer=torch.optim.Adam(model.parameters(), 0.01))
    yield "adamw", lambda: loop(model := DDP(made("conv")), optimizer=torch.optim.AdamW(model.parameters(), 0.01))

    def find_unused(head_of):
        return loop(
            DDP(made("heads"), find_unused_parameters=True),
            lambda model, step: F.cross_entropy(model(x(step), head_of(step)), y(step)),
        )

    yield "unused", lambda: find_unused(lambda step: step % 2)
    yield "unused_by_ranks", lambda: find_unused(lambda step: (step + rank) % 2)
    yield "unused_never", lambda: find_unused(lambda step: 0)
    yield "static_graph", lambda: loop(DDP(made("heads"), static_graph=True))

    def ignored():
        net = made("heads")
        DDP._set_params_and_buffers_to_ignore_for_model(net, ["head0.weight", "head0.bias"])
        return loop(DDP(net), lambda model, step: loss_of(model, step) + F.cross_entropy(model.module(x(step), 1), y(step)))

    yield "ignored", ignored

    def uneven_batches(model, step):
        count = BATCH if step < 4 else BATCH - 2 * rank - 1
        return F.cross_entropy(model(x(step)[:count]), y(step)[:count])

    yield "uneven_batches", lambda: loop(DDP(made("conv")), uneven_batches)

    def two_forwards(model, step):
        return loss_of(model, step) + loss_of(model, step + STEPS)

    yield "two_forwards", lambda: loop(DDP(made("mlp")), two_forwards)
    yield "two_forwards_norm", lambda: loop(DDP(made("conv"), broadcast_buffers=False), two_forwards)

    def by_steps(model, step_once):
        optimizer = sgd(model)
        for step in range(STEPS):
            optimizer.zero_grad()
            step_once(model, step)
            optimizer.step()
        return model.module

    def accumulate(model, step):
        with model.no_sync():
            (loss_of(model, step) / 2).backward()
        (loss_of(model, step + STEPS) / 2).backward()

    yield "no_sync", lambda: by_steps(DDP(made("conv")), accumulate)

    def frozen():
        net = made("conv")
        net.conv.weight.requires_grad_(False)
        net.norm.bias.requires_grad_(False)
        return loop(DDP(net))

    yield "frozen", frozen

    def outputs(model, step):
        first, second = model(x(step), x(step + STEPS))
        return F.cross_entropy(first, y(step)) + F.cross_entropy(second, y(step + STEPS))

    yield "outputs", lambda: loop(DDP(made("outputs")), outputs)
    yield "one_output", lambda: loop(
        DDP(made("outputs"), find_unused_parameters=True),
        lambda model, step: F.cross_entropy(model(x(step), x(step + STEPS))[step % 2], y(step)),
    )

    def gradient_penalty(model, step):
        data = x(step).clone().requires_grad_()
        loss = F.cross_entropy(model(data), y(step))
        (gradient,) = torch.autograd.grad(loss, data, create_graph=True)
        return loss + gradient.pow(2).sum()

    yield "gradient_penalty", lambda: loop(DDP(made("mlp")), gradient_penalty)
    yield "nan", lambda: loop(
        DDP(made("mlp")),
        lambda model, step: loss_of(model, step) * (float("nan") if rank == 1 and step == 3 else 1.0),
    )
    yield "recomputed", lambda: loop(DDP(made("mlp", lambda: Mlp(recomputes=True))))

    def nested():
        net = made("mlp")
        net.second = DDP(net.second)
        return loop(DDP(net))

    yield "nested", nested

    def autocast(model, step):
        with torch.autocast("cpu", torch.bfloat16):
            output = model(x(step))
        return F.cross_entropy(output.float(), y(step))

    yield "autocast", lambda: loop(DDP(made("conv")), autocast)

    def hooked(hook):
        model = DDP(made("mlp"))
        model.register_comm_hook(None, hook)
        return loop(model)

    yield "fp16_hook", lambda: hooked(default_hooks.fp16_compress_hook)

    def join(divides_by_all):
        model = DDP(made("conv"))
        optimizer = sgd(model)
        with Join([model], divide_by_initial_world_size=divides_by_all):
            for step in range(STEPS - rank):
                optimizer.zero_grad()
                loss_of(model, step).backward()
                optimizer.step()
        return model.module

    yield "join", lambda: join(True)
    yield "join_of_those_left", lambda: join(False)

    def sharded(algorithm, **options):
        model = DDP(made("conv"))
        return loop(model, optimizer=ZeroRedundancyOptimizer(model.parameters(), algorithm, **options))

    yield "sharded_sgd", lambda: sharded(torch.optim.SGD, lr=0.05, momentum=0.9)
    yield "sharded_adam", lambda: sharded(torch.optim.Adam, lr=0.01)
    yield "sharded_adamw", lambda: sharded(torch.optim.AdamW, lr=0.01)


def run(rank, world, folder):
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    inputs = torch.load(f"{folder}/inputs.pt")
    trained = {}
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=world)
    for name, case in cases_of(rank, world, inputs):
        state = case().state_dict()
        trained.update({f"{name}/{key.replace('module.', '')}": value.detach() for key, value in state.items()})
    torch.save(trained, f"{folder}/{rank}.pt")
    dist.destroy_process_group()


if __name__ == "__main__":
    target, ranks = sys.argv[1], int(sys.argv[2])
    torch.save(make_inputs(ranks), f"{target}/inputs.pt")
    mp.spawn(run, (ranks, target), ranks)

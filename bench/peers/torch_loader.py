"""A peer: torch.utils.data.DataLoader with crops and flips, on command. Conversation and answers as in torch_gloo.py.

    epoch WORKERS WARMUPS ITERATIONS     passes over the data set
"""
import os
import random

import torch
from torch.nn import functional
from torch.utils.data import DataLoader, Dataset

from torch_gloo import measure, serve

ITEMS, BATCH, CHANNELS, SIDE, PADDING = 10_000, 64, 3, 32, 4  # As in bench/torch/loader_epochs.cpp.


class Crops(Dataset):
    def __init__(self):
        self.images = torch.randint(0, 256, (ITEMS, CHANNELS, SIDE, SIDE), dtype=torch.uint8,
                                    generator=torch.Generator().manual_seed(1))
        self.targets = torch.arange(ITEMS)
        self.mean = torch.tensor([0.49, 0.48, 0.45]).reshape(3, 1, 1)
        self.std = torch.tensor([0.25, 0.24, 0.26]).reshape(3, 1, 1)

    def __len__(self):
        return ITEMS

    def __getitem__(self, index):
        image = functional.pad(self.images[index], [PADDING] * 4)
        top, left = random.randint(0, 2 * PADDING), random.randint(0, 2 * PADDING)
        image = image[:, top:top + SIDE, left:left + SIDE]
        if random.random() < 0.5:
            image = image.flip(2)
        return image.float().div_(255).sub_(self.mean).div_(self.std), self.targets[index]


def cpu_ns_of(pid):
    """What all threads of a process have spent, by the scheduler's account."""
    total = 0
    for task in os.listdir(f"/proc/{pid}/task"):
        with open(f"/proc/{pid}/task/{task}/schedstat") as stat:
            total += int(stat.read().split()[0])
    return total


def run_epochs(workers, warmups, iterations):
    workers = int(workers)
    loader = DataLoader(Crops(), batch_size=BATCH, shuffle=True, num_workers=workers, persistent_workers=workers > 0)
    seen = {"sum": 0, "begin": 0}

    def cpu_ns():
        workers_of = getattr(loader._iterator, "_workers", [])
        return sum(cpu_ns_of(pid) for pid in [os.getpid(), *(worker.pid for worker in workers_of)])

    def before(i):
        seen["sum"] = 0
        if i == 0:
            seen["begin"] = cpu_ns()

    def epoch():
        for _, target in loader:
            seen["sum"] += target.sum().item()

    def check(_):
        if seen["sum"] != ITEMS * (ITEMS - 1) // 2:
            raise RuntimeError("a pass had other items")

    answer = measure(warmups, iterations, epoch, before, check)
    return {**answer, "cpu_ns": cpu_ns() - seen["begin"]}


if __name__ == "__main__":
    torch.set_num_threads(1)
    serve({"epoch": run_epochs})

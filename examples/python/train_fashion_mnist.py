"""Trains a network on Fashion-MNIST by DistributedDataParallel.

    torchrun --nproc-per-node 2 train_fashion_mnist.py
    retinue run -n 2 train_fashion_mnist.py

It differs from a script for gloo in one word, the name of the backend.
"""

import argparse
import gzip
import pathlib

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


def read_idx(path, header):
    with gzip.open(path) as file:
        return torch.frombuffer(bytearray(file.read()[header:]), dtype=torch.uint8)


def read_fashion_mnist(folder, part):
    """Returns images of shape (n, 1, 28, 28), from 0 to 1, and labels."""
    images = read_idx(folder / f"{part}-images-idx3-ubyte.gz", 16).view(-1, 1, 28, 28) / 255
    return TensorDataset(images, read_idx(folder / f"{part}-labels-idx1-ubyte.gz", 8).long())


def make_model():
    return nn.Sequential(nn.Conv2d(1, 16, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(16, 32, 3), nn.ReLU(), nn.MaxPool2d(2),
                         nn.Flatten(), nn.Linear(800, 10))


@torch.no_grad()
def accuracy(model, dataset):
    """Returns the share of the images that are recognised. Each rank looks at its part of them."""
    images, labels = (tensor[dist.get_rank()::dist.get_world_size()] for tensor in dataset.tensors)
    counts = torch.tensor([model(images).argmax(1).eq(labels).sum(), len(labels)])
    dist.all_reduce(counts)
    return (counts[0] / counts[1]).item()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=pathlib.Path, default="/usr/share/datasets/fashion-mnist", help="folder of its files")
    parser.add_argument("--backend", default="retinue", help="of torch.distributed")
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--steps", type=int, help="of an epoch, at most")
    options = parser.parse_args()

    dist.init_process_group(options.backend)  # gloo would do the same, through TCP
    torch.manual_seed(0)
    dataset = read_fashion_mnist(options.data, "train")
    sampler = DistributedSampler(dataset)
    loader = DataLoader(dataset, batch_size=64, sampler=sampler)
    model = DistributedDataParallel(make_model())
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    for epoch in range(options.epochs):
        sampler.set_epoch(epoch)
        for step, (images, labels) in enumerate(loader):
            if step == options.steps:
                break
            loss = nn.functional.cross_entropy(model(images), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        share = accuracy(model, read_fashion_mnist(options.data, "t10k"))
        if dist.get_rank() == 0:
            print(f"epoch {epoch}: loss {loss.item():.3f}, accuracy {share:.3f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

"""Writes sampler_golden.inc: what PyTorch's DistributedSampler yields. Run it with a Python that has torch 2.13.

usage: python3 make_sampler_golden.py > sampler_golden.inc
"""

import itertools

from torch.utils.data.distributed import DistributedSampler


def fnv1a(values):
    digest = 0xCBF29CE484222325
    for value in values:
        for byte in int(value).to_bytes(8, "little"):
            digest = ((digest ^ byte) * 0x100000001B3) & 0xFFFFFFFFFFFFFFFF
    return digest


def cases():
    sizes = [0, 1, 2, 3, 7, 10, 64, 101, 1000, 60000]
    shards = [(1, 0), (2, 0), (2, 1), (3, 2), (5, 4), (8, 3)]
    orders = [(False, 0, 0), (True, 0, 0), (True, 0, 1), (True, 42, 7), (True, 2**31, 5), (True, 2**40 + 1, 3)]
    for size, (ranks, rank), (shuffle, seed, epoch), drop_last in itertools.product(sizes, shards, orders, [False, True]):
        if size == 60000 and (seed > 42 or ranks in (3, 5)):
            continue
        yield size, ranks, rank, shuffle, seed, epoch, drop_last


def main():
    print("// clang-format off")
    print("// Written by make_sampler_golden.py from PyTorch's own class; do not edit.")
    print("// {dataset_size, num_replicas, rank, shuffle, seed, epoch, drop_last, count, FNV-1a of the indices}")
    for size, ranks, rank, shuffle, seed, epoch, drop_last in cases():
        sampler = DistributedSampler(range(size), num_replicas=ranks, rank=rank, shuffle=shuffle, seed=seed,
                                     drop_last=drop_last)
        sampler.set_epoch(epoch)
        indices = list(sampler)
        print("{%d, %d, %d, %s, %d, %d, %s, %d, 0x%016xu}," % (
            size, ranks, rank, str(shuffle).lower(), seed, epoch, str(drop_last).lower(), len(indices), fnv1a(indices)))


if __name__ == "__main__":
    main()

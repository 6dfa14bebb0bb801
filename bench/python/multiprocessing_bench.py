"""Times retinue.multiprocessing and retinue.data beside their peers, in turns: medians, and the ratio of each round.

    PYTHONPATH=build/release/python python3 bench/python/multiprocessing_bench.py [CASE...]
"""

import argparse
import concurrent.futures
import multiprocessing
import statistics
import time

import torch
import torch.multiprocessing
import torch.utils.data

import retinue.data
import retinue.multiprocessing as mp

IMAGES = 6400


def take_and_answer(queue, answers):
    for tensor in iter(lambda: queue.get(), None):
        answers.put(tensor.view(-1)[0].item())


def nothing(_):
    pass


def use_torch(index):
    torch.ones(3).sum()


class Crops(torch.utils.data.Dataset):
    """Images of Fashion-MNIST's size, of which each access cuts a part of a padded one at random."""

    def __init__(self):
        self.images = torch.arange(IMAGES * 28 * 28).remainder(251).to(torch.uint8).view(IMAGES, 1, 28, 28)

    def __len__(self):
        return IMAGES

    def __getitem__(self, index):
        top, left = torch.randint(0, 9, (2,)).tolist()
        padded = torch.nn.functional.pad(self.images[index], (4, 4, 4, 4))
        return padded[:, top:top + 28, left:left + 28].float().div(255), index % 10


def seconds_of(function):
    begin = time.perf_counter()
    function()
    return time.perf_counter() - begin


class QueueOfTensors:
    """A tensor to another process, and a word back."""

    def __init__(self, module, kind, size):
        self.queue, self.answers = getattr(module, kind)(), getattr(module, kind)()
        self.process = module.Process(target=take_and_answer, args=(self.queue, self.answers))
        self.process.start()
        self.size, self.repeats = size, max(3, min(200, (1 << 26) // size))
        self.round()

    def round(self):
        tensors = [torch.ones(self.size // 4) for _ in range(self.repeats)]

        def send():
            for tensor in tensors:
                self.queue.put(tensor)
                self.answers.get()

        return seconds_of(send) / self.repeats

    def end(self):
        self.queue.put(None)
        self.process.join()


class Call:
    """A function that is called in each round."""

    def __init__(self, function, end=lambda: None):
        self.round = lambda: seconds_of(function)
        self.end = end
        self.round()


def pool_map(module, chunksize, count):
    pool = module.Pool(2)
    return Call(lambda: pool.map(nothing, range(count), chunksize), pool.terminate)


def futures_map(count):
    executor = concurrent.futures.ProcessPoolExecutor(2)
    return Call(lambda: list(executor.map(nothing, range(count))), executor.shutdown)


def loader(kind, **options):
    made = kind(Crops(), batch_size=64, shuffle=True, num_workers=2, persistent_workers=True, **options)
    return Call(lambda: [None for _ in made])


def cases():
    """Returns the cases: how many rounds, then contenders by name, the first of which is ours."""
    theirs = torch.multiprocessing.get_context("spawn")
    both = {f"queue {kind} {size}": (20 if size < 1 << 20 else 7, {
        "retinue": lambda kind=kind, size=size: QueueOfTensors(mp, kind, size),
        "torch": lambda kind=kind, size=size: QueueOfTensors(theirs, kind, size)})
        for kind in ("Queue", "SimpleQueue") for size in (4 << 10, 64 << 20)}
    return {
        "spawn": (7, {"retinue": lambda: Call(lambda: mp.spawn(use_torch, nprocs=2)),
                      "torch": lambda: Call(lambda: torch.multiprocessing.spawn(use_torch, nprocs=2))}),
        **both,
        "pool 100000": (9, {"retinue": lambda: pool_map(mp, None, 100_000),
                            "multiprocessing": lambda: pool_map(multiprocessing, None, 100_000)}),
        "pool 5000 chunksize 1": (9, {"retinue": lambda: pool_map(mp, 1, 5000),
                                      "multiprocessing": lambda: pool_map(multiprocessing, 1, 5000),
                                      "concurrent.futures": lambda: futures_map(5000)}),
        f"loader {IMAGES}": (9, {"retinue": lambda: loader(retinue.data.DataLoader),
                                 "torch": lambda: loader(torch.utils.data.DataLoader)}),
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("cases", nargs="*", help="parts of the names of cases; all by default")
    wanted = parser.parse_args().cases
    for name, (rounds, makers) in cases().items():
        if wanted and not any(part in name for part in wanted):
            continue
        contenders = {contender: make() for contender, make in makers.items()}
        times = {contender: [] for contender in contenders}
        for _ in range(rounds):
            for contender, each in contenders.items():
                times[contender].append(each.round())
        for each in contenders.values():
            each.end()
        ours = next(iter(times.values()))
        for contender, theirs in times.items():
            ratio = statistics.median(their / our for our, their in zip(ours, theirs))
            print(f"{name:24} {contender:20} {statistics.median(theirs) * 1e6:12.1f} us   {ratio:6.2f}x", flush=True)


if __name__ == "__main__":
    main()

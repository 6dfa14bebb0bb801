"""A pool of processes, which start as forks of one that has imported PyTorch, estimates pi."""

# [example]
import torch
import retinue.multiprocessing as mp


def points_in_circle(seed, count=1_000_000):
    generator = torch.Generator().manual_seed(seed)
    points = torch.rand(count, 2, generator=generator)
    return points.square().sum(1).le(1).sum().item()


if __name__ == "__main__":
    with mp.Pool(2) as pool:
        hits = pool.map(points_in_circle, range(20))
    print(f"pi is about {4 * sum(hits) / 20_000_000:.3f}")
# [/example]

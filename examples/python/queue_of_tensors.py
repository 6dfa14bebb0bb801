"""Two processes double images that the program makes. The images are never copied."""

# [example]
import torch
import retinue
import retinue.multiprocessing as mp


def double(rank, inputs, outputs):
    while (images := inputs.get()) is not None:
        outputs.put(images.mul_(2))


if __name__ == "__main__":
    inputs, outputs = mp.Queue(), mp.Queue()
    context = mp.spawn(double, args=(inputs, outputs), nprocs=2, join=False)
    for i in range(10):
        images = retinue.empty_shared(64, 3, 224, 224)  # 38 MB in memory that the processes share
        inputs.put(images.fill_(i))
    print(sorted(outputs.get().mean().item() for _ in range(10)))
    for _ in range(2):
        inputs.put(None)
    context.join()
# [/example]

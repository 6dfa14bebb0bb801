"""What a PyTorch program does with several processes. from_pytorch.cpp does the same and prints the same lines.

    python3 from_pytorch.py FOLDER                                            starts all processes itself
    torchrun --standalone --nproc-per-node 2 from_pytorch.py FOLDER           its ranks are torchrun's

FOLDER is where the checkpoint is written.
"""

# [imports]
import os
import sys

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler
# [/imports]


# [processes]
def greet(rank, text):
    print(f"rank {rank}: {text}")


def check(rank, limit):
    if rank > limit:
        raise ValueError(f"rank {rank} is beyond {limit}")


def start_processes():
    mp.spawn(greet, args=("spawned",), nprocs=2)  # Waits for the ranks, and raises the first failure.

    ranks = mp.start_processes(check, args=(0,), nprocs=2, join=False, start_method="fork")
    try:
        while not ranks.join():
            pass
    except mp.ProcessRaisedException as failure:
        print(f"rank {failure.error_index} failed")

    process = mp.Process(target=greet, args=(7, "alone"))
    process.start()
    process.join()
    print(f"exit code {process.exitcode}")
# [/processes]


# [queues]
def double_rows(table, tasks, results):
    for row in iter(tasks.get, None):
        table[row] *= 2  # In the memory of the parent's tensor.
        results.put(table[row])


def share_tensors():
    table = torch.arange(6).reshape(3, 2).share_memory_()
    tasks, results = mp.Queue(), mp.Queue()
    workers = [mp.Process(target=double_rows, args=(table, tasks, results)) for _ in range(2)]
    for worker in workers:
        worker.start()
    for row in range(3):
        tasks.put(row)
    total = sum(results.get().sum().item() for _ in range(3))
    for _ in workers:
        tasks.put(None)  # The workers end.
    for worker in workers:
        worker.join()
    print(f"sum of the rows {total}, table {table.flatten().tolist()}")
# [/queues]


# [collectives]
def run_collectives(rank, world_size):
    total = torch.tensor([rank + 1])
    dist.all_reduce(total)

    largest = torch.tensor([rank * 10])
    work = dist.all_reduce(largest, op=dist.ReduceOp.MAX, async_op=True)
    work.wait()

    parts = [torch.empty(2, dtype=torch.int64) for _ in range(world_size)]
    dist.all_gather(parts, torch.tensor([rank, rank + 5]))

    seed = torch.tensor([rank + 42])
    dist.broadcast(seed, src=0)
    dist.barrier()
    print(
        f"rank {rank}: sum {total.item()}, largest {largest.item()}, "
        f"all {torch.cat(parts).tolist()}, seed {seed.item()}"
    )
# [/collectives]


# [messages]
def pass_messages(rank, world_size):
    sent, received = torch.tensor([rank]), torch.empty(1, dtype=torch.int64)
    works = [dist.isend(sent, dst=(rank + 1) % world_size), dist.irecv(received, src=(rank - 1) % world_size)]
    for work in works:
        work.wait()

    weights = torch.zeros(3)
    if rank == 0:
        dist.send(torch.ones(3), dst=1, tag=7)
    elif rank == 1:
        dist.recv(weights, src=0, tag=7)
    print(f"rank {rank}: got {received.item()} and {weights.sum().item():.0f}")
# [/messages]


# [training]
def save_checkpoint(path, net, optimizer, epoch):
    torch.save({"net": net.state_dict(), "optimizer": optimizer.state_dict(), "epoch": epoch}, path + ".part")
    os.replace(path + ".part", path)


def train(rank, last_epoch, path):
    torch.manual_seed(0)
    net = torch.nn.Linear(1, 1)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.5)
    first_epoch = 0
    if os.path.exists(path):
        checkpoint = torch.load(path)
        net.load_state_dict(checkpoint["net"])
        optimizer.load_state_dict(checkpoint["optimizer"])
        first_epoch = checkpoint["epoch"] + 1
    model = DistributedDataParallel(net)  # All ranks get the parameters of rank 0.

    points = TensorDataset(torch.linspace(-1, 1, 1000).unsqueeze(1))
    sampler = DistributedSampler(points)
    loader = DataLoader(points, batch_size=50, sampler=sampler)
    for epoch in range(first_epoch, last_epoch):
        sampler.set_epoch(epoch)  # Otherwise every epoch has the same order.
        for (inputs,) in loader:
            optimizer.zero_grad()
            torch.nn.functional.mse_loss(model(inputs), 2 * inputs + 1).backward()
            optimizer.step()
        if rank == 0:
            save_checkpoint(path, net, optimizer, epoch)
    dist.barrier()  # The checkpoint is complete.
    if rank == 0:
        print(f"from epoch {first_epoch}: y = {net.weight.item():.2f} x + {net.bias.item():.2f}")
# [/training]


# [group]
def run_rank(rank, world_size, init_method, folder):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=init_method, rank=rank, world_size=world_size)
    run_collectives(rank, world_size)
    pass_messages(rank, world_size)
    path = os.path.join(folder, "checkpoint.pt")
    train(rank, 3, path)
    train(rank, 6, path)  # Continues with epoch 3.
    dist.destroy_process_group()
# [/group]


# [main]
def main():
    folder = sys.argv[1]
    if "RANK" in os.environ:  # Started by torchrun.
        run_rank(int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]), "env://", folder)
        return
    start_processes()
    share_tensors()
    mp.spawn(run_rank, args=(2, f"file://{os.path.abspath(folder)}/rendezvous", folder), nprocs=2)


if __name__ == "__main__":
    main()
# [/main]

"""A Python program as users have them: DistributedDataParallel over gloo, started by `retinue run`.

With `fail-first` rank 1 fails in its first life, in the middle of training.
"""

import os
import sys

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


def main():
    torch.manual_seed(0)
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    model = DistributedDataParallel(torch.nn.Linear(4, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    data = torch.arange(8 * 4, dtype=torch.float32).reshape(8, 4) / 32
    target = data.sum(dim=1, keepdim=True)
    for step in range(20):
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(model(data[rank::world]), target[rank::world])
        loss.backward()
        optimizer.step()
        if step == 3 and rank == 1 and "fail-first" in sys.argv and os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
            raise RuntimeError("fails in its first life")
    mine = torch.cat([parameter.detach().flatten() for parameter in model.parameters()])
    all_of_them = [torch.empty_like(mine) for _ in range(world)]
    dist.all_gather(all_of_them, mine)
    equal = all(torch.equal(other, mine) for other in all_of_them)
    # In one piece: unbuffered, print() would write the end of the line apart, and ranks share the console.
    sys.stdout.write(
        f"rank {rank} of {world}: equal={equal} falls={bool(loss < 0.5)} life={os.environ['TORCHELASTIC_RESTART_COUNT']}\n"
    )
    dist.destroy_process_group()
    # Gloo's threads go on after this, and one that drops a tensor while the interpreter ends aborts the process: see
    # PyTorch's pull request 179291.
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    main()

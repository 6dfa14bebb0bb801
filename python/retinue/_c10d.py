"""Registers Retinue as a backend of torch.distributed. PyTorch calls `register` by itself: see pyproject.toml."""

import datetime
import functools
import os
import pathlib

import retinue
import torch


def _library():
    """Returns the path of the library for this version of PyTorch. Errors: ImportError if there is none."""
    version = ".".join(torch.__version__.split(".")[:2])
    there = {path.stem.rpartition("-")[2]: path for folder in retinue.__path__
             for path in pathlib.Path(folder, "lib").glob("libretinue_python-*.so")}
    if version not in there:
        raise ImportError(
            f"retinue {retinue.__version__} has no backend for PyTorch {torch.__version__}; it has one for "
            + (", ".join(sorted(there)) or "no version, as it was built without PyTorch"))
    return there[version]


def _operators():
    """Returns the functions of the library, which is loaded when they are first needed."""
    if not hasattr(torch.ops.retinue, "new_group"):
        torch.ops.load_library(str(_library()))
        folders = [os.path.dirname(torch.__file__), *retinue.__path__]
        torch.ops.retinue.set_library_folders([folder + os.sep for folder in folders])
    return torch.ops.retinue


def _create(options, _backend_options):
    """Makes the backend of a group, whose ranks meet at the group's store."""
    from torch._C._distributed_c10d import ProcessGroup

    place = ProcessGroup(options.store, options.group_rank, options.group_size)
    # PyTorch numbers its groups, or names them by a hash of their ranks.
    name = "world" if options.group_id == "0" else options.group_id
    timeout_ms = round(options.timeout.total_seconds() * 1000)
    group = ProcessGroup.unbox(_operators().new_group(place.boxed(), name, timeout_ms))
    return group._get_backend(torch.device("cpu"))


def _monitored_barrier_of(original):
    """Returns PyTorch's function, which refuses all backends but gloo, with "retinue" as a second one."""

    @functools.wraps(original)
    def monitored_barrier(group=None, timeout=None, wait_all_ranks=False):
        c10d = torch.distributed.distributed_c10d
        if c10d._rank_not_in_group(group) or torch.distributed.get_backend(group) != "retinue":
            return original(group, timeout, wait_all_ranks)
        ranks = group or c10d._get_default_group()
        of_group = datetime.timedelta(milliseconds=-1)
        return ranks.monitored_barrier(of_group if timeout is None else timeout, wait_all_ranks=wait_all_ranks)

    return monitored_barrier


def register():
    """Makes "retinue" a backend for CPU tensors, as in `init_process_group("cpu:retinue,cuda:nccl")`."""
    import torch.distributed

    if not torch.distributed.is_available() or "retinue" in torch.distributed.Backend.backend_list:
        return
    torch.distributed.Backend.register_backend("retinue", _create, extended_api=True, devices=["cpu"])
    monitored_barrier = _monitored_barrier_of(torch.distributed.monitored_barrier)
    torch.distributed.monitored_barrier = torch.distributed.distributed_c10d.monitored_barrier = monitored_barrier

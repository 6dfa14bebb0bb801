"""Retinue, a multi-process runtime: the backend "retinue" of torch.distributed, the command, and a C++ package.

`torch.distributed.init_process_group("retinue")` needs no import of this module. For C++, pass `cmake_prefix_path` to
CMake, then `find_package(retinue)` finds the package.
"""

import importlib.metadata as _metadata
import pathlib as _pathlib

__version__ = _metadata.version("retinue")
# An editable installation has two folders: this one, and where the C++ package is.
cmake_prefix_path = next((folder for folder in __path__ if _pathlib.Path(folder, "lib/cmake/retinue").is_dir()), None)


def register():
    """Makes "retinue" a backend of torch.distributed for CPU tensors, which PyTorch does by itself when it is imported.

    Call it if TORCH_DEVICE_BACKEND_AUTOLOAD=0 and PyTorch is older than 2.14. Errors: ImportError without PyTorch.
    """
    from retinue import _c10d

    _c10d.register()


def empty_shared(*size, dtype=None):
    """Returns a CPU tensor in memory that the processes of retinue.multiprocessing share, with unspecified values.

    As an argument of a process, or in a queue, it arrives as the same memory, whatever its size; so do its views. It is
    freed with the last tensor there. `size` and `dtype` are as for torch.empty.
    Errors: ValueError for a negative size; RuntimeError if there is no memory; ImportError without PyTorch.
    """
    from retinue.multiprocessing import _tensors

    return _tensors.empty_shared(size[0] if len(size) == 1 and hasattr(size[0], "__iter__") else size, dtype)

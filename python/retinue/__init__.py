"""Where the C++ package of Retinue is: pass `cmake_prefix_path` to CMake, then `find_package(retinue)` finds it."""

import importlib.metadata as _metadata
import pathlib as _pathlib

__version__ = _metadata.version("retinue")
# An editable installation has two folders: this one, and where the C++ package is.
cmake_prefix_path = next(folder for folder in __path__ if _pathlib.Path(folder, "lib/cmake/retinue").is_dir())

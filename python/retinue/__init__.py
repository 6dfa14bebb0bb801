"""Where the C++ package of Retinue is: pass `cmake_prefix_path` to CMake, then `find_package(retinue)` finds it."""

import importlib.metadata as _metadata
import pathlib as _pathlib

__version__ = _metadata.version("retinue")
cmake_prefix_path = str(_pathlib.Path(__file__).parent)

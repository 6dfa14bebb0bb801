"""Where the C++ package of Retinue is: pass `cmake_prefix_path` to CMake, then `find_package(retinue)` finds it."""

import importlib.metadata
import pathlib

__version__ = importlib.metadata.version("retinue")
cmake_prefix_path = str(pathlib.Path(__file__).parent)

from collections.abc import Sequence
from typing import overload

import torch

__version__: str
cmake_prefix_path: str | None

def register() -> None: ...
@overload
def empty_shared(*size: int, dtype: torch.dtype | None = None) -> torch.Tensor: ...
@overload
def empty_shared(size: Sequence[int], /, *, dtype: torch.dtype | None = None) -> torch.Tensor: ...

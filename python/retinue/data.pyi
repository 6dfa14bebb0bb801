from collections.abc import Sequence
from typing import Any, TypeVar

import torch.utils.data

__all__ = ["DataLoader", "default_collate"]

_T_co = TypeVar("_T_co", covariant=True)

class DataLoader(torch.utils.data.DataLoader[_T_co]): ...

def default_collate(batch: Sequence[Any]) -> Any: ...

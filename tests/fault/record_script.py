"""A rank that fails as Python programs under torchrun do: rank 1 raises, the others wait to be stopped."""

import os
import time

from torch.distributed.elastic.multiprocessing.errors import record


@record
def main():
    if os.environ["RANK"] == "1":
        raise ValueError("row 7 has no label")
    while True:
        time.sleep(1)


main()

"""`python -m retinue` is the command `retinue`."""

import importlib.metadata
import os
import sys


def main():
    for file in importlib.metadata.files("retinue") or ():
        if file.parts[-2:] == ("bin", "retinue"):
            path = str(file.locate().resolve())
            os.execv(path, [path, *sys.argv[1:]])
    sys.exit("retinue: this installation has no command: install the package again")


main()

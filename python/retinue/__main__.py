"""`python -m retinue` is the command `retinue`."""

import importlib.metadata
import os
import pathlib
import sys


def commands():
    yield pathlib.Path(__file__).resolve().parent.parent / "bin" / "retinue"  # By pip install --target.
    for file in importlib.metadata.files("retinue") or ():
        if file.parts[-2:] == ("bin", "retinue"):
            yield file.locate().resolve()


def main():
    for path in map(str, commands()):
        if os.access(path, os.X_OK):
            os.execv(path, [path, *sys.argv[1:]])
    sys.exit("retinue: this installation has no command: install the package again")


main()

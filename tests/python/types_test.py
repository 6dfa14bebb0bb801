"""The type stubs: they say what the package is, and what a program gets from them."""

import contextlib
import os
import pathlib
import subprocess
import tempfile
import unittest

SOURCE = pathlib.Path(__file__).parents[2]
PYTHON = SOURCE / ".retinue/venv-mypy/bin/python3"  # scripts/bootstrap mypy
TORCH = next(SOURCE.glob(".retinue/venv-torch/lib/python3*/site-packages"), None)

# Modules whose names begin with an underscore have no types.
UNTYPED = [".".join(file.relative_to(SOURCE / "python").with_suffix("").parts)
           for file in (SOURCE / "python/retinue").rglob("_[a-z]*.py")]
SETTINGS = f"[mypy]\n[mypy-{','.join(UNTYPED)}]\nignore_errors = True\n"
ALLOWED = r"retinue\.(__main__|(multiprocessing\.)?_[a-z].*)"
PROGRAM = """
import ctypes
import retinue.multiprocessing as mp

reveal_type(mp.spawn(print, nprocs=2))
reveal_type(mp.spawn(print, join=False))
numbers: mp.Queue[int] = mp.Queue()
numbers.put("text")
reveal_type(numbers.get())
with mp.Value("i", 1) as value:
    reveal_type(value)
reveal_type(mp.Value("d", 1.0).value)
reveal_type(mp.RawArray(ctypes.c_int, 3))
reveal_type(mp.Pipe())
reveal_type(mp.Condition().wait_for(lambda: 5))
mp.Condition(7)
"""
SAID = """
None
retinue.multiprocessing.ProcessContext
error: Argument 1 to "put" of "Queue" has incompatible type "str"; expected "int"
int
bool
float
_ctypes.Array[ctypes.c_int]
tuple[retinue.multiprocessing._Connection, retinue.multiprocessing._Connection]
int
error: Argument 1 to "Condition" has incompatible type "int"; expected "Lock | None"
"""


@contextlib.contextmanager
def written(text, suffix=""):
    with tempfile.NamedTemporaryFile("w", suffix=suffix) as file:
        file.write(text)
        file.flush()
        yield file


@unittest.skipUnless(PYTHON.exists(), "mypy is not installed: scripts/bootstrap mypy")
class Types(unittest.TestCase):
    def run_mypy(self, *arguments):
        path = [os.environ["PYTHONPATH"], *([str(TORCH)] if TORCH else [])]
        with tempfile.TemporaryDirectory() as folder:
            environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path), "MYPY_CACHE_DIR": folder}
            run = subprocess.run([PYTHON, *arguments], env=environment, cwd=folder, text=True,
                                 stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        return run.returncode, run.stdout

    def test_are_those_of_the_package(self):
        # PyTorch warns of what stubtest would take for an error.
        program = ("import torch; " if TORCH else "") + "import sys, mypy.stubtest; sys.exit(mypy.stubtest.main())"
        with written(SETTINGS, ".ini") as settings, written(ALLOWED) as allowed:
            code, said = self.run_mypy("-c", program, "--mypy-config-file", settings.name, "--allowlist", allowed.name,
                                       "--ignore-unused-allowlist", "retinue" if TORCH else "retinue.multiprocessing")
        self.assertEqual(code, 0, said)

    def test_of_a_program(self):
        with written(PROGRAM, ".py") as program:
            _, said = self.run_mypy("-m", "mypy", program.name)
        lines = [line.partition(": ")[2] for line in said.splitlines()[:-1]]
        types = [line.partition("Revealed type is ")[2].strip('"') or line.rpartition("  [")[0] for line in lines]
        self.assertEqual([text.replace("builtins.", "") for text in types], SAID.split("\n")[1:-1], said)

    @unittest.skipUnless(TORCH, "PyTorch is not installed")
    def test_of_the_examples(self):
        code, said = self.run_mypy("-m", "mypy", *map(str, sorted((SOURCE / "examples/python").glob("*.py"))))
        self.assertEqual(code, 0, said)


if __name__ == "__main__":
    unittest.main()

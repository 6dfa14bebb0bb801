"""Runs CPython's own tests of multiprocessing, test/_test_multiprocessing.py, with retinue.multiprocessing in its place.

    cpython_suite.py [unittest's arguments]

Exits with 1 if a test failed that docs/reference/pytorch_suites.md does not list.
"""

import multiprocessing
import pathlib
import re
import sys
import unittest

import retinue.multiprocessing as mp

TABLE = pathlib.Path(__file__).parents[3] / "docs/reference/pytorch_suites.md"
REPLACED = ("Process", "Pool", "Pipe", "Queue", "JoinableQueue", "Lock", "RLock", "Semaphore", "BoundedSemaphore", "Condition",
            "Event", "Barrier", "Value", "Array", "RawValue", "RawArray")
# Tests of what isn't replaced.
OTHERS = ("_TestHeap", "_TestSharedMemory", "_TestFinalize", "_TestLogging", "_TestListener", "_TestListenerClient",
          "_TestPollEintr")

try:
    from test import _test_multiprocessing as suite
except ImportError:
    print("skipped: this Python has no tests of its own: scripts/bootstrap suites")
    sys.exit(77)

suite.support.LONG_TIMEOUT = 30.0  # Seconds, of 300.
multiprocessing.set_start_method("spawn", force=True)  # For the locks that the tests take from multiprocessing itself.
for name in REPLACED:
    value = getattr(mp, name)
    setattr(suite.ProcessesMixin, name, value if name == "Process" else staticmethod(value))
if hasattr(suite._TestCondition, "check_invariant"):
    suite._TestCondition.check_invariant = lambda self, condition: None  # It looks at attributes of Python's own.


def define(name, base):
    kind = type("With" + name[1:], (base, suite.ProcessesMixin, unittest.TestCase), {"__module__": __name__})
    globals()[kind.__name__] = kind


for name, base in list(vars(suite).items()):
    if (isinstance(base, type) and issubclass(base, suite.BaseTestCase) and base is not suite.BaseTestCase
            and "processes" in base.ALLOWED_TYPES and name not in OTHERS):
        define(name, base)


def main():
    listed = set(re.findall(r"^\| `(test_\w+)` \| CPython \|", TABLE.read_text(), re.MULTILINE))
    program = unittest.main(exit=False, verbosity=2)
    failed = {case._testMethodName for case, _ in program.result.failures + program.result.errors}
    for name in sorted(failed - listed):
        print(f"{name} failed, which {TABLE.name} does not say")
    return 1 if failed - listed or program.result.testsRun == 0 else 0


if __name__ == "__main__":
    sys.exit(main())

"""`retinue stacks` of a Python program."""

import os
import pathlib
import signal
import subprocess
import unittest

import retinue.multiprocessing as mp
from retinue import _core

COMMAND = pathlib.Path(_core.__file__).parents[2] / "bin/retinue"
PY_SPY = pathlib.Path(__file__).parents[2] / ".retinue/venv-py-spy/bin"  # scripts/bootstrap py-spy


def wait_for_the_test(may_go):
    may_go.wait()


def rank(index, ready, may_go):
    ready.release()
    wait_for_the_test(may_go)


class Stacks(unittest.TestCase):
    def setUp(self):
        ready, self.may_go = mp.Semaphore(0), mp.Event()
        self.context = mp.spawn(rank, (ready, self.may_go), 2, join=False)
        for _ in range(2):
            ready.acquire()

    def tearDown(self):
        self.may_go.set()
        self.context.join()

    def stacks(self, path):
        run = subprocess.run([COMMAND, "stacks", str(os.getpid())], text=True,
                             env={**os.environ, "PATH": path}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        if "is forbidden" in run.stdout:
            self.skipTest(run.stdout)
        self.assertEqual(run.returncode, 0, run.stdout)
        parts = run.stdout.split("\nrank ")
        self.assertEqual(len(parts), 2, run.stdout)
        return parts

    @unittest.skipUnless(PY_SPY.is_dir(), "py-spy is not installed: scripts/bootstrap py-spy")
    def test_have_the_functions_in_python(self):
        path = f"{PY_SPY}:{os.environ['PATH']}"
        for part in self.stacks(path):
            native, _, python = part.partition("in Python:\n")
            self.assertIn("retinue::Event::wait", native)
            self.assertRegex(python, r"wait_for_the_test \(stacks_test.py:\d+\)\n +rank \(stacks_test.py:\d+\)")
        for pid in self.context.pids():
            os.kill(pid, signal.SIGSTOP)
        for part in self.stacks(path):
            self.assertIn("wait_for_the_test (stacks_test.py:", part)
        for pid in self.context.pids():
            with open(f"/proc/{pid}/stat") as stat:
                self.assertEqual(stat.read().rpartition(") ")[2][0], "T")
            os.kill(pid, signal.SIGCONT)

    def test_say_what_they_need(self):
        for part in self.stacks("/usr/bin:/bin"):
            self.assertIn("in Python:\n  py-spy, which reads these stacks, is not installed: pip install py-spy", part)


if __name__ == "__main__":
    unittest.main()

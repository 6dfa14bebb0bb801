"""Runs PyTorch's own tests of a backend, torch/testing/_internal/distributed/distributed_test.py, with the backend "retinue".

    distributed_suite.py WORLD_SIZE [TEST...]

Ranks are forks of one process, which imports PyTorch once. Prints a line for each test: passed, skipped or failed. Exits with
1 if a test failed that docs/reference/pytorch_suites.md does not list, or passed that it lists.
--backend gloo: PyTorch's file as it is, for comparison.
"""

import argparse
import importlib.util
import os
import pathlib
import re
import select
import shutil
import signal
import sys
import tempfile
import time
import traceback
import types
import unittest

SOURCE = pathlib.Path(__file__).parents[3]
TABLE = SOURCE / "docs/reference/pytorch_suites.md"
MODULE = "torch.testing._internal.distributed.distributed_test"
LIMIT = 120  # Seconds for a test.
FOLDERS = ("barrier", "test_dir", "init_dir")


def listed_failures(world_size):
    """Returns the tests that the table says fail with so many ranks."""
    rows = re.findall(r"^\| `(\w+)` \| ([\d, ]+) ranks \|", TABLE.read_text(), re.MULTILINE)
    return {name for name, sizes in rows if str(world_size) in sizes.split(", ")}


def suite(backend):
    """Returns PyTorch's module, with another backend in place of gloo, and its class for one test."""
    source = pathlib.Path(importlib.util.find_spec(MODULE).origin).read_text()
    if backend != "gloo":
        source = source.replace('"gloo"', f'"{backend}"').replace("Backend.GLOO", f"Backend.{backend.upper()}")
    module = types.ModuleType("distributed_test_of_a_backend")
    sys.modules[module.__name__] = module
    exec(compile(source, f"distributed_test.py with {backend}", "exec"), module.__dict__)

    class Test(module.TestDistBackend, module.DistributedTest._DistTestBase):
        def setUp(self):
            pass

        def tearDown(self):
            pass

    return module, Test


def run_rank(module, test, rank, name, file, log):
    """Runs a test as one rank. Returns its exit code."""
    try:
        os.setsid()
        os.dup2(log, 1)
        os.dup2(log, 2)
        module.Barrier.init()
        _, pipe = module.torch.multiprocessing.Pipe()
        test._run(rank, name, file, pipe)
    except SystemExit as end:
        return end.code or 0
    except BaseException:
        traceback.print_exc()
        return 1
    return 0


def run(module, test, name, world_size, folder):
    """Returns (passed, skipped or failed), and what the ranks printed."""
    if getattr(getattr(test, name), "__unittest_skip__", False):
        return "skipped", ""
    for part in FOLDERS:
        shutil.rmtree(folder / part, ignore_errors=True)
        (folder / part).mkdir()
    file = str(folder / "init_dir" / name)
    sys.stdout.flush()
    with tempfile.TemporaryFile() as log:
        pids = []
        for rank in range(world_size):
            pids.append(os.fork())
            if pids[-1] == 0:
                code = run_rank(module, test, rank, name, file, log.fileno())
                sys.stdout.flush()
                sys.stderr.flush()
                os._exit(code if isinstance(code, int) else 1)
        codes = wait_for(pids, time.monotonic() + LIMIT)
        log.seek(0)
        said = log.read().decode(errors="replace")
    skips = {skip.exit_code for skip in module.TEST_SKIPS.values()}
    if None in codes:
        return "failed", f"{said}\nranks that had not ended: {[rank for rank, code in enumerate(codes) if code is None]}"
    if all(code == 0 for code in codes):
        return "passed", said
    return "skipped" if all(code == 0 or code in skips for code in codes) else "failed", f"{said}\nexit codes: {codes}"


def wait_for(pids, deadline):
    """Returns the exit codes, None of those that had to be killed."""
    codes = [None] * len(pids)
    for place, pid in enumerate(pids):
        watched = os.pidfd_open(pid)
        try:
            poll = select.poll()
            poll.register(watched, select.POLLIN)
            if not poll.poll(max(0, deadline - time.monotonic()) * 1000):
                os.killpg(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
                continue
        finally:
            os.close(watched)
        codes[place] = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    return codes


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("world_size", type=int)
    parser.add_argument("tests", nargs="*")
    parser.add_argument("--backend", default="retinue")
    options = parser.parse_args()
    sys.path += map(str, SOURCE.glob(".retinue/venv-suites/lib/python3*/site-packages"))  # scripts/bootstrap suites
    if not importlib.util.find_spec("expecttest"):
        print("skipped: PyTorch's tests import NumPy and expecttest: scripts/bootstrap suites")
        return 77
    folder = pathlib.Path(tempfile.mkdtemp())
    os.environ.update(BACKEND=options.backend, WORLD_SIZE=str(options.world_size), TEMP_DIR=str(folder), OMP_NUM_THREADS="1",
                      MASTER_ADDR="127.0.0.1", GLOO_SOCKET_IFNAME="lo", TP_SOCKET_IFNAME="lo")
    for part in FOLDERS:
        (folder / part).mkdir()
    import torch
    import torch.testing._internal.common_distributed as common

    torch.set_num_threads(1)
    for feature in ("gpu", "cuda", "ddp", "subgroup"):
        common.DistTestCases.backend_feature[feature].add(options.backend)
    module, test = suite(options.backend)
    names = options.tests or unittest.TestLoader().getTestCaseNames(test)
    ends = {}
    for name in names:
        begin = time.monotonic()
        ends[name], said = run(module, test, name, options.world_size, folder)
        print(f"{ends[name]} {name} {time.monotonic() - begin:.1f} s", flush=True)
        if ends[name] == "failed":
            print("    " + "\n    ".join(said.strip().splitlines()[-25:]), flush=True)
    shutil.rmtree(folder)
    print(", ".join(f"{list(ends.values()).count(end)} {end}" for end in ("passed", "skipped", "failed")))
    if options.backend == "gloo":
        return 0
    listed = listed_failures(options.world_size)
    failed = {name for name, end in ends.items() if end == "failed"}
    passed = {name for name, end in ends.items() if end == "passed"}
    for name in sorted(failed - listed):
        print(f"{name} failed, which {TABLE.name} does not say")
    for name in sorted(passed & listed):
        print(f"{name} passed, and {TABLE.name} says that it fails")
    return 1 if failed - listed or passed & listed else 0


if __name__ == "__main__":
    sys.exit(main())

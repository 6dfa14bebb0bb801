"""What a program of the backend "retinue" is told when ranks differ, are late or die, and how signals end its waits."""

import datetime
import inspect
import os
import pathlib
import signal
import tempfile
import time
import unittest
import warnings

warnings.filterwarnings("ignore", message="Failed to initialize NumPy")

import torch
import torch.distributed as dist

from ranks import run_group, run_ranks, with_group


def line_of_caller():
    return inspect.currentframe().f_back.f_lineno


def interrupt_when_it_sleeps(pid):
    """Sends SIGINT to a rank that has slept at ten looks one after the other: it is in a wait then."""
    looks = 0
    while looks < 10:
        state = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        looks = looks + 1 if state == "S" else 0
        time.sleep(0.05)
    os.kill(pid, signal.SIGINT)


def gathered_pids():
    pids = [torch.zeros(1, dtype=torch.int64) for _ in range(dist.get_world_size())]
    dist.all_gather(pids, torch.tensor([os.getpid()]))
    return [int(pid) for pid in pids]


class Errors(unittest.TestCase):
    def test_names_both_python_lines_where_calls_differ(self):
        def body(rank):
            with self.assertRaises(RuntimeError) as caught:
                line = line_of_caller() + 1
                dist.all_reduce(torch.ones(3 + rank))
            return line, str(caught.exception)

        results = run_group(2, body)
        for line, text in results:
            self.assertIn("the ranks made different calls", text)
            self.assertIn(f"rank 0: all_reduce(fp32, 3, sum) at {__file__}:{line}", text)
            self.assertIn(f"rank 1: all_reduce(fp32, 4, sum) at {__file__}:{line}", text)

    def test_names_the_rank_that_did_not_come(self):
        def body(rank):
            if rank == 1:
                time.sleep(3)
                return ""
            with self.assertRaises(RuntimeError) as caught:
                dist.all_reduce(torch.ones(1))
            return str(caught.exception)

        text = run_group(2, body, timeout=datetime.timedelta(seconds=1))[0]
        self.assertIn("rank 1", text)
        self.assertIn("timeout", text)

    def test_monitored_barrier_names_the_ranks_that_did_not_come(self):
        ours, theirs = os.pipe()

        def body(rank):
            if rank > 0:
                os.read(ours, 1)
                return ""
            with self.assertRaises(RuntimeError) as caught:
                dist.monitored_barrier(timeout=datetime.timedelta(seconds=1), wait_all_ranks=True)
            os.write(theirs, b"12")
            return str(caught.exception)

        text = run_group(3, body)[0]
        self.assertIn("passed without ranks 1, 2; missing: rank 1 (pid ", text)

    def test_names_the_rank_that_died(self):
        with tempfile.TemporaryDirectory() as folder:
            def body(rank):
                def inside(rank):
                    if rank == 1:
                        dist.barrier()
                        os._exit(3)
                    dist.barrier()
                    with self.assertRaises(RuntimeError) as caught:
                        dist.all_reduce(torch.ones(1))
                    return str(caught.exception)

                return with_group(rank, 2, os.path.join(folder, "store"), inside)

            with self.assertRaises(AssertionError) as failed:
                run_ranks(2, body)
            self.assertIn("rank 1 ended with status", str(failed.exception))
            self.assertNotIn("rank 0", str(failed.exception))


class Signals(unittest.TestCase):
    def test_ctrl_c_ends_a_collective(self):
        ours, theirs = os.pipe()

        def body(rank):
            pid_of_rank_0 = gathered_pids()[0]
            if rank == 0:
                with self.assertRaises(KeyboardInterrupt) as caught:
                    dist.all_reduce(torch.ones(1))
                os.write(theirs, b"!")
                return str(caught.exception.__context__)
            interrupt_when_it_sleeps(pid_of_rank_0)
            os.read(ours, 1)
            with self.assertRaises(RuntimeError) as caught:
                for _ in range(2):  # To the first one rank 0 has given all that is needed.
                    dist.all_reduce(torch.ones(1))
            return str(caught.exception)

        for text in run_group(2, body):
            self.assertIn("rank 0 waits in its 2nd call, all_reduce(fp32, 1, sum)", text)
            self.assertIn("and was interrupted there by a signal", text)

    def test_ctrl_c_ends_the_wait_for_a_work(self):
        def body(rank):
            pid_of_rank_0 = gathered_pids()[0]
            if rank == 1:
                interrupt_when_it_sleeps(pid_of_rank_0)
                return
            work = dist.all_reduce(torch.ones(1), async_op=True)
            with self.assertRaises(KeyboardInterrupt):
                try:
                    work.wait()
                except RuntimeError as error:
                    self.assertIn("interrupted", str(error).lower())
                    raise

        run_group(2, body)

    def test_ctrl_c_ends_the_wait_for_ranks_that_do_not_come(self):
        with tempfile.TemporaryDirectory() as folder:
            ours, theirs = os.pipe()

            def body(rank):
                if rank == 1:
                    return interrupt_when_it_sleeps(int.from_bytes(os.read(ours, 8), "little"))
                os.write(theirs, os.getpid().to_bytes(8, "little"))
                with self.assertRaises(KeyboardInterrupt):
                    with_group(0, 2, os.path.join(folder, "store"), lambda rank: None)

            run_ranks(2, body)

    def test_a_handler_that_does_not_raise_lets_the_wait_go_on(self):
        def body(rank):
            pid_of_rank_0 = gathered_pids()[0]
            seen = []
            if rank == 0:
                signal.signal(signal.SIGINT, lambda *_: seen.append("it"))
            else:
                interrupt_when_it_sleeps(pid_of_rank_0)
            tensor = torch.ones(1)
            dist.all_reduce(tensor)
            return tensor.item(), seen

        self.assertEqual(run_group(2, body), [(2.0, ["it"]), (2.0, [])])


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.default_int_handler)  # Shells ignore it for what runs in the background.
    unittest.main()

"""retinue.multiprocessing.Pool against multiprocessing's, and where its processes die."""

import itertools
import multiprocessing
import os
import pickle
import signal
import subprocess
import sys
import tempfile
import threading
import time
import unittest

import retinue.multiprocessing as mp

initial = None


def square(x):
    return x * x


def add(x, y=0):
    return x + y


def pid_of(_):
    time.sleep(0.02)
    return os.getpid()


def set_initial(value):
    global initial
    initial = value


def get_initial(_):
    return initial


def fail_at_3(x):
    if x == 3:
        raise ValueError(f"not {x}")
    return x


def die_at_3(x):
    if x == 3:
        os.kill(os.getpid(), signal.SIGKILL)
    return x


def leave(code):
    raise SystemExit(code)


def not_sent(_):
    return lambda: 1


def sleep_long(_):
    time.sleep(1000)


class Odd(Exception):
    """Pickles, but can't be made again from its pickle."""

    def __init__(self, first, second):
        super().__init__(f"{first} {second}")


def raise_odd(_):
    raise Odd(1, 2)


class NotMadeAgain:
    def __reduce__(self):
        return divmod, (1, 0)


def append_to(numbers):
    numbers.append(1)
    return len(numbers)


def wait_for(path):
    while not os.path.exists(path):
        time.sleep(0.01)
    return "there"


def make(path):
    open(path, "w").close()


def die_by_number(number):
    os.kill(os.getpid(), number)


def kill_guardian(_):
    os.kill(os.getppid(), signal.SIGKILL)
    time.sleep(1000)


def ids_after(pool, values):
    """Gives numbers, the second when the first one's result is there."""
    yield 1
    values.append(pool.apply(square, (5,)))
    yield 2


class Pools(unittest.TestCase):
    def test_have_the_results_of_multiprocessing(self):
        with mp.Pool(3) as ours, multiprocessing.get_context("fork").Pool(3) as theirs:
            for call in (lambda pool: pool.map(square, range(1000)),
                         lambda pool: pool.map(square, range(10), 1),
                         lambda pool: pool.map(square, []),
                         lambda pool: pool.map(square, (x for x in range(7))),
                         lambda pool: pool.starmap(add, [(1, 2), (3, 4)]),
                         lambda pool: pool.apply(add, (1,), {"y": 5}),
                         lambda pool: pool.apply_async(square, (6,)).get(60),
                         lambda pool: pool.map_async(square, range(50)).get(60),
                         lambda pool: pool.starmap_async(add, [(1, 2)] * 50).get(60),
                         lambda pool: list(pool.imap(square, range(100))),
                         lambda pool: list(pool.imap(square, range(100), 7)),
                         lambda pool: sorted(pool.imap_unordered(square, range(100))),
                         lambda pool: sorted(pool.imap_unordered(square, range(100), 7))):
                self.assertEqual(call(ours), call(theirs))
            self.assertEqual(list(itertools.islice(ours.imap(square, itertools.count()), 5)), [0, 1, 4, 9, 16])

    def test_raise_what_a_function_raised(self):
        with mp.Pool(2) as pool:
            for call in (lambda: pool.map(fail_at_3, range(10)), lambda: pool.apply(fail_at_3, (3,)),
                         lambda: list(pool.imap(fail_at_3, range(10)))):
                with self.assertRaisesRegex(ValueError, "not 3") as caught:
                    call()
                self.assertIn("in fail_at_3", str(caught.exception.__cause__))
            with self.assertRaisesRegex(multiprocessing.pool.MaybeEncodingError, "Error sending result"):
                pool.apply(not_sent, (1,))
            self.assertRaises(Exception, pool.apply, lambda: 1)  # It can't be pickled.
            self.assertRaises(Exception, pool.map, square, [1, 2, lambda: 1, 4], 1)
            items = pool.imap(square, itertools.chain(range(500), [lambda: 1], range(5)))
            ends = [items.next(60) for _ in range(500)]
            self.assertRaises(Exception, items.next, 60)
            self.assertEqual(ends + list(items), [x * x for x in [*range(500), *range(5)]])
            self.assertEqual(pool.map(square, range(3)), [0, 1, 4])

    def test_call_back(self):
        ends = []
        with mp.Pool(1) as pool:
            pool.apply_async(square, (3,), callback=ends.append).wait()
            pool.apply_async(fail_at_3, (3,), error_callback=ends.append).wait()
            pool.apply_async(square, (3,), callback=lambda end: 1 / 0).wait(0.5)  # Which is printed.
            self.assertEqual(pool.apply(square, (4,)), 16)
        self.assertEqual((ends[0], str(ends[1])), (9, "not 3"))

    def test_ask_an_iterator_that_waits_for_results(self):
        values = []
        with mp.Pool(2) as pool:
            self.assertEqual(list(pool.imap(square, ids_after(pool, values))), [1, 4])
        self.assertEqual(values, [25])

    def test_run_the_initializer_in_each_process(self):
        with mp.Pool(2, set_initial, ("given",)) as pool:
            self.assertEqual(set(pool.map(get_initial, range(10), 1)), {"given"})

    def test_end_where_the_initializer_fails(self):
        for initializer, argument, error, text in ((fail_at_3, 3, ValueError, "not 3"),
                                                   (leave, 4, mp.ProcessExitedException, "exited with code 4"),
                                                   (die_at_3, 3, mp.ProcessExitedException, "was killed by SIGKILL")):
            with mp.Pool(2, initializer, (argument,)) as pool:
                with self.assertRaisesRegex(error, text):
                    pool.map(square, range(10))
                self.assertRaisesRegex(error, text, pool.map, square, range(10))

    def test_lose_the_task_of_a_process_that_dies_and_no_other(self):
        with mp.Pool(2) as pool:
            results = [pool.apply_async(die_at_3, (x,)) for x in range(20)]
            with self.assertRaisesRegex(mp.ProcessExitedException, r"a process of the pool \(pid \d+\) was killed by SIGKILL in "
                                                                   r"die_at_3") as caught:
                results[3].get(60)
            self.assertEqual((caught.exception.exit_code, caught.exception.signal_name), (-9, "SIGKILL"))
            self.assertEqual([result.get(60) for i, result in enumerate(results) if i != 3], [x for x in range(20) if x != 3])
            self.assertRaisesRegex(mp.ProcessExitedException, "in die_at_3", pool.map, die_at_3, range(10))
            self.assertRaisesRegex(mp.ProcessExitedException, "exited with code 7 in leave", pool.apply, leave, (7,))
            end = time.monotonic() + 60
            while len(set(pool.map(pid_of, range(20), 1))) < 2:  # Until another process is there.
                self.assertLess(time.monotonic(), end)

    def test_give_each_task_arguments_of_its_own(self):
        with mp.Pool(2) as pool:
            numbers = [0]
            self.assertEqual(pool.map(append_to, [numbers] * 200, 1), [2] * 200)

    def test_give_a_task_to_any_process_that_has_none(self):
        with tempfile.TemporaryDirectory() as folder, mp.Pool(2) as pool:
            path = os.path.join(folder, "made")
            pool.map(square, range(500), 1)  # Tasks that take no time.
            waiting = pool.apply_async(wait_for, (path,))
            for _ in range(100):
                pool.apply_async(square, (1,))
            pool.apply_async(make, (path,))
            self.assertEqual(waiting.get(60), "there")

    def test_survive_values_that_cannot_be_made_again(self):
        with mp.Pool(2) as pool:
            self.assertRaisesRegex(TypeError, "'second'", pool.apply, raise_odd, (1,))
            self.assertRaises(ZeroDivisionError, pool.apply, square, (NotMadeAgain(),))
            self.assertRaisesRegex(mp.ProcessExitedException, "signal 36", pool.apply, die_by_number, (36,))
            self.assertEqual(pool.map(square, range(3)), [0, 1, 4])

    def test_end_with_the_guardian(self):
        program = ("import multiprocessing, retinue.multiprocessing as mp\nfrom multiprocessing_pool_test import kill_guardian\n"
                   "if __name__ == '__main__':\n  pool = mp.Pool(2)\n  results = [pool.apply_async(kill_guardian, (1,))]\n"
                   "  results.append(pool.map_async(kill_guardian, range(5)))\n  for each in results:\n    try: each.get(60)\n"
                   "    except Exception as error: print(type(error) is not multiprocessing.TimeoutError)\n")
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "program.py")
            with open(path, "w") as file:
                file.write(program)
            done = subprocess.run([sys.executable, path], capture_output=True, text=True, timeout=200,
                                  env={**os.environ, "PYTHONPATH": os.pathsep.join([os.path.dirname(__file__), *sys.path])})
        self.assertEqual(done.stdout, "True\nTrue\n", done.stderr)

    def test_replace_processes_after_so_many_tasks(self):
        with mp.Pool(2, maxtasksperchild=3) as pool:
            pids = pool.map(pid_of, range(12), 1)
        self.assertEqual(len(pids), 12)
        self.assertLessEqual(max(pids.count(pid) for pid in pids), 3)

    def test_end(self):
        pool = mp.Pool(2)
        results = [pool.apply_async(square, (x,)) for x in range(100)]
        self.assertRaisesRegex(ValueError, "still running", pool.join)
        pool.close()
        self.assertRaisesRegex(ValueError, "not running", pool.apply, square, (1,))
        pool.join()
        self.assertEqual([result.get(0) for result in results], [x * x for x in range(100)])
        pool = mp.Pool(2)
        result = pool.map_async(sleep_long, range(10))
        items = pool.imap(sleep_long, range(10))
        pool.terminate()
        pool.join()
        self.assertRaisesRegex(RuntimeError, "the pool was terminated", result.get, 60)
        self.assertRaisesRegex(RuntimeError, "the pool was terminated", items.next, 60)
        self.assertEqual(multiprocessing.active_children(), [])

    def test_say_what_cannot_be(self):
        self.assertRaises((pickle.PicklingError, AttributeError, TypeError), mp.Pool, 2, square, (threading.Lock(),))
        self.assertEqual(multiprocessing.active_children(), [])
        self.assertRaisesRegex(ValueError, "number of processes is 0", mp.Pool, 0)
        self.assertRaisesRegex(ValueError, "maxtasksperchild is 0", mp.Pool, 1, maxtasksperchild=0)
        self.assertRaisesRegex(TypeError, "initializer", mp.Pool, 1, 5)


if __name__ == "__main__":
    unittest.main()

"""mp.Process of retinue.multiprocessing, and what of multiprocessing starts such processes. Needs no PyTorch."""

import concurrent.futures
import multiprocessing.connection
import os
import signal
import threading
import unittest

import retinue.multiprocessing as mp

from multiprocessing_test import end_by_signal, leave, put_variables, raise_odd, sleep


def put_all(queue, *args, **kwargs):
    parent = mp.parent_process()
    queue.put((args, kwargs, mp.current_process().name, parent.pid, parent.is_alive()))


class Doubler(mp.Process):
    def __init__(self, queue, number):
        super().__init__(name="doubler")
        self.queue, self.number = queue, number

    def run(self):
        self.queue.put(2 * self.number)


def add_often(value, lock, barrier):
    barrier.wait()
    for _ in range(100):
        with lock:
            value.value += 1


def square(number):
    return number * number


class Processes(unittest.TestCase):
    def test_run_a_function_with_its_arguments(self):
        queue = mp.Queue()
        process = mp.Process(target=put_all, args=(queue, 1), kwargs={"a": [2]}, name="worker")
        self.assertIsNone(process.pid)
        process.start()
        self.assertEqual(queue.get(), ((1,), {"a": [2]}, "worker", os.getpid(), True))
        process.join()
        self.assertEqual((process.exitcode, process.is_alive()), (0, False))
        process.close()

    def test_are_no_ranks_of_their_own(self):
        queue = mp.SimpleQueue()
        os.environ["RANK"] = "3"
        self.addCleanup(os.environ.pop, "RANK")
        process = mp.Process(target=put_variables, args=(0, queue, "RANK", "WORLD_SIZE"))
        process.start()
        self.assertEqual(queue.get(), ["3", None])
        process.join()

    def test_may_be_a_subclass(self):
        queue = mp.SimpleQueue()
        process = Doubler(queue, 21)
        process.start()
        self.assertEqual(queue.get(), 42)
        process.join()
        self.assertEqual(process.exitcode, 0)

    def test_have_pythons_exit_codes(self):
        for function, args, code in ((leave, (0, 5), 5), (end_by_signal, (0,), -signal.SIGKILL), (raise_odd, (0,), 1)):
            process = mp.Process(target=function, args=args)
            process.start()
            process.join()
            self.assertEqual(process.exitcode, code)

    def test_can_be_waited_for_and_ended(self):
        process = mp.get_context("spawn").Process(target=sleep, daemon=True)
        process.start()
        self.assertEqual(multiprocessing.connection.wait([process.sentinel], 0.05), [])
        self.assertIn(process, mp.active_children())
        process.terminate()
        self.assertEqual(multiprocessing.connection.wait([process.sentinel], 60), [process.sentinel])
        process.join()
        self.assertEqual(process.exitcode, -signal.SIGTERM)
        self.assertNotIn(process, mp.active_children())

    def test_may_be_waited_for_by_several_threads(self):
        def start_and_join():
            for _ in range(5):
                process = mp.Process(target=square, args=(2,))
                process.start()  # It looks at all processes of this one.
                process.join()
                codes.append(process.exitcode)

        codes = []
        threads = [threading.Thread(target=start_and_join) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(codes, [0] * 20)

    def test_are_not_those_of_a_fork_of_their_parent(self):
        process = mp.Process(target=square, args=(2,))
        process.start()
        multiprocessing.connection.wait([process.sentinel])
        pid = os.fork()
        if pid == 0:
            process.terminate()
            try:
                mp.Process(target=square, args=(2,)).start()
            except RuntimeError as error:
                os._exit(0 if process.exitcode is None and "fork before the first start" in str(error) else 1)
            os._exit(2)
        self.assertEqual(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), 0)
        process.join()
        self.assertEqual(process.exitcode, 0)

    def test_share_multiprocessings_objects(self):
        value, lock, barrier = mp.Value("i", 0), mp.Lock(), mp.Barrier(3)
        processes = [mp.Process(target=add_often, args=(value, lock, barrier)) for _ in range(3)]
        for process in processes:
            process.start()
        for process in processes:
            process.join()
        self.assertEqual(value.value, 300)

    def test_are_those_of_pools_and_executors(self):
        with mp.Pool(2) as pool:
            self.assertEqual(pool.map(square, range(10)), [square(number) for number in range(10)])
        with concurrent.futures.ProcessPoolExecutor(2, mp_context=mp.get_context()) as executor:
            self.assertEqual(list(executor.map(square, range(5))), [0, 1, 4, 9, 16])


if __name__ == "__main__":
    unittest.main()

"""retinue.multiprocessing's queues: what they carry, how they wait, and that they leave nothing behind."""

import os
import pickle
import queue
import signal
import threading
import time
import unittest

try:
    import numpy
except ImportError:
    numpy = None

import retinue.multiprocessing as mp
from retinue import _core


def echo(index, inputs, outputs):
    while (value := inputs.get()) is not None:
        outputs.put(value)


def count_to(index, numbers, limit):
    for i in range(limit):
        numbers.put((index, i))


def add_up(index, numbers, sums):
    sums.put(sum(iter(numbers.get, None)))


def work_off(index, tasks, results):
    for task in iter(tasks.get, None):
        results.put(task * task)
        tasks.task_done()
    tasks.task_done()


def put_in_given(index, queues):
    queues.get().put(f"from {index}")


def die_with_a_queue(index, queue):
    queue.put("before")
    os.kill(os.getpid(), 9)


def first_of(index, array, queue):
    array[0] += index
    queue.put(array[0].item())


class Echoes:
    """For a TestCase whose values go to another process and back."""

    def echoes(self, *values, inputs=mp.Queue, outputs=mp.Queue):
        """Yields the values as they come back. `inputs` and `outputs` make the queues."""
        inputs, outputs = inputs(), outputs()
        context = mp.spawn(echo, (inputs, outputs), join=False)
        for value in values:
            inputs.put(value)
            yield outputs.get()
        inputs.put(None)
        context.join()
        self.assertTrue(inputs.empty() and outputs.empty())


class Queues(Echoes, unittest.TestCase):
    def test_carry_what_pickle_can(self):
        values = [1, "text", {"a": [1.5, (None, b"\0")]}, b"x" * 10**7, list(range(10**6)), bytearray(5), queue.Empty]
        for make in (mp.Queue, mp.SimpleQueue, lambda: mp.Queue(3)):
            self.assertEqual(list(self.echoes(*values, inputs=make, outputs=make)), values)

    @unittest.skipIf(numpy is None, "NumPy is not installed")
    def test_carry_arrays(self):
        for dtype in ("int8", "float16", "float64", "complex128", "S7", "datetime64[s]"):
            for shape in ((), (0,), (3,), (1000, 70), (70, 3, 500)):
                array = numpy.arange(numpy.prod(shape, dtype=int)).reshape(shape).astype(dtype)
                for value in (array, array.T, array[..., ::2] if shape else array):
                    [back] = self.echoes(value)
                    numpy.testing.assert_array_equal(back, value)
                    self.assertEqual((back.dtype, back.shape), (value.dtype, value.shape))
                    self.assertTrue(back.flags.writeable)

    @unittest.skipIf(numpy is None, "NumPy is not installed")
    def test_an_array_that_was_got_is_its_owners_and_is_sent_on_where_it_is(self):
        numbers = mp.Queue()
        array = numpy.zeros(10**6)
        numbers.put(array)
        array[0] = 1
        got = numbers.get()
        self.assertEqual(got[0], 0)
        numbers.put(got)
        again = numbers.get()
        again[5] = 7
        self.assertEqual(got[5], 7)
        part = got[10:20]
        del got, again
        numbers.put(numpy.ones(10**6))  # In the memory that was free.
        self.assertEqual(part.tolist(), [0] * 10)

    @unittest.skipIf(numpy is None, "NumPy is not installed")
    def test_each_process_has_its_own_copy_of_an_argument(self):
        firsts = mp.Queue()
        array = numpy.zeros(10**6)
        mp.spawn(first_of, (array, firsts), 3)
        self.assertEqual(sorted(firsts.get() for _ in range(3)), [0, 1, 2])
        self.assertEqual(array[0], 0)

    def test_keep_each_producers_order(self):
        numbers = mp.Queue(5)
        context = mp.spawn(count_to, (numbers, 500), 3, join=False)
        seen = {0: [], 1: [], 2: []}
        for _ in range(1500):
            index, i = numbers.get()
            seen[index].append(i)
        context.join()
        self.assertEqual(list(seen.values()), [list(range(500))] * 3)

    def test_give_each_value_to_one_consumer(self):
        numbers, sums = mp.Queue(), mp.Queue()
        context = mp.spawn(add_up, (numbers, sums), 3, join=False)
        for i in range(1000):
            numbers.put(i)
        for _ in range(3):
            numbers.put(None)
        context.join()
        self.assertEqual(sum(sums.get() for _ in range(3)), 499500)

    def test_have_the_functions_of_multiprocessing(self):
        for maxsize in (0, 2):
            numbers = mp.Queue(maxsize)
            self.assertTrue(numbers.empty() and not numbers.full())
            numbers.put(1)
            numbers.put_nowait(2)
            self.assertEqual((numbers.qsize(), numbers.empty(), numbers.full()), (2, False, maxsize == 2))
            if maxsize:
                self.assertRaises(queue.Full, numbers.put, 3, False)
                self.assertRaises(queue.Full, numbers.put, 3, timeout=0.05)
            self.assertEqual([numbers.get(), numbers.get_nowait()], [1, 2])
            begin = time.monotonic()
            self.assertRaises(queue.Empty, numbers.get, timeout=0.2)
            self.assertGreaterEqual(time.monotonic() - begin, 0.2)
            self.assertRaises(queue.Empty, numbers.get, False)
            numbers.close()
            numbers.join_thread()
            numbers.cancel_join_thread()
            self.assertRaises(ValueError, numbers.put, 1)
            self.assertRaises(ValueError, numbers.get)

    def test_a_wait_lets_other_threads_run(self):
        numbers = mp.Queue()
        got = []
        thread = threading.Thread(target=lambda: got.append(numbers.get()))
        thread.start()
        time.sleep(0.05)
        numbers.put("there")
        thread.join()
        self.assertEqual(got, ["there"])

    def test_a_wait_is_interrupted(self):
        self.addCleanup(signal.signal, signal.SIGINT, signal.signal(signal.SIGINT, signal.default_int_handler))
        full = mp.Queue(1)
        full.put(1)
        for wait in (mp.Queue().get, mp.SimpleQueue().get, lambda: full.put(2), lambda: mp.Queue().get(timeout=60)):
            threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT)).start()
            self.assertRaises(KeyboardInterrupt, wait)
        self.assertEqual(full.qsize(), 1)

    def test_await_that_tasks_are_done(self):
        tasks, results = mp.JoinableQueue(), mp.Queue()
        context = mp.spawn(work_off, (tasks, results), 2, join=False)
        for i in range(20):
            tasks.put(i)
        tasks.join()
        self.assertEqual(sorted(results.get() for _ in range(20)), [i * i for i in range(20)])
        for _ in range(2):
            tasks.put(None)
        tasks.join()
        context.join()
        self.assertRaises(ValueError, tasks.task_done)

    def test_are_sent_in_queues(self):
        given, answers = mp.Queue(), mp.SimpleQueue()
        given.put(answers)
        given.put(answers)
        mp.spawn(put_in_given, (given,), 2)
        self.assertEqual({answers.get(), answers.get()}, {"from 0", "from 1"})

    def test_what_was_put_before_a_death_arrives(self):
        numbers = mp.Queue()
        self.assertRaises(mp.ProcessExitedException, mp.spawn, die_with_a_queue, (numbers,))
        self.assertEqual(numbers.get(), "before")

    def test_say_what_cannot_be(self):
        numbers = mp.Queue()
        with self.assertRaisesRegex(RuntimeError, "a Queue reaches other processes only as an argument of a process"):
            pickle.dumps(numbers)
        self.assertRaises((pickle.PicklingError, AttributeError, TypeError), numbers.put, lambda: 1)
        child = os.fork()
        if child == 0:
            try:
                numbers.put(1)
            except ValueError as error:
                os._exit(0 if "this process was forked by fork(), not by Retinue" in str(error) else 1)
            os._exit(2)
        self.assertEqual(os.waitpid(child, 0)[1], 0)
        self.assertTrue(numbers.empty())
        with self.assertRaises(TypeError):
            numbers.get(timeout="soon")

    def test_free_their_memory(self):
        numbers = mp.Queue()
        places = set()
        for _ in range(50):
            numbers.put(b"x" * 10**6)
            numbers.get()
            places.add(_core.allocate(10**6).address())
        self.assertLess(len(places), 5)


if __name__ == "__main__":
    unittest.main()

"""retinue.multiprocessing: processes that are forks of the guardian, what they are told and tell. Needs no PyTorch."""

import importlib.util
import multiprocessing.shared_memory
import os
import pickle
import random
import signal
import sys
import threading
import time
import unittest

import retinue.multiprocessing as mp


def put_index_and_parent(index, queue):
    queue.put((index, os.getpid(), os.getppid()))


def put_random(index, queue):
    queue.put(random.random())


def put_signals(index, queue):
    queue.put([signal.getsignal(number) for number in (signal.SIGINT, signal.SIGPIPE, signal.SIGUSR1)])


def put_variables(index, queue, *names):
    queue.put([os.environ.get(name) for name in names])


def put_sum(index, queue, name):
    memory = multiprocessing.shared_memory.SharedMemory(name)
    queue.put(sum(memory.buf))
    memory.close()


def start_others(index, queue):
    mp.spawn(put_index_and_parent, (queue,), 2)
    process = mp.Process(target=put_index_and_parent, args=(2, queue))
    process.start()
    process.join()


def put_parent(index, queue):
    parent = mp.parent_process()
    queue.put((parent.name, parent.pid, parent.is_alive(), mp.current_process().name))


def fork_and_leave(index, queue):
    pid = os.fork()
    if pid == 0:
        sys.exit(3)
    _, status = os.waitpid(pid, 0)
    queue.put(os.waitstatus_to_exitcode(status))


def raise_surrogate(index):
    raise ValueError("not text: \udcff")


def raise_long(index):
    raise ValueError("first\0" + 100_000 * "long ")


def raise_in_one(index, which):
    if index != which:
        time.sleep(100)
    values = {}
    values["missing"] += 1


class OddError(Exception):
    def __str__(self):
        raise RuntimeError("no text")


def raise_odd(index):
    raise OddError


def leave(index, code):
    sys.exit(code)


def end_by_signal(index):
    os.kill(os.getpid(), signal.SIGKILL)


def sleep(index=0):
    time.sleep(100)


def end_of(function, *args, nprocs=1):
    """Returns the exception that spawn raises."""
    try:
        mp.spawn(function, args, nprocs)
    except mp.ProcessException as error:
        return error
    raise AssertionError("nothing was raised")


class Spawn(unittest.TestCase):
    def setUp(self):
        self.queue = mp.SimpleQueue()

    def test_runs_the_function_with_each_index_in_forks_of_one_guardian(self):
        mp.spawn(put_index_and_parent, (self.queue,), 3)
        first = sorted(self.queue.get() for _ in range(3))
        mp.spawn(put_index_and_parent, (self.queue,), 1)
        self.assertEqual([index for index, _, _ in first], [0, 1, 2])
        self.assertEqual(len({pid for _, pid, _ in first}), 3)
        self.assertEqual({parent for _, _, parent in first}, {self.queue.get()[2]})
        self.assertNotIn(os.getpid(), {pid for _, pid, _ in first})

    def test_executes_an_interpreter_for_each_process_where_that_is_asked_for(self):
        mp.start_processes(put_index_and_parent, (self.queue,), 2, start_method="spawn")
        self.assertEqual(sorted(self.queue.get()[0] for _ in range(2)), [0, 1])

    def test_gives_each_process_random_numbers_of_its_own(self):
        mp.spawn(put_random, (self.queue,), 2)
        mp.spawn(put_random, (self.queue,), 2)
        self.assertEqual(len({self.queue.get() for _ in range(4)}), 4)

    def test_gives_processes_the_handlers_of_signals_of_a_new_interpreter(self):
        mp.spawn(put_signals, (self.queue,))
        self.assertEqual(self.queue.get(), [signal.default_int_handler, signal.SIG_IGN, signal.SIG_DFL])
        for number, former in ((signal.SIGINT, signal.default_int_handler), (signal.SIGUSR1, signal.SIG_DFL)):
            self.addCleanup(signal.signal, number, former)
            signal.signal(number, signal.SIG_IGN)
        mp.spawn(put_signals, (self.queue,))
        self.assertEqual(self.queue.get(), [signal.SIG_IGN] * 3)

    def test_gives_processes_the_environment_of_now_and_their_ranks(self):
        mp.warm()
        os.environ["RETINUE_TEST_LATE"] = "late"
        self.addCleanup(os.environ.pop, "RETINUE_TEST_LATE")
        mp.spawn(put_variables, (self.queue, "RETINUE_TEST_LATE", "RANK", "WORLD_SIZE"), 2)
        self.assertEqual(sorted(self.queue.get() for _ in range(2)), [["late", "0", "2"], ["late", "1", "2"]])

    def test_lets_processes_use_shared_memory_without_freeing_it(self):
        memory = multiprocessing.shared_memory.SharedMemory(create=True, size=4096)
        self.addCleanup(memory.unlink)
        memory.buf[:3] = bytes([1, 2, 3])
        for _ in range(2):
            mp.spawn(put_sum, (self.queue, memory.name), 2)
            self.assertEqual([self.queue.get(), self.queue.get()], [6, 6])
        memory.close()

    def test_may_be_called_in_a_process_that_it_started(self):
        mp.spawn(start_others, (self.queue,))
        self.assertEqual(sorted(self.queue.get()[0] for _ in range(3)), [0, 1, 2])

    def test_gives_processes_their_parent(self):
        mp.spawn(put_parent, (self.queue,))
        self.assertEqual(self.queue.get(), (mp.current_process().name, os.getpid(), True, "Process-0"))

    def test_lets_functions_fork(self):
        mp.spawn(fork_and_leave, (self.queue,))
        self.assertEqual(self.queue.get(), 3)

    def test_may_be_called_by_any_thread(self):
        threads = [threading.Thread(target=mp.spawn, args=(put_index_and_parent, (self.queue,), 2)) for _ in range(3)]
        for thread in threads:
            thread.start()
        self.assertEqual(sorted(self.queue.get()[0] for _ in range(6)), [0, 0, 0, 1, 1, 1])
        for thread in threads:
            thread.join()

    def test_has_a_default_start_method(self):
        self.assertEqual((mp.get_start_method(), mp.get_start_method(allow_none=True)), ("forkserver", None))
        self.addCleanup(mp.set_start_method, None, force=True)
        mp.set_start_method("spawn")
        with self.assertRaisesRegex(RuntimeError, "has been set already"):
            mp.set_start_method("forkserver")
        mp.spawn(put_index_and_parent, (self.queue,))
        self.assertEqual(self.queue.get()[0], 0)

    def test_refuses_fork_by_name(self):
        with self.assertRaisesRegex(ValueError, "start_method is 'fork': it must be None, 'forkserver' or 'spawn'"):
            mp.start_processes(sleep, start_method="fork")

    def test_refuses_fewer_than_one_process(self):
        with self.assertRaisesRegex(ValueError, "nprocs is 0: it must be at least 1"):
            mp.spawn(sleep, nprocs=0)

    def test_raises_what_pickle_says_of_a_function_that_has_no_name(self):
        if importlib.util.find_spec("cloudpickle") is None:
            with self.assertRaises((pickle.PicklingError, AttributeError)):
                mp.spawn(lambda index: None)
        else:
            mp.spawn(lambda index: None)


class Failures(unittest.TestCase):
    def test_have_the_type_the_message_and_the_traceback(self):
        error = end_of(raise_in_one, 1, nprocs=3)
        self.assertIsInstance(error, mp.ProcessRaisedException)
        self.assertEqual(error.error_index, 1)
        line = raise_in_one.__code__.co_firstlineno + 4
        for text in ("raised KeyError: 'missing'", "Traceback (most recent call last)",
                     f'File "{__file__}", line {line}, in raise_in_one', "ranks 0, 2: were stopped"):
            self.assertIn(text, str(error))
        self.assertNotIn("_serve.py", str(error))
        cause = error.outcomes[1]
        self.assertEqual((cause["type"], cause["pid"], cause["end"]), ("KeyError", error.error_pid, "raised"))

    def test_name_the_module_of_a_type_and_survive_a_message_that_raises(self):
        error = end_of(raise_odd)
        self.assertIn("OddError: (its message can't be had: RuntimeError('no text'))", str(error))

    def test_have_messages_that_are_no_text(self):
        error = end_of(raise_surrogate)
        self.assertIsInstance(error, mp.ProcessRaisedException)
        self.assertIn("ValueError: not text: \\udcff", str(error))

    def test_keep_the_traceback_of_a_long_message(self):
        error = end_of(raise_long)
        self.assertIn("in raise_long", error.outcomes[0]["stack"])
        self.assertIn("first\\0", error.outcomes[0]["message"])

    def test_have_the_code_that_a_process_exits_with(self):
        error = end_of(leave, 7)
        self.assertIsInstance(error, mp.ProcessExitedException)
        self.assertEqual((error.exit_code, error.signal_name), (7, None))
        self.assertEqual(end_of(leave, "a text").exit_code, 1)
        mp.spawn(leave, (0,))
        mp.spawn(leave, (None,))

    def test_have_the_signal_that_ended_a_process(self):
        error = end_of(end_by_signal)
        self.assertEqual((error.exit_code, error.signal_name), (-signal.SIGKILL, "SIGKILL"))

    def test_can_be_pickled(self):
        for error in (end_of(raise_in_one, 0), end_of(leave, 3)):
            copy = pickle.loads(pickle.dumps(error))
            self.assertEqual((type(copy), str(copy), copy.error_pid), (type(error), str(error), error.error_pid))

    def test_are_raised_again_by_a_second_join(self):
        context = mp.spawn(raise_odd, nprocs=1, join=False)
        for _ in range(2):
            with self.assertRaises(mp.ProcessRaisedException):
                context.join()


class Contexts(unittest.TestCase):
    def test_say_whether_processes_have_ended(self):
        context = mp.spawn(sleep, nprocs=2, join=False)
        self.assertFalse(context.join(0.05))
        self.assertEqual(len(set(context.pids())), 2)
        context.terminate()
        self.assertTrue(context.join())
        self.assertTrue(context.join())

    def test_are_interrupted_by_a_signal(self):
        context = mp.spawn(sleep, nprocs=1, join=False)
        timer = threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT))
        timer.start()
        with self.assertRaises(KeyboardInterrupt):
            context.join()
        timer.join()
        self.assertTrue(context.join())  # The process was interrupted, too.


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.default_int_handler)  # Shells ignore it for what runs in the background.
    unittest.main()

"""retinue.multiprocessing's locks, events, conditions, barriers and values: what they promise, also where processes die."""

import ctypes
import os
import pickle
import signal
import threading
import time
import unittest

import retinue.multiprocessing as mp


class Point(ctypes.Structure):
    _fields_ = [("x", ctypes.c_double), ("y", ctypes.c_int)]


def add(index, lock, counter, times):
    for _ in range(times):
        with lock:
            counter.value += 1


def die_as_owner(index, lock):
    lock.acquire()
    os.kill(os.getpid(), signal.SIGKILL)


def hold_until(index, lock, held, may_go):
    with lock:
        held.set()
        may_go.wait()


def take_one(index, semaphore, results):
    results.put(semaphore.acquire(timeout=30))


def consume(index, condition, items, results):
    with condition:
        condition.wait_for(lambda: items.value > 0)
        items.value -= 1
    results.put(index)


def die_notified(index, condition, entered):
    with condition:
        entered.release()
        condition.wait()
    os.kill(os.getpid(), signal.SIGKILL)


def wait_for_notify(index, condition, entered, results):
    with condition:
        entered.release()
        results.put(condition.wait(30))


def meet(index, barrier, results):
    results.put(barrier.wait())


def be_killed_at(index, barrier):
    if index == 0:
        threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGKILL)).start()
    try:
        barrier.wait(30)
    except threading.BrokenBarrierError as error:
        barrier.reason = str(error)
        raise


def fill(index, value, array, point, raw):
    with value:
        value.value += 0.5
    array[index] = 7
    point.x, point.y = 1.5, index
    raw[index] = index + 1


def raise_action():
    raise KeyError("action")


def note_action(calls):
    calls.value += 1


class NoteAction:
    def __init__(self, calls):
        self.calls = calls

    def __call__(self):
        self.calls.value += 1


def send_back(index, given, results):
    results.put(given.get())


class Locks(unittest.TestCase):
    def test_exclude_each_other(self):
        for make in (mp.Lock, mp.RLock, lambda: mp.Semaphore(1), mp.Condition):
            lock, counter = make(), mp.RawValue("i", 0)
            mp.spawn(add, (lock, counter, 2000), 3)
            self.assertEqual(counter.value, 6000)

    def test_pass_on_from_an_owner_that_dies(self):
        for make in (mp.Lock, mp.RLock):
            lock = make()
            self.assertRaises(mp.ProcessExitedException, mp.spawn, die_as_owner, (lock,))
            self.assertTrue(lock.acquire(timeout=30))
            self.assertTrue(lock.owner_died())
            lock.release()
            with lock:
                self.assertFalse(lock.owner_died())

    def test_wait_as_long_as_they_are_told(self):
        for make in (mp.Lock, mp.RLock):
            lock, held, may_go = make(), mp.Event(), mp.Event()
            context = mp.spawn(hold_until, (lock, held, may_go), join=False)
            held.wait()
            self.assertTrue(lock.locked())
            self.assertFalse(lock.acquire(False))
            begin = time.monotonic()
            self.assertFalse(lock.acquire(timeout=0.2))
            self.assertGreaterEqual(time.monotonic() - begin, 0.2)
            self.assertFalse(lock.acquire(True, -1))
            self.assertRaises((ValueError, AssertionError), lock.release)
            may_go.set()
            self.assertTrue(lock.acquire())
            lock.release()
            context.join()
            self.assertFalse(lock.locked())

    def test_recursion(self):
        lock = mp.RLock()
        self.assertTrue(lock.acquire() and lock.acquire())
        lock.release()
        self.assertTrue(lock.locked())
        lock.release()
        self.assertFalse(lock.locked())
        self.assertRaises(AssertionError, lock.release)
        lock = mp.Lock()
        with lock:
            self.assertFalse(lock.acquire(timeout=0.05))
            with self.assertRaisesRegex(ValueError, "use an RLock"):
                lock.acquire()
        self.assertRaises(ValueError, lock.release)

    def test_a_wait_lets_other_threads_run(self):
        lock, events = mp.Lock(), []

        def take():
            with lock:
                events.append("taken")

        with lock:
            thread = threading.Thread(target=take)
            thread.start()
            time.sleep(0.05)
            events.append("held")
        thread.join()
        self.assertEqual(events, ["held", "taken"])

    def test_semaphores_count(self):
        semaphore, results = mp.Semaphore(0), mp.Queue()
        context = mp.spawn(take_one, (semaphore, results), 3, join=False)
        for _ in range(3):
            semaphore.release()
        context.join()
        self.assertEqual([results.get() for _ in range(3)], [True] * 3)
        self.assertEqual(semaphore.get_value(), 0)
        self.assertFalse(semaphore.acquire(False))
        bounded = mp.BoundedSemaphore(2)
        self.assertTrue(bounded.acquire())
        bounded.release()
        self.assertRaises(ValueError, bounded.release)
        self.assertRaises(ValueError, mp.Semaphore, -1)
        self.assertEqual(repr(bounded), "<BoundedSemaphore(value=2)>")


class Conditions(unittest.TestCase):
    def test_wake_those_that_wait(self):
        for lock in (None, mp.Lock(), mp.RLock()):
            condition, items, results = mp.Condition(lock), mp.RawValue("i", 0), mp.Queue()
            context = mp.spawn(consume, (condition, items, results), 3, join=False)
            for _ in range(3):
                with condition:
                    items.value += 1
                    condition.notify()
            context.join()
            self.assertEqual(sorted(results.get() for _ in range(3)), [0, 1, 2])

    def test_a_notify_for_the_dead_wakes_another(self):
        condition, entered, results = mp.Condition(), mp.Semaphore(0), mp.Queue()
        first = mp.spawn(die_notified, (condition, entered), join=False)
        entered.acquire()
        second = mp.spawn(wait_for_notify, (condition, entered, results), join=False)
        entered.acquire()
        with condition:
            condition.notify()
            first.kill()  # While it waits for the lock.
            first.join()
        second.join()
        self.assertTrue(results.get())

    def test_time_out_and_need_the_lock(self):
        condition = mp.Condition()
        for function in (condition.wait, condition.notify, condition.notify_all):
            self.assertRaises(AssertionError, function)
        with condition:
            self.assertFalse(condition.wait(0.05))
            self.assertFalse(condition.wait_for(lambda: False, 0.05))
            self.assertEqual(condition.wait_for(lambda: 5), 5)
        with self.assertRaisesRegex(TypeError, "must be a Lock or RLock of retinue.multiprocessing"):
            mp.Condition(threading.Lock())


class Events(unittest.TestCase):
    def test_are_seen(self):
        event = mp.Event()
        self.assertFalse(event.is_set() or event.wait(0.05))
        event.set()
        self.assertTrue(event.is_set() and event.wait())
        event.clear()
        self.assertFalse(event.is_set())


class Barriers(unittest.TestCase):
    def test_let_all_go_at_once(self):
        calls, results = mp.RawValue("i", 0), mp.Queue()
        barrier = mp.Barrier(3, NoteAction(calls))
        for round in range(3):
            mp.spawn(meet, (barrier, results), 3)
            self.assertEqual(sorted(results.get() for _ in range(3)), [0, 1, 2])
            self.assertEqual(calls.value, round + 1)
        self.assertEqual((barrier.parties, barrier.n_waiting, barrier.broken), (3, 0, False))

    def test_break(self):
        barrier = mp.Barrier(2, timeout=0.05)
        with self.assertRaisesRegex(threading.BrokenBarrierError, "timed out"):
            barrier.wait()
        self.assertTrue(barrier.broken)
        self.assertRaises(threading.BrokenBarrierError, barrier.wait)
        barrier.reset()
        self.assertFalse(barrier.broken)
        barrier.abort()
        self.assertRaises(threading.BrokenBarrierError, barrier.wait)
        raising = mp.Barrier(1, raise_action)
        self.assertRaises(KeyError, raising.wait)
        self.assertRaises(threading.BrokenBarrierError, raising.wait)
        self.assertRaises(ValueError, mp.Barrier, 0)
        self.assertRaises(ValueError, mp.Barrier, 2**40)

    def test_break_when_one_that_waits_is_killed(self):
        barrier = mp.Barrier(3)
        with self.assertRaises(mp.ProcessException) as raised:
            mp.spawn(be_killed_at, (barrier,), 2)
        self.assertIn("SIGKILL", str(raised.exception))
        with self.assertRaisesRegex(threading.BrokenBarrierError, "killed|died"):
            barrier.wait(30)


class Waits(unittest.TestCase):
    def test_are_interrupted(self):
        self.addCleanup(signal.signal, signal.SIGINT, signal.signal(signal.SIGINT, signal.default_int_handler))
        held, may_go = mp.Event(), mp.Event()
        lock, condition, barrier, pipe = mp.Lock(), mp.Condition(), mp.Barrier(2), mp.Pipe()
        context = mp.spawn(hold_until, (lock, held, may_go), join=False)
        held.wait()

        def wait_in_condition():
            with condition:
                condition.wait()

        for wait in (lock.acquire, mp.Semaphore(0).acquire, mp.Event().wait, wait_in_condition, barrier.wait,
                     pipe[0].recv, mp.JoinableQueue().get):
            threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT)).start()
            self.assertRaises(KeyboardInterrupt, wait)
        with condition:
            condition.notify_all()
        self.assertEqual((barrier.n_waiting, barrier.broken), (0, False))
        results = mp.Queue()
        mp.spawn(meet, (barrier, results), 2)
        self.assertEqual(sorted(results.get() for _ in range(2)), [0, 1])
        may_go.set()
        context.join()

    def test_of_a_condition_hold_the_lock_again(self):
        self.addCleanup(signal.signal, signal.SIGINT, signal.signal(signal.SIGINT, signal.default_int_handler))
        handled = []
        self.addCleanup(signal.signal, signal.SIGUSR1, signal.signal(signal.SIGUSR1, lambda *_: handled.append(str(5))))
        lock = mp.RLock()
        condition = mp.Condition(lock)

        def interrupt():
            with lock:
                os.kill(os.getpid(), signal.SIGINT)
                time.sleep(0.1)
                os.kill(os.getpid(), signal.SIGUSR1)  # While it waits for the lock.
                time.sleep(0.1)

        thread = threading.Timer(0.1, interrupt)
        thread.start()
        lock.acquire()
        lock.acquire()
        self.assertRaises(KeyboardInterrupt, condition.wait)
        thread.join()
        self.assertEqual(handled, ["5"])
        lock.release()
        lock.release()
        self.assertFalse(lock.locked())


class Values(unittest.TestCase):
    def test_are_shared(self):
        value, array, point, raw = mp.Value("d", 1.0), mp.Array("i", 3), mp.Value(Point), mp.RawArray(ctypes.c_long, 3)
        mp.spawn(fill, (value, array, point, raw), 3)
        self.assertEqual((value.value, array[:], list(raw)), (2.5, [7, 7, 7], [1, 2, 3]))
        self.assertEqual(point.x, 1.5)
        self.assertIn(point.y, (0, 1, 2))

    def test_begin_as_they_are_told(self):
        self.assertEqual(mp.Array("i", [1, 2, 3])[:], [1, 2, 3])
        self.assertEqual(mp.Array("i", range(4), lock=False)[:], [0, 1, 2, 3])
        self.assertEqual(mp.RawValue(Point, 2.5, 3).y, 3)
        self.assertEqual(mp.Value("i", lock=False).value, 0)
        text = mp.Array("c", b"hello")
        self.assertEqual((text.value, len(text)), (b"hello", 5))
        lock = mp.Lock()
        self.assertIs(mp.Value("i", lock=lock).get_lock(), lock)
        self.assertRaises(AttributeError, mp.Value, "i", lock="no lock")
        self.assertRaises(TypeError, mp.Value, "no type")
        self.assertEqual(len(mp.RawArray("i", 0)), 0)
        self.assertRaisesRegex(ValueError, "not a number", lock.acquire, timeout=float("nan"))

    def test_plain_ctypes_are_pickled_as_ever(self):
        mp.RawValue(ctypes.c_int, 1)
        given = mp.Queue()
        given.put(ctypes.c_int(7))
        self.assertEqual(given.get().value, 7)


class Countdown(mp.Queue):
    """With what can't be pickled."""

    def __init__(self, count):
        super().__init__()
        self.count = count
        self.mutex = threading.Lock()

    def __getstate__(self):
        return {name: value for name, value in super().__getstate__().items() if name != "mutex"}

    def __setstate__(self, state):
        super().__setstate__(state)
        self.mutex = "made anew"


class Handles(unittest.TestCase):
    def test_of_derived_classes_have_their_own_state(self):
        given, countdown = mp.Queue(), Countdown(3)
        given.put(countdown)
        back = given.get()
        self.assertEqual((type(back), back.count, back.mutex), (Countdown, 3, "made anew"))
        back.put("there")
        self.assertEqual(countdown.get(), "there")

    def test_survive_a_fork_that_ends(self):
        """It has what its parent has, and drops it when that has freed it."""
        here, there = mp.Pipe()
        child = os.fork()
        if child == 0:
            time.sleep(0.5)
            here = there = None
            os._exit(0)
        del here, there
        arrays = [mp.RawArray("B", 4000) for _ in range(200)]
        for array in arrays:
            ctypes.memset(array, 0x5a, len(array))
        os.waitpid(child, 0)
        self.assertTrue(all(bytes(array) == b"\x5a" * 4000 for array in arrays))

    def test_arrive_by_queues_and_on_from_there(self):
        given, results = mp.Queue(), mp.Queue()
        lock = mp.Lock()
        things = [lock, mp.RLock(), mp.Semaphore(3), mp.BoundedSemaphore(2), mp.Event(), mp.Condition(lock), mp.Barrier(2),
                  mp.RawArray("i", [1, 2, 3]), mp.RawArray(ctypes.c_int * 2, 3), mp.RawArray("i", 0), mp.JoinableQueue(), *mp.Pipe()]
        given.put(things)
        mp.spawn(send_back, (given, results))
        back = results.get()
        self.assertEqual(list(map(type, back)), list(map(type, things)))
        with back[0]:
            self.assertTrue(lock.locked())
            back[5].notify()
        back[2].acquire()
        self.assertEqual(things[2].get_value(), 2)
        back[4].set()
        self.assertTrue(things[4].is_set())
        back[7][0] = 9
        self.assertEqual(things[7][0], 9)
        things[-1].send("there")
        self.assertEqual(back[-2].recv(), "there")

    def test_are_not_pickled_for_elsewhere(self):
        for thing in (mp.Lock(), mp.Event(), mp.Barrier(1), mp.Pipe()[0]):
            self.assertRaisesRegex(RuntimeError, "reaches other processes only as an argument", pickle.dumps, thing)


if __name__ == "__main__":
    unittest.main()

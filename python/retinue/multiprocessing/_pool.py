"""Pool: multiprocessing's, in which a process that dies loses its own task, and its caller learns how."""

import collections
import itertools
import multiprocessing.pool
import os
import signal
import threading
import time
import traceback
from multiprocessing import util as _util

from retinue.multiprocessing import _process, _queues, _spawn

# Tasks that a process has at a time, so that it need not wait for its next one: more where tasks take less than _SHORT.
_FEWEST_AHEAD, _MOST_AHEAD = 2, 32
_SHORT = 0.001  # Seconds.


def _work(worker, tasks, results, initializer, initargs):
    """What a process of a pool runs."""
    try:
        if initializer is not None:
            initializer(*initargs)
    except Exception as error:
        results.put((worker, "broken", multiprocessing.pool.ExceptionWithTraceback(error, error.__traceback__)))
        return
    results.put((worker, "ready", None))
    while (batch := tasks.get()) is not None:
        batch.reverse()
        while batch:
            function, args, kwargs = batch.pop()
            try:
                end = True, function(*args, **kwargs)
            except Exception as error:
                end = False, multiprocessing.pool.ExceptionWithTraceback(error, error.__traceback__)
            try:
                results.put((worker, "done", end))
            except Exception as error:
                results.put((worker, "done", (False, multiprocessing.pool.MaybeEncodingError(error, end[1]))))
            function = args = kwargs = end = None  # Not kept while it waits.


class _Worker:
    """A process, and the tasks that it has: the first is the one that it is at."""

    def __init__(self, process, tasks):
        self.process = process
        self.tasks = tasks
        self.has = collections.deque()
        self.ahead = _FEWEST_AHEAD
        self.done_at = 0.0
        self.is_ready = False
        self.left = None  # Tasks that it may still get; None: any number.
        self.is_retired = False

    def retire(self):
        if not self.is_retired:
            self.is_retired = True
            self.tasks.put(None)

    def has_end(self):
        return self.left == 0

    def note_done(self):
        now = time.monotonic()
        self.ahead = min(2 * self.ahead, _MOST_AHEAD) if now - self.done_at < _SHORT else _FEWEST_AHEAD
        self.done_at = now


def _name_of(task):
    """Returns the name of the program's own function."""
    function, args = task[2:4]
    if function in (multiprocessing.pool.mapstar, multiprocessing.pool.starmapstar):
        function = args[0][0]
    return getattr(function, "__qualname__", None) or repr(function)


def _loss_of(worker, task):
    code = worker.process.exitcode
    name = signal.Signals(-code).name if code < 0 else None
    how = f"was killed by {name}" if name else f"exited with code {code}"
    text = f"a process of the pool (pid {worker.process.pid}) {how}" + (f" in {_name_of(task)}" if task else "")
    return _spawn.ProcessExitedException(text, 0, worker.process.pid, code, name)


def _fail(result, error):
    """Ends what a caller waits for."""
    if isinstance(result, multiprocessing.pool.IMapIterator):
        with result._cond:
            result._items.append((False, error))
            result._unsorted.clear()
            result._length = result._index
            result._cond.notify_all()
        del result._cache[result._job]
    elif isinstance(result, multiprocessing.pool.MapResult):
        result._number_left = 1
        result._set(0, (False, error))
    else:
        result._set(0, (False, error))


class _Feed:
    """The tasks that callers gave. A thread asks their iterators, which may wait for what they like."""

    _MOST = 1000  # That were asked for before a process can have them.

    def __init__(self, wake):
        self._wake = wake
        self._changed = threading.Condition()
        self._series = collections.deque()  # Iterators, with what is told their length.
        self._tasks = collections.deque()
        self._is_asked = False  # For a task, when there was none.
        self._is_stopped = False
        threading.Thread(target=self._run, daemon=True, name="pool tasks").start()

    def put(self, series):
        with self._changed:
            if isinstance(series[0], list):  # Of one task, which need not wait for what iterators do.
                self._tasks.extend(series[0])
            else:
                self._series.append(series)
                self._changed.notify_all()
        self._wake_if_asked()

    def take(self):
        """Returns a task, or None; then it wakes the manager when there is one."""
        if not self._tasks:
            self._is_asked = True
            if not self._tasks:  # Still: one that came meanwhile may have been put unnoticed.
                return None
        task = self._tasks.popleft()
        if len(self._tasks) == self._MOST // 2:
            with self._changed:
                self._changed.notify_all()
        return task

    def waiting(self):
        """Returns how many tasks take() returns at once."""
        return len(self._tasks)

    def is_empty(self):
        with self._changed:
            return not self._series and not self._tasks

    def stop(self):
        with self._changed:
            self._is_stopped = True
            self._series.clear()
            self._tasks.clear()
            self._changed.notify_all()

    def _run(self):
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._series or self._is_stopped)
                if self._is_stopped:
                    return
                tasks, set_length = self._series[0]
            last = -1
            for task in tasks:
                last = task[1]
                if len(self._tasks) >= self._MOST:
                    with self._changed:
                        self._changed.wait_for(lambda: len(self._tasks) <= self._MOST // 2 or self._is_stopped)
                if self._is_stopped:
                    return
                self._tasks.append(task)
                self._wake_if_asked()
            if set_length is not None:
                set_length(last + 1)
            with self._changed:
                if self._series:
                    self._series.popleft()
                self._is_asked = True  # Whether all is done is asked now.
            self._wake_if_asked()

    def _wake_if_asked(self):
        if self._is_asked:
            self._is_asked = False
            self._wake()


class _Manager:
    """The thread that gives tasks to processes, and the results to those that wait for them."""

    def __init__(self, context, processes, initializer, initargs, maxtasksperchild):
        self.state = multiprocessing.pool.RUN
        self.cache = {}  # What callers wait for, by number of the job.
        self._context = context
        self._processes = processes
        self._initial = initializer, initargs
        self._most = maxtasksperchild
        self._results = _queues.SimpleQueue()
        self._feed = _Feed(self._wake)
        self._again = collections.deque()  # Tasks that a process had, but did not begin.
        self._workers = {}
        self._count = 0
        self._error = None  # That ends each task.
        self._is_finished = False
        self._failing = threading.Lock()
        self._owner = os.getpid()
        for _ in range(processes):
            self._start_worker()
        self._thread = threading.Thread(target=self._run, daemon=True, name="pool")
        self._thread.start()

    def put(self, series):
        """Takes tasks, as the _taskqueue of multiprocessing.pool.Pool does."""
        self._feed.put(series)
        if self._is_finished:
            self._fail_all()

    def set_state(self, state):
        self.state = state
        self._wake()

    def join(self):
        if threading.current_thread() is not self._thread:
            self._thread.join()

    def terminate(self):
        if os.getpid() == self._owner and self._thread.is_alive():
            self.set_state(multiprocessing.pool.TERMINATE)
            self.join()

    def pids(self):
        return [worker.process.pid for worker in list(self._workers.values())]

    def _wake(self):
        self._results.put(None)

    def _start_worker(self):
        self._count += 1
        number, tasks = self._count, _queues.SimpleQueue()
        process = self._context.Process(target=_work, args=(number, tasks, self._results, *self._initial), daemon=True,
                                        name=f"PoolWorker-{number}")
        process.start()
        worker = self._workers[number] = _Worker(process, tasks)
        worker.left = self._most

        def watch():
            process.join()
            self._results.put((number, "ended", None))

        threading.Thread(target=watch, daemon=True, name="pool watcher").start()

    def _run(self):
        while self._workers:
            message = self._results.get()
            if message is not None:
                self._take(*message)
            if self.state == multiprocessing.pool.TERMINATE or self._error is not None:
                self._stop()
            else:
                self._give()
        self._feed.stop()
        self._is_finished = True
        self._fail_all()

    def _take(self, number, kind, value):
        worker = self._workers[number]
        if kind == "ready":
            worker.is_ready = True
        elif kind == "broken":
            self._error = value
        elif kind == "done":
            if worker.has:  # Unless the pool ends.
                worker.note_done()
                self._set_result(worker.has.popleft(), value)
        else:
            del self._workers[number]
            self._replace(worker)

    def _replace(self, worker):
        if worker.is_retired and not worker.has:
            if self.state == multiprocessing.pool.RUN or self._has_tasks():
                self._start_worker()
            return
        task = worker.has.popleft() if worker.has else None
        error = _loss_of(worker, task)
        self._again.extendleft(reversed(worker.has))
        if task is not None:
            self._set_result(task, (False, error))
        if not worker.is_ready:  # So would the next one.
            self._error = self._error or error
        else:
            self._start_worker()

    def _set_result(self, task, end):
        result = self.cache.get(task[0])
        if result is not None:
            try:
                result._set(task[1], end)
            except Exception:  # Of a callback.
                traceback.print_exc()

    def _fail_all(self):
        error = self._error or RuntimeError("the pool was terminated before this task was done")
        with self._failing:
            for result in list(self.cache.values()):
                _fail(result, error)

    def _stop(self):
        for worker in self._workers.values():
            worker.is_retired = True
            worker.has.clear()
            worker.process.terminate()
        self._feed.stop()
        self._again.clear()
        self._fail_all()
        self.state = multiprocessing.pool.TERMINATE

    def _has_tasks(self):
        return bool(not self._feed.is_empty() or self._again or any(worker.has for worker in self._workers.values()))

    def _next_task(self):
        return self._again.popleft() if self._again else self._feed.take()

    def _give(self):
        able = [worker for worker in self._workers.values() if worker.is_ready and not worker.is_retired]
        while able:
            worker = min(able, key=lambda each: len(each.has))
            if worker.has_end():
                able.remove(worker)
            elif len(worker.has) > worker.ahead // 2 or not self._give_to(worker, len(able)):
                break
        for worker in self._workers.values():
            if not worker.has and (worker.has_end() or self._is_over()):
                worker.retire()

    def _is_over(self):
        return self.state == multiprocessing.pool.CLOSE and not self._has_tasks()

    def _give_to(self, worker, able):
        """Gives a worker its share of the tasks, of `able` that may have some. Returns whether there was a task."""
        most = min(worker.ahead - len(worker.has), max(1, self._feed.waiting() // able))
        if worker.left is not None:
            most = min(most, worker.left)
        batch = list(itertools.islice(iter(self._next_task, None), most))
        if batch and not self._send(worker, batch):
            for task in batch:  # One of them can't be sent.
                self._send(worker, [task])
        return bool(batch)

    def _send(self, worker, batch):
        """Returns whether the tasks were sent, or the only one failed because it can't be."""
        try:
            worker.tasks.put([task[2:] for task in batch])
        except Exception as error:
            if len(batch) == 1:
                self._set_result(batch[0], (False, error))
            return len(batch) == 1
        worker.has.extend(batch)
        if worker.left is not None:
            worker.left -= len(batch)
        return True


class Pool(multiprocessing.pool.Pool):
    """multiprocessing.Pool. A process that dies is replaced; the task that it was at is lost, and no other one.

    Who waits for a lost task gets a ProcessExitedException, which names the process, its end and the function. A process that
    can't start, or whose initializer raises, ends the pool, and all who wait get the error.
    """

    def __init__(self, processes=None, initializer=None, initargs=(), maxtasksperchild=None, context=None):
        self._state = multiprocessing.pool.INIT  # For __del__, where this raises.
        processes = len(os.sched_getaffinity(0)) if processes is None else processes
        if processes < 1:
            raise ValueError(f"the number of processes is {processes}: it must be at least 1")
        if maxtasksperchild is not None and (not isinstance(maxtasksperchild, int) or maxtasksperchild < 1):
            raise ValueError(f"maxtasksperchild is {maxtasksperchild!r}: it must be a positive int or None")
        if initializer is not None and not callable(initializer):
            raise TypeError("initializer must be callable")
        self._processes = processes
        self._manager = _Manager(context or _process.get_context(), processes, initializer, tuple(initargs), maxtasksperchild)
        self._pool = [None] * processes  # Its length is the number of processes.
        self._cache = self._manager.cache
        self._taskqueue = self._manager
        self._terminate = _util.Finalize(self, self._manager.terminate, exitpriority=15)
        self._state = multiprocessing.pool.RUN

    def __del__(self):
        """Finalize does what is to be done."""

    def _check_running(self):
        if self._state != multiprocessing.pool.RUN or self._manager.state != multiprocessing.pool.RUN:
            raise self._manager._error or ValueError("Pool not running")

    def close(self):
        """No more tasks come. The processes end when all tasks are done."""
        if self._state == multiprocessing.pool.RUN:
            self._state = multiprocessing.pool.CLOSE
            if self._manager.state == multiprocessing.pool.RUN:
                self._manager.set_state(multiprocessing.pool.CLOSE)

    def terminate(self):
        """Ends the processes at once. Who waits for a task gets a RuntimeError."""
        self._state = multiprocessing.pool.TERMINATE
        self._terminate()

    def join(self):
        """Waits until the processes have ended. Errors: ValueError before close() and terminate()."""
        if self._state == multiprocessing.pool.RUN:
            raise ValueError("Pool is still running")
        self._manager.join()
